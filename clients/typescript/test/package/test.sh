#!/usr/bin/env bash
# Packs the package twice, and uses the tarball as a user would: with the commands of the README, as an ES module, as CommonJS,
# and its types.
set -euo pipefail
cd "$(dirname "$0")/../.."
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

for n in 1 2; do
	mkdir "$dir/$n"
	npm pack --silent --pack-destination "$dir/$n" >/dev/null
done
cmp "$dir"/[12]/penstock-client-*.tgz
tarball=$(echo "$dir"/1/penstock-client-*.tgz)
tar -tzf "$tarball" >"$dir/list"
for file in LICENSE README.md dist/index.js dist/index.d.ts dist/cjs/index.js dist/cjs/index.d.ts dist/testing.d.ts dist/nestjs.d.ts dist/cjs/nestjs.js; do
	grep -qx "package/$file" "$dir/list" || { echo "the package has no $file"; exit 1; }
done

mkdir "$dir/app"
readme=$PWD/README.md
export PATH="${PENSTOCK:+$(dirname "$PENSTOCK"):}$PWD/../../bin:$PATH"
types=$PWD
cd "$dir/app"
sed -n '/^```sh$/,/^```$/p' "$readme" | sed '1d;$d' | sed -e "s|npm install ./penstock-client-[0-9.]*.tgz|npm install --silent --no-audit --no-fund $tarball|" \
	-e 's| ./penstock-server-[0-9a-z.-]*.tgz||g' >"$dir/readme.sh" # make test-release installs these
database=penstock_ts_$$
admin() { # with the client that the README installs
	node -e 'const { Client } = require("pg"); const c = new Client(process.env.PENSTOCK_TEST_POSTGRES); c.connect().then(() => c.query(process.argv[1])).then(() => c.end())' "$1"
}
PENSTOCK_DATABASE_URL=$(node -p 'const u = new URL(process.env.PENSTOCK_TEST_POSTGRES); u.pathname = process.argv[1]; u.href' "$database")
export PENSTOCK_DATABASE_URL
bash -ec "$(head -1 "$dir/readme.sh")"
mkdir -p node_modules/.bin # pg has no command, and @penstock/server is not here
ln -s "$(command -v penstock)" node_modules/.bin/penstock
admin "create database $database"
trap 'admin "drop database $database with (force)" || true; rm -rf "$dir"' EXIT
tail -n +2 "$dir/readme.sh" >"$dir/rest.sh"
bash -e "$dir/rest.sh" | tee "$dir/out"
grep -qxF "mail: { to: 'ann' }" "$dir/out"

cat >load.mjs <<'END'
import { Penstock, retry } from '@penstock/client'
import { runOne } from '@penstock/client/testing'
if (![Penstock, retry, runOne].every(f => typeof f === 'function')) throw new Error('an export is missing')
END
cat >load.cjs <<'END'
const { Penstock, retry } = require('@penstock/client')
const { runOne } = require('@penstock/client/testing')
if (![Penstock, retry, runOne].every(f => typeof f === 'function')) throw new Error('an export is missing')
END
node load.mjs
node load.cjs
# Types of the package alone, for both kinds of modules, with nothing left out.
cat >types.mts <<'END'
import { Penstock, type Job } from '@penstock/client'
import { runOne } from '@penstock/client/testing'
export const id: (job: Job) => bigint = job => job.id
export const made = new Penstock()
// @ts-expect-error there is no such option
new Penstock({ schemas: 'x' })
export { runOne }
END
cp types.mts types.cts
cp emails.mjs emails.mts # the README's first program
ln -s "$types/node_modules/@types" "$types/node_modules/undici-types" node_modules/
node "$types/node_modules/typescript/bin/tsc" --noEmit --strict --target es2023 --module nodenext --types node types.mts types.cts emails.mts
echo "package: ok"
