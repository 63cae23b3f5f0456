#!/usr/bin/env bash
# bench.sh [--quick] [--part all|drain|steady|pinned] [--most SECONDS]: penstock's client for Python on one PostgreSQL:
# the one that PENSTOCK_TEST_POSTGRES names, or a private one that waits for the disk at every commit. Prints one JSON line. --most limits the time of --part drain.
set -euo pipefail
cd "$(dirname "$0")"
root=$(cd ../../.. && pwd)
if [[ -z ${PENSTOCK_TEST_POSTGRES-} ]]; then
	(cd "$root" && go build -o bin/penstock ./cmd/penstock && go build -o bin/withservers ./internal/test/testserver/withservers)
	exec "$root/bin/withservers" -durable -only postgres "$PWD/bench.sh" "$@"
fi
export PENSTOCK_BIN=${PENSTOCK_BIN:-$root/bin/penstock}
tools=('psycopg[binary]==3.2.*')
if [[ $(cat .venv/installed 2>/dev/null) != "${tools[*]}" ]]; then
	rm -rf .venv
	"${PYTHON:-python3}" -m venv .venv
	.venv/bin/pip install --quiet --no-compile --disable-pip-version-check "${tools[@]}"
	echo "${tools[*]}" > .venv/installed
fi
PYTHONPATH=$root/clients/python/src exec .venv/bin/python bench.py "$@"
