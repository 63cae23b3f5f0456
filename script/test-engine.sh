#!/usr/bin/env bash
# test-engine.sh URL [go test arguments]: runs the portable profile's suites on a server that is there already, each test in a separate
# database, which is dropped afterwards. engine.txt and engine.json are the report, without passwords: which server, what passed, what failed.
set -uo pipefail
cd "$(dirname "$0")/.."
url=$1
shift
# PENSTOCK_TEST_COPIES=none: no database is made as a copy of another, which only PostgreSQL can.
export PENSTOCK_TEST_POSTGRES="$url" PENSTOCK_TEST_COPIES=none CI=true
go build -o bin/enginereport ./internal/test/testserver/enginereport || exit
(($#)) || set -- ./store/portable
go test -count=1 -vet=off -json -timeout "${TEST_TIMEOUT:-60m}" "$@" 2>&1 | bin/enginereport
