#!/usr/bin/env bash
# test-engines.sh [ENGINE…] [-- ARGUMENT…]: runs on each engine the suites that it concerns, in a Debian that has it (in-debian.sh), as
# root. Without names it is all of them. The table in docs/reference/engines.md says what came out; bin/engines has a report of each.
# With arguments it runs go test with these instead, and writes nothing.
set -euo pipefail
cd "$(dirname "$0")/.."

# name, what the table calls it, Debian's release, the package whose version it is, and others that are needed
engines='
rabbitmq-4.0|RabbitMQ 4.0|trixie|rabbitmq-server|postgresql
rabbitmq-4.3|RabbitMQ 4.3|sid|rabbitmq-server|postgresql
postgres-17|PostgreSQL 17|trixie|postgresql-17|gcc libc6-dev
postgres-18|PostgreSQL 18|sid|postgresql-18|gcc libc6-dev
postgres-19|PostgreSQL 19|sid|postgresql-19/experimental|postgresql-client-19/experimental libpq5/experimental gcc libc6-dev
mariadb-11.8|MariaDB 11.8|trixie|mariadb-server|mariadb-plugin-rocksdb galera-4 rsync
mysql-9|MySQL 9|sid|mysql-server|
pgbouncer-1.26|PgBouncer 1.26|sid|pgbouncer|postgresql-18
valkey-8|Valkey 8|trixie|valkey-server|'

# suites NAME prints what concerns the engine, a line of arguments for each go test.
suites() {
	case $1 in
	rabbitmq-*)
		echo ./sink/rabbitmq ./sink/amqp1 ./sink/previous ./sink/format
		echo ./cmd/penstock/systemtest -run '^Test(TopologyRabbitMQ.*|KilledRelayPostgresToRabbitMQ|FlightsPostgresToRabbitMQ|Broker.*|StoppingWhileTheBrokerIsDown|FanOutIsIsolated)$'
		;;
	postgres-*) echo ./store/postgres/... ./store/portable ;;
	mariadb-* | mysql-*)
		echo ./store/mysql
		echo ./cmd/penstock ./cmd/penstock/internal/demo ./internal/test/testserver -run 'MariaDB|TestInbox'
		;;
	pgbouncer-*)
		echo ./store/postgres ./store/portable ./writer ./internal/test/testserver -run 'Pool|AnotherServerProcess'
		echo ./cmd/penstock/systemtest -run '^TestTopologyPooler'
		;;
	valkey-*) echo ./sink/redis ;;
	esac
}

mapfile -t known < <(cut -d'|' -f1 <<<"$engines" | grep .)
names=()
while (($#)) && [[ $1 != -- ]]; do
	[[ " ${known[*]} " == *" $1 "* ]] || {
		echo "there is no engine $1, but: ${known[*]}" >&2
		exit 2
	}
	names+=("$1")
	shift
done
((!$#)) || shift
((${#names[@]})) || names=("${known[@]}")
unset PENSTOCK_TEST_POSTGRES PENSTOCK_TEST_RABBITMQ PENSTOCK_TEST_MARIADB CI # the servers are the point, and what a Debian lacks is skipped
export PENSTOCK_TEST_DATA="${PENSTOCK_TEST_DATA-$(script/memory.sh)}" PENSTOCK_TEST_BINARY=$PWD/bin/penstock
mkdir -p bin/engines
go build -o bin/penstock ./cmd/penstock
go build -o bin/enginereport ./internal/test/testserver/enginereport
commit=$(git rev-parse --short=8 HEAD)
table=(-table docs/reference/engines.md -commit "$commit")
if [[ -n $(git status --porcelain --untracked-files=no -- . ':!docs/reference/engines.md') ]]; then
	echo "not everything is committed: docs/reference/engines.md stays as it is, reports are in bin/engines" >&2
	table=()
fi
failed=()
for name in "${names[@]}"; do
	IFS='|' read -r _ shown release package others < <(grep "^$name|" <<<"$engines")
	debian=(script/in-debian.sh "$release" "$package${others:+ $others}")
	# Of 1:11.8.9+ds-0+deb13u1 it is 11.8.9.
	version=$("${debian[@]}" dpkg-query -W -f '${Version}' "${package%/*}" | sed -E 's/^[0-9]+://; s/-[^-]*$//; s/\+.*//; s/~//')
	unset PENSTOCK_TEST_MARIADB_BIN
	[[ $name != mysql-* ]] || export PENSTOCK_TEST_MARIADB_BIN=/usr/sbin
	go=(go test -count=1 -vet=off -p 1 -timeout "${TEST_TIMEOUT:-60m}" -exec "$PWD/${debian[0]} $release '${debian[2]}'")
	if (($#)); then
		echo "$shown $version"
		"${go[@]}" "$@" || failed+=("$name")
		continue
	fi
	suites "$name" | while read -ra arguments; do
		"${go[@]}" -json "${arguments[@]}" </dev/null 2>&1 || true
	done | bin/enginereport -server "$shown $version" -text "bin/engines/$name.txt" -json "bin/engines/$name.json" "${table[@]}" || failed+=("$name")
done
((${#failed[@]})) || exit 0
(($#)) || for name in "${failed[@]}"; do
	echo "FAIL: bin/engines/$name.txt; one test again: make test-engines ENGINES=$name TEST=\"-v -run '^TestName\$/^case\$' ./its/package\"" >&2
done
exit 1
