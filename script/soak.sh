#!/usr/bin/env bash
# soak.sh [go test arguments]: test.sh with random walks, loads and repetitions in their
# long form, PENSTOCK_ROUNDS (1) times as long, and with each case under all conditions.
set -euo pipefail
export PENSTOCK_ROUNDS=${PENSTOCK_ROUNDS:-1} TEST_TIMEOUT=${TEST_TIMEOUT:-2h}
exec "$(dirname "$0")/test.sh" "$@"
