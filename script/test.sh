#!/usr/bin/env bash
# test.sh [go test arguments]: runs the tests (all of them unless told
# otherwise) on real servers: those that PENSTOCK_TEST_POSTGRES and
# PENSTOCK_TEST_RABBITMQ name, else private ones that live as long as the run.
# As root on Debian it installs what is missing for that.
set -euo pipefail
cd "$(dirname "$0")/.."

if [[ " $* " == *" -race "* ]]; then
	export CGO_ENABLED=1
	command -v "$(go env CC)" >/dev/null || script/apt-install.sh gcc libc6-dev # the race detector is linked with a C compiler
fi
script/install-servers.sh

export PENSTOCK_TEST_DATA="${PENSTOCK_TEST_DATA-$(script/memory.sh)}"

# -count=1: a result from the cache says nothing about the servers of today. -vet=off: `make
# lint` runs all of it. The time is for the package that takes longest, on a machine a third
# as fast as two quiet cores.
#
# Much of a test's time is waiting, for a lease that ends, say: more packages and tests run at
# a time than there are processors, and those that take longest begin first.
processors=$(getconf _NPROCESSORS_ONLN)
(($#)) || set -- -p $((processors + 1)) -parallel $((2 * processors)) ./store/postgres ./systemtest ./clients/conformance ./store/mysql ./store/portable ./store/sqlite ./...
exec bin/withservers -- go test -count=1 -vet=off -timeout "${TEST_TIMEOUT:-40m}" "$@"
