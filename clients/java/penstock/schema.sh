#!/usr/bin/env bash
# schema.sh FOLDER: writes schema.sql for the jar, which is what `penstock migrate --sql` of the same sources prints. PENSTOCK_BIN is such a
# program; without it Go builds one.
set -euo pipefail
cd "$(dirname "$0")/../../.."
mkdir -p "$1"
if [[ ${PENSTOCK_BIN-} ]]; then
	"$PENSTOCK_BIN" migrate --sql
else
	CGO_ENABLED=0 go run -trimpath ./cmd/penstock migrate --sql
fi > "$1/schema.sql"
