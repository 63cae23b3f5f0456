#!/usr/bin/env bash
# test-topologies.sh [go test arguments]: runs the long form of the tests of topologies
# that people run: poolers, clusters of brokers of which one after the other is killed, full
# and blocked brokers, an asynchronous standby that is promoted. Those that are about
# PostgreSQL run on each of VERSIONS (14 to 18), and a failure does not stop the others.
# What is not installed is fetched: PgBouncer (Debian), Apache Kafka (Maven, needs Java),
# PostgreSQL (npm; it has no pg_basebackup, so what needs a standby runs on the installed version only).
set -euo pipefail
cd "$(dirname "$0")/.."

script/install-servers.sh

PENSTOCK_TEST_PGBOUNCER=${PENSTOCK_TEST_PGBOUNCER-$(script/pgbouncer.sh)}
PENSTOCK_TEST_KAFKA_JARS=${PENSTOCK_TEST_KAFKA_JARS-$(script/kafka-jars.sh)}
export PENSTOCK_TEST_PGBOUNCER PENSTOCK_TEST_KAFKA_JARS
export PENSTOCK_TEST_DATA="${PENSTOCK_TEST_DATA-$(script/memory.sh)}"
export PENSTOCK_TOPOLOGIES=1 CI=true
unset PENSTOCK_TEST_POSTGRES # the version is the point

run() {
	bin/withservers -- go test -count=1 -timeout "${TEST_TIMEOUT:-90m}" -v ./cmd/penstock/systemtest "$@"
}
(($# == 0)) || {
	run "$@"
	exit
}
failed=()
run -run 'TestTopology(RabbitMQ|FullStream|NATS|Kafka|LostWAL)' || failed+=('brokers and standby')
for version in ${VERSIONS:-14 15 16 17 18}; do
	PENSTOCK_TEST_PG_BIN=$(script/postgres-version.sh "$version")
	export PENSTOCK_TEST_PG_BIN
	"$PENSTOCK_TEST_PG_BIN/postgres" --version
	run -run 'TestTopology' -skip 'TestTopology(RabbitMQ|FullStream|NATS|Kafka|LostWAL)' || failed+=("PostgreSQL $version")
done
if ((${#failed[@]})); then
	printf 'FAIL: %s\n' "${failed[@]}" >&2
	exit 1
fi
