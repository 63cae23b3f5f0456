#!/usr/bin/env bash
# test.sh [go test arguments]: runs the tests (all of them unless told
# otherwise) on real servers: those that PENSTOCK_TEST_POSTGRES and
# PENSTOCK_TEST_RABBITMQ name, else private ones that live as long as the run.
# As root on Debian it installs what is missing for that.
set -euo pipefail
cd "$(dirname "$0")/.."

mkdir -p bin
go build -o bin/withservers ./internal/testserver/withservers

mapfile -t missing < <(bin/withservers -missing)
if [[ " $* " == *" -race "* ]] && ! command -v "$(go env CC)" >/dev/null; then
	missing+=(gcc libc6-dev) # the race detector is linked with a C compiler
fi
((${#missing[@]} == 0)) || script/apt-install.sh "${missing[@]}"
script/extras.sh

export PENSTOCK_TEST_DATA="${PENSTOCK_TEST_DATA-$(script/memory.sh)}"

# -count=1: a result from the cache says nothing about the servers of today. The time
# is for the package that takes longest, on a machine a third as fast as two quiet cores.
(($#)) || set -- ./...
exec bin/withservers -- go test -count=1 -timeout "${TEST_TIMEOUT:-40m}" "$@"
