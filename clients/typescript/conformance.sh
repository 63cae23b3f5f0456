#!/usr/bin/env bash
# conformance.sh [--build]: the program that clients/conformance requires of each language.
set -euo pipefail
cd "$(dirname "$0")"

# The sources of dist and its output: nothing is compiled again if nothing has changed.
state() { find src dist package-lock.json build.mjs tsconfig.json tsconfig.cjs.json -type f ! -name built-from -print0 | sort -z | xargs -0 sha256sum; }
stamp=node_modules/built-from

if [[ ${1-} == --build ]]; then
	exec >&2
	command -v npm >/dev/null || { echo 'Node.js and npm are not here'; exit 77; }
	[[ node_modules/.package-lock.json -nt package-lock.json ]] || npm ci --silent
	mkdir -p dist
	[[ ! -f $stamp || $(<"$stamp") != "$(state)" ]] || exit 0
	node build.mjs
	state >"$stamp"
	exit
fi
exec node dist/conformance.js
