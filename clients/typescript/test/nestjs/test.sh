#!/usr/bin/env bash
# NestJS with decorators and their metadata, which only tsc writes, and with the built package. The README's module is part of it.
set -euo pipefail
cd "$(dirname "$0")/../.."
rm -rf test/nestjs/generated
mkdir test/nestjs/generated
node test/readme.mjs nestjs >test/nestjs/generated/readme.ts
cp test/nestjs/*.test.ts test/nestjs/generated
npx tsc -p test/nestjs
npx vitest run --config test/nestjs/vitest.config.ts
