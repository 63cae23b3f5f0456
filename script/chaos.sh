#!/usr/bin/env bash
# chaos.sh [chaos flags]: everything that goes wrong in production, on private
# servers, with a checker that knows every commit. Flags: bin/chaos -help
set -euo pipefail
cd "$(dirname "$0")/.."

mkdir -p bin
go build -o bin/withservers ./internal/testserver/withservers
go build -o bin/chaos ./internal/lab/chaos
mapfile -t missing < <(PENSTOCK_TEST_POSTGRES= PENSTOCK_TEST_RABBITMQ= bin/withservers -missing)
((${#missing[@]} == 0)) || script/apt-install.sh "${missing[@]}"
script/extras.sh
exec bin/chaos -penstock bin/penstock "$@"
