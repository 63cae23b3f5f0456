#!/usr/bin/env bash
# bench.sh [--quick] [--part all|drain|steady|pinned] [--only QUEUE] [--most SECONDS]: penstock's client for TypeScript, graphile-worker and pg-boss, in one run on one PostgreSQL:
# the one that PENSTOCK_TEST_POSTGRES names, or a private one that waits for the disk at every commit. Prints one JSON line. --most limits the time of --part drain.
set -euo pipefail
cd "$(dirname "$0")"
root=$(cd ../../.. && pwd)
if [[ -z ${PENSTOCK_TEST_POSTGRES-} ]]; then
	(cd "$root" && go build -o bin/penstock ./cmd/penstock && go build -o bin/withservers ./internal/test/testserver/withservers)
	exec "$root/bin/withservers" -durable -only postgres "$PWD/bench.sh" "$@"
fi
../../typescript/conformance.sh --build
[[ node_modules/.package-lock.json -nt package-lock.json ]] || npm ci --silent
# graphile-worker and pg-boss need Node.js 22.18. If the one that is installed is older, npm lends one to this command.
node=(node)
node -e 'const [major, minor] = process.versions.node.split("."); process.exit(major * 100 + +minor < 2218 ? 1 : 0)' || node=(npx --yes --package node@22 node)
exec "${node[@]}" bench.mjs "$@"
