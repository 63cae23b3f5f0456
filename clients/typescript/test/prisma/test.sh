#!/usr/bin/env bash
# Prisma with a driver adapter, which needs a generated client.
set -euo pipefail
cd "$(dirname "$0")"
[[ node_modules/.package-lock.json -nt package-lock.json ]] || npm ci --silent --ignore-scripts
# Generating the client needs none of the engines that Prisma would download.
[[ generated -nt schema.prisma ]] || PRISMA_SCHEMA_ENGINE_BINARY=/bin/true node node_modules/prisma/build/index.js generate >/dev/null
cd ../..
npx tsc -p test/prisma
npx vitest run --root . --config test/prisma/vitest.config.ts
