#!/usr/bin/env bash
# test.sh [go test arguments]: runs the tests on real servers and says what happens: a line for
# each package as it ends, then how long it took, the seed, and how to repeat one test. The servers
# are those that the environment names (internal/test/testserver), else private ones that live as
# long as the run. With arguments it is `go test` with these servers.
set -euo pipefail
cd "$(dirname "$0")/.."

if [[ " $* " == *" -race "* ]]; then
	export CGO_ENABLED=1
	command -v "$(go env CC)" >/dev/null || script/apt-install.sh gcc libc6-dev # the race detector is linked with a C compiler
fi
script/install-servers.sh || {
	[[ ! ${CI:-} ]] || exit 1
	echo 'running what needs no server; with the servers above installed, make test runs everything'
	export PENSTOCK_TEST_SERVERS=none
}

export PENSTOCK_TEST_DATA="${PENSTOCK_TEST_DATA-$(script/memory.sh)}"
export PENSTOCK_SEED=${PENSTOCK_SEED:-$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')}

# -count=1: a result from the cache says nothing about the servers of today. -vet=off: `make
# lint` runs all of it. The deadline only ends what hangs.
test=(-count=1 -vet=off -timeout "${TEST_TIMEOUT:-75m}")
if (($#)); then
	exec bin/withservers -- go test "${test[@]}" "$@"
fi

# Much of a test's time is waiting, for a lease that ends, say: more tests run at a time than
# there are processors, and the packages that take longest begin first. With twice as many
# packages as well, a slow machine reached the limits of the program (a second to complete a
# name, two to reach a broker).
processors=$(getconf _NPROCESSORS_ONLN)
status=0
bin/withservers -- go run gotest.tools/gotestsum@v1.13.0 --format pkgname-and-test-fails --format-icons text --format-hide-empty-pkg --hide-summary skipped,output -- \
	"${test[@]}" -p "$processors" -parallel $((2 * processors)) \
	./store/postgres ./store/portable ./cmd/penstock/systemtest ./clients/conformance ./store/mysql ./cmd/penstock/internal/console ./cmd/penstock ./sink/rabbitmq ./lab/measure ./sink/kafka ./store/sqlite ./lab/bench ./sink/webhook ./... ./lab/... || status=$?
printf 'make test took %d min %d s with PENSTOCK_SEED=%s and ended with %d\n' $((SECONDS / 60)) $((SECONDS % 60)) "$PENSTOCK_SEED" $status
printf 'one test again: PENSTOCK_SEED=%s make test TEST="-run '"'^TestName\$/^case\$'"' ./its/package"\n' "$PENSTOCK_SEED"
exit $status
