#!/usr/bin/env bash
# test.sh [--fast] [vitest arguments]: tests the TypeScript client on the server that PENSTOCK_TEST_POSTGRES names, or a
# private one. --fast leaves out tests that need more packages than the client: Prisma, and the packed tarball.
set -euo pipefail
cd "$(dirname "$0")"
root=$(cd ../.. && pwd)

if [[ -z ${PENSTOCK_TEST_POSTGRES-} ]]; then
	(cd "$root" && go build -o bin/penstock ./cmd/penstock && go build -o bin/withservers ./internal/test/testserver/withservers)
	exec "$root/bin/withservers" -only postgres "$PWD/test.sh" "$@"
fi
fast=
[[ ${1-} != --fast ]] || { fast=1 && shift; }
[[ node_modules/.package-lock.json -nt package-lock.json ]] || npm ci --silent
node build.mjs
npx tsc -p tsconfig.test.json
node test/readme.mjs > test/readme.generated.ts
npx tsc --strict --noEmit --skipLibCheck --target es2023 --lib es2023,es2024.string --module nodenext --types node test/readme.generated.ts
npx vitest run "$@"
[[ -n $fast || -n $* ]] || for more in test/*/test.sh; do "$more"; done
