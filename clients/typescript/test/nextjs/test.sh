#!/usr/bin/env bash
# docs/guides/nextjs.md, followed from an empty folder: its commands and its files, with the packed client and a real Next.js.
set -euo pipefail
cd "$(dirname "$0")"
here=$PWD
[[ node_modules/.package-lock.json -nt package-lock.json ]] || npm ci --silent
dir=$(mktemp -d)
running=
database=penstock_next_$$
query() { # DATABASE STATEMENT: prints the first column
	(cd "$here" && node -e 'const { Client } = require("pg"); const u = new URL(process.env.PENSTOCK_TEST_POSTGRES); u.pathname = process.argv[1]; const c = new Client(u.href)
		c.connect().then(() => c.query({ text: process.argv[2], rowMode: "array" })).then(r => { r.rows.forEach(row => console.log(row[0])); return c.end() })' "$1" "$2")
}
end() {
	for pid in $running; do kill "$pid" 2>/dev/null && wait "$pid" || true; done
	query postgres "drop database if exists $database with (force)" || true
	rm -rf "$dir"
}
trap end EXIT
trap 'echo "line $LINENO failed"; tail -n 20 "$dir"/shop/*.log || true' ERR
query postgres "create database $database"
PENSTOCK_DATABASE_URL=$(node -p 'const u = new URL(process.env.PENSTOCK_TEST_POSTGRES); u.pathname = process.argv[1]; u.href' "$database")
export PENSTOCK_DATABASE_URL NEXT_TELEMETRY_DISABLED=1

# The project, with the versions of the lock file, and the client as npm unpacks it.
(cd ../.. && npm pack --silent --pack-destination "$dir" >/dev/null)
mkdir "$dir/shop" && cd "$dir/shop"
cp "$here/package.json" . && cp -r "$here/node_modules" .
mkdir -p node_modules/@penstock/client && tar -xzf "$dir"/penstock-client-*.tgz -C node_modules/@penstock/client --strip-components 1

# Each ts block is the file that its first line names; the sh blocks are numbered.
node - "$here/../../../../docs/guides/nextjs.md" <<'END'
const fs = require('node:fs'), path = require('node:path')
let commands = 0
for (const [, language, code] of fs.readFileSync(process.argv[2], 'utf8').matchAll(/```(sh|ts)\n(.*?)```/gs)) {
  const name = language === 'sh' ? `commands.${++commands}` : /^\/\/ (\S+)\n/.exec(code)[1]
  fs.mkdirSync(path.dirname(name), { recursive: true })
  fs.writeFileSync(name, code)
}
if (commands !== 3) throw new Error('the guide has other commands')
END
PATH=$(dirname "${PENSTOCK:-$here/../../../../bin/penstock}"):$PATH
grep -v '^npm install' commands.1 | bash -eu

npx next build
npx tsc --noEmit --strict --skipLibCheck --target es2022 --module esnext --moduleResolution bundler worker.mts
port=$(node -p 'const s = require("node:net").createServer().listen(0, "127.0.0.1", () => { console.log(s.address().port); s.close() }); ""' | grep .)
node node_modules/next/dist/bin/next start -H 127.0.0.1 -p "$port" >next.log 2>&1 &
running=$!
head -1 commands.2 | bash -eu
tail -n +2 commands.2 >worker.sh
bash -euc "exec $(cat worker.sh)" >worker.log 2>&1 &
running="$running $!"
waits() { # FILE TEXT: until the file has the text
	for ((n = 0; n < 600; n++)); do
		grep -qF "$2" "$1" && return
		sleep 0.1
	done
	echo "$1 has no '$2':"; cat "$1"; exit 1
}
waits next.log Ready
order=$(sed "s/localhost:3000/127.0.0.1:$port/" commands.3 | bash -eu)
[[ $order == '{"order":1}' ]] || { echo "the order is $order"; cat next.log; exit 1; }
waits worker.log 'mail to ann@example.org about order 1'
wrong=$(curl -s -w ' %{http_code}' "127.0.0.1:$port/orders" --json '{"email":"ann","total":10}')
[[ $wrong == *'payload does not fit the schema of task confirm: to: '*' 400' ]] || { echo "the wrong order is $wrong"; exit 1; }
[[ $(query "$database" 'select count(*) from orders') == 1 ]] || { echo 'the wrong order was written'; exit 1; }
query "$database" "select penstock.advance_queue('emails', '1 day')" >/dev/null
waits worker.log 'the digest of today'
kill "${running#* }" # SIGTERM: it stops, and ends with 0
wait "${running#* }"
running=${running% *}
echo "nextjs: ok"
