#!/usr/bin/env bash
# soak.sh [go test arguments]: test.sh with what is about time or chance: walks and loads in their
# long form, PENSTOCK_ROUNDS (1) times as long, each suite under all conditions, chaos, clusters.
set -euo pipefail
export PENSTOCK_ROUNDS=${PENSTOCK_ROUNDS:-1} TEST_TIMEOUT=${TEST_TIMEOUT:-2h}
test=$(dirname "$0")/test
if (($#)) || [[ ${CI:-} || $EUID -ne 0 ]]; then
	exec "$test.sh" "$@"
fi
status=0
"$test.sh" || status=$?
env -u PENSTOCK_ROUNDS "$test-engines.sh" || status=$?
exit $status
