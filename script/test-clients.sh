#!/usr/bin/env bash
# test-clients.sh [go test arguments]: runs the suites against the clients in clients/, those that PENSTOCK_CLIENTS names
# or all, and prints a JSON line for each. Without arguments each client's own tests come first, which make test leaves to this: pytest,
# vitest, JUnit, two builds that are compared, the README's commands with the package. A client's own scripts install what they are missing.
set -euo pipefail
cd "$(dirname "$0")/.."
script/install-servers.sh
export PENSTOCK_TEST_DATA="${PENSTOCK_TEST_DATA-$(script/memory.sh)}"
withservers=$PWD/bin/withservers
export PENSTOCK_ROUNDS=${PENSTOCK_ROUNDS:-1} # all of the suites, of which make test has what a client can get wrong
if ((!$#)); then
	go build -o bin/penstock ./cmd/penstock
	for client in ${PENSTOCK_CLIENTS:-$(cd clients && ls)}; do
		# A language without its toolchain here is left out, and said so.
		if [[ -x clients/$client/test.sh ]] && "clients/$client/conformance.sh" --build; then
			"$withservers" -only postgres -- "clients/$client/test.sh"
		fi
	done
fi
cd clients/conformance # without a package named, what the test prints is shown
exec "$withservers" -only postgres -- go test -count=1 -vet=off -timeout "${TEST_TIMEOUT:-40m}" "$@"
