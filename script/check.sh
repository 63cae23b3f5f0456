#!/usr/bin/env bash
# check.sh [go test arguments]: builds, lints, and runs what needs no server: unit tests,
# and the suites and models on SQLite. What runs the program as a whole stays
# out. A package whose outcome cannot differ from that of the last run is not run again.
set -euo pipefail
cd "$(dirname "$0")/.."

unset PENSTOCK_TEST_POSTGRES PENSTOCK_TEST_RABBITMQ PENSTOCK_TEST_MARIADB PENSTOCK_TEST_KAFKA PENSTOCK_TEST_KAFKA_JARS
export PENSTOCK_TEST_SERVERS=none
# Databases in files wait for the disk with each commit.
memory=$(script/memory.sh)
if [[ $memory && ! ${TMPDIR:-} ]]; then
	export GOTMPDIR=${GOTMPDIR:-/tmp} TMPDIR
	TMPDIR=$(mktemp -d "$memory/tmp.XXXXXX")
	trap 'rm -rf "$TMPDIR"' EXIT
fi
go build ./... ./lab/...
script/lint.sh
mapfile -t packages < <(go list ./... ./lab/... | grep -vE '/systemtest|/internal/test/testserver')
# -vet=off: lint.sh has just run all of it. More packages and tests at a time than processors,
# because some wait; those that take longest begin first.
processors=$(getconf _NPROCESSORS_ONLN)
go test -vet=off -p $((2 * processors)) -parallel $((2 * processors)) -timeout "${TEST_TIMEOUT:-20m}" "$@" \
	./store/sqlite ./sink/kafka ./cmd/penstock ./sink/nats "${packages[@]}"
