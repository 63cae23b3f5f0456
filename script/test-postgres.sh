#!/usr/bin/env bash
# test-postgres.sh VERSION...: runs the tests of store/postgres on each of these
# PostgreSQL versions (14 to 18), and goes on to the next one after a failure.
set -euo pipefail
cd "$(dirname "$0")/.."

mkdir -p bin
go build -o bin/withservers ./internal/test/testserver/withservers
unset PENSTOCK_TEST_POSTGRES # the server is the point
export PENSTOCK_TEST_DATA="${PENSTOCK_TEST_DATA-$(script/memory.sh)}"
failed=()
for version in "$@"; do
	bin=$(script/postgres-version.sh "$version")
	"$bin/postgres" --version
	PENSTOCK_TEST_PG_BIN=$bin bin/withservers -only postgres -- \
		go test -count=1 -timeout "${TEST_TIMEOUT:-40m}" ./store/postgres/... || failed+=("$version")
done
if ((${#failed[@]})); then
	echo "FAIL on PostgreSQL ${failed[*]}" >&2
	exit 1
fi
