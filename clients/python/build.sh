#!/usr/bin/env bash
# Builds the wheel and the sdist into dist/, with what `penstock migrate --sql` prints in them. With the same sources they are the same bytes.
set -euo pipefail
cd "$(dirname "$0")"
penstock=${PENSTOCK_BIN:-../../bin/penstock}
python=${PYTHON:-python3}

"$penstock" migrate --sql > src/penstock/django/schema.sql
rm -rf dist
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-1577836800} "$python" -m build --no-isolation --outdir dist . > /dev/null
