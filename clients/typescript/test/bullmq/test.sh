#!/usr/bin/env bash
# The program of docs/migrate/bullmq.md moves jobs from a private Redis, with the packed client. It is killed once between the two systems.
set -euo pipefail
cd "$(dirname "$0")"
here=$PWD
redis_server=$(command -v redis-server || command -v valkey-server) || { echo 'bullmq: skipped, there is no redis-server: install it, or valkey'; [[ ${CI-} != true ]]; exit; }
[[ node_modules/.package-lock.json -nt package-lock.json ]] || npm ci --silent
dir=$(mktemp -d)
redis=
database=penstock_bullmq_$$
end() {
	[[ ! $redis ]] || { kill "$redis" 2>/dev/null && wait "$redis" || true; }
	psql postgres "drop database if exists $database with (force)" || true
	rm -rf "$dir"
}
psql() { # DATABASE STATEMENT: prints the first column
	(cd "$here" && node --input-type=module -e 'import pg from "pg"; const u = new URL(process.env.PENSTOCK_TEST_POSTGRES); u.pathname = process.argv[1]; const c = new pg.Client(u.href)
		await c.connect(); const r = await c.query({ text: process.argv[2], rowMode: "array" }); for (const row of [r].flat().at(-1).rows) console.log(row[0]); await c.end()' "$1" "$2")
}
trap end EXIT
psql postgres "create database $database"
PENSTOCK_DATABASE_URL=$(node -p 'const u = new URL(process.env.PENSTOCK_TEST_POSTGRES); u.pathname = process.argv[1]; u.href' "$database")
port=$(node -p 'const s = require("node:net").createServer().listen(0, "127.0.0.1", () => { console.log(s.address().port); s.close() }); ""' | grep .)
export PENSTOCK_DATABASE_URL REDIS_URL=redis://127.0.0.1:$port
"$redis_server" --port "$port" --bind 127.0.0.1 --dir "$dir" --save '' >"$dir/redis.log" &
redis=$!
until (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do kill -0 $redis || { cat "$dir/redis.log"; exit 1; }; sleep 0.1; done
(cd ../.. && npm pack --silent --pack-destination "$dir" >/dev/null)
cp -r node_modules package.json "$dir"
mkdir -p "$dir/node_modules/@penstock/client" && tar -xzf "$dir"/penstock-client-*.tgz -C "$dir/node_modules/@penstock/client" --strip-components 1
"${PENSTOCK:-$here/../../../../bin/penstock}" migrate >/dev/null
guide=$here/../../../../docs/migrate/bullmq.md
block() { node -e 'const found = [...require("node:fs").readFileSync(process.argv[1], "utf8").matchAll(/```(\w+)\n(.*?)```/gs)].filter(b => b[1] === process.argv[2]); console.log(found[process.argv[3]][2])' "$guide" "$@"; }
psql "$database" "$(block sql 0)" >/dev/null
cd "$dir"
block js 0 >move.mjs

# Five jobs, one that a worker runs once and fails, one of a scheduler, and a flow.
cat >fill.mjs <<'END'
import { FlowProducer, Queue, Worker } from 'bullmq'
const connection = { url: process.env.REDIS_URL }
const queue = new Queue('emails', { connection })
await queue.add('fails', { n: 1 }, { attempts: 5, backoff: 3_600_000 })
const worker = new Worker('emails', async () => { throw new Error('no') }, { connection })
await new Promise(failed => worker.once('failed', failed))
await worker.close()
await queue.add('plain', { n: 2 })
await queue.add('urgent', { n: 3 }, { priority: 1 })
await queue.add('later', { n: 4 }, { delay: 3_600_000, attempts: 3 })
await queue.add('late', { n: 5 }, { priority: 2_000 })
await queue.upsertJobScheduler('digest', { pattern: '0 4 * * *' }, { name: 'digest' })
const flows = new FlowProducer({ connection })
await flows.add({ name: 'parent', queueName: 'emails', children: [{ name: 'child', queueName: 'emails' }] })
await flows.close()
await queue.close()
END
node fill.mjs
sed 's/await job.remove()/process.exit(1)/' move.mjs >killed.mjs
node killed.mjs emails && { echo 'it was not killed'; exit 1; }
said=$(node move.mjs emails)
[[ $said == '5 moved, 2 left, 0 active, 0 failed' ]] || { echo "it says $said"; exit 1; }
found=$(psql "$database" "select string_agg(concat_ws(' ', headers ->> 'penstock-kind', convert_from(payload, 'UTF8')::jsonb ->> 'n', priority, headers ->> 'penstock-max-attempts', later), ', ' order by 1) from (
	select headers, payload, priority, null as later from penstock.emails union all select headers, payload, priority, ceil(extract(epoch from due - now()) / 3600)::text from penstock._scheduled) j")
[[ $found == *'fails 1 0 4,'* && $found == *'later 4 0 3 1'* && $found == *'late 5 15 1'* && $found == *'plain 2 0 1'* && $found == *'urgent 3 1 1'* && $found != *parent* && $(tr -cd , <<<"$found") == ,,,, ]] || { echo "the jobs are $found"; exit 1; }
echo "bullmq: ok"
