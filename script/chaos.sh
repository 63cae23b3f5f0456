#!/usr/bin/env bash
# chaos.sh [chaos flags]: everything that goes wrong in production, on private
# servers, with a checker that knows every commit. Flags: bin/chaos -help
set -euo pipefail
cd "$(dirname "$0")/.."

PENSTOCK_TEST_POSTGRES= PENSTOCK_TEST_RABBITMQ= script/install-servers.sh # it starts its own
go build -o bin/chaos ./lab/chaos
exec bin/chaos -penstock bin/penstock "$@"
