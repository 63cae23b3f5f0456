#!/usr/bin/env bash
# conformance.sh [--build]: what clients/conformance asks of each language.
set -euo pipefail
cd "$(dirname "$0")"

if [[ ${1-} == --build ]]; then
	exec >&2
	command -v npm >/dev/null || { echo 'Node.js and npm are not here'; exit 77; }
	[[ node_modules/.package-lock.json -nt package-lock.json ]] || npm ci --silent
	exec node build.mjs
fi
exec node dist/conformance.js
