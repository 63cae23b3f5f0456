#!/usr/bin/env bash
# test-clients.sh [go test arguments]: runs the suites against the clients in clients/, those that PENSTOCK_CLIENTS names
# or all, and prints a JSON line for each. A client's own script installs what it is missing.
set -euo pipefail
cd "$(dirname "$0")/.."
script/install-servers.sh
export PENSTOCK_TEST_DATA="${PENSTOCK_TEST_DATA-$(script/memory.sh)}"
withservers=$PWD/bin/withservers
export PENSTOCK_ROUNDS=${PENSTOCK_ROUNDS:-1} # all of the suites, of which make test has a part that the seed draws
cd clients/conformance # without a package named, what the test prints is shown
exec "$withservers" -only postgres -- go test -count=1 -vet=off -timeout "${TEST_TIMEOUT:-40m}" "$@"
