// The program by which the suites in Go drive this client: clients/conformance/README.md. It is not part of the
// package.
import { createInterface } from 'node:readline'
import { createRequire } from 'node:module'
import { drizzle as drizzlePg } from 'drizzle-orm/node-postgres'
import { drizzle as drizzlePostgres } from 'drizzle-orm/postgres-js'
import { sql as drizzleSql } from 'drizzle-orm'
import knex from 'knex'
import { CompiledQuery, Kysely, PostgresDialect } from 'kysely'
import pg from 'pg'
import postgres from 'postgres'
import { FieldError, Penstock, cancelled, deadLetter, retry, snooze, sqlState, step, type Job, type Message, type NewJob, type Handler, type Queryable, type TxHandler, type Verdict } from './index.js'

interface Kind {
  /** Runs fn in a transaction on a separate connection, which is closed afterwards. */
  begin(url: string, fn: (tx: any) => Promise<void>): Promise<void>
  /** Runs a statement of the caller's with the library alone. */
  rows(tx: any, sql: string): Promise<object[]>
}

const closing = async (run: () => Promise<unknown>, end: () => Promise<unknown>) => {
  try {
    await run()
  } finally {
    await end()
  }
}
const newPostgres = (url: string) => postgres(url, { max: 1, onnotice: () => {} })
const newPool = (url: string) => new pg.Pool({ connectionString: url, max: 1 }).on('error', () => {})

const kinds: Record<string, Kind> = {
  pg: {
    async begin(url, fn) {
      const client = new pg.Client(url)
      client.on('error', () => {})
      await client.connect()
      await closing(async () => {
        try {
          await client.query('begin')
          await fn(client)
          await client.query('commit')
        } catch (err) {
          await client.query('rollback')
          throw err
        }
      }, () => client.end())
    },
    rows: async (tx, sql) => (await tx.query(sql)).rows,
  },
  'postgres.js': {
    async begin(url, fn) {
      const sql = newPostgres(url)
      await closing(() => sql.begin(fn), () => sql.end())
    },
    rows: async (tx, sql) => tx.unsafe(sql),
  },
  knex: {
    async begin(url, fn) {
      const db = knex({ client: 'pg', connection: url, pool: { min: 0, max: 1 } })
      await closing(() => db.transaction(fn), () => db.destroy())
    },
    rows: async (tx, sql) => (await tx.raw(sql)).rows,
  },
  kysely: {
    async begin(url, fn) {
      const db = new Kysely<any>({ dialect: new PostgresDialect({ pool: newPool(url) }) })
      await closing(() => db.transaction().execute(fn), () => db.destroy())
    },
    rows: async (tx, sql) => (await tx.executeQuery(CompiledQuery.raw(sql))).rows,
  },
  drizzle: {
    async begin(url, fn) {
      const pool = newPool(url)
      await closing(() => drizzlePg(pool).transaction(fn), () => pool.end())
    },
    rows: async (tx, sql) => (await tx.execute(drizzleSql.raw(sql))).rows,
  },
  'drizzle-postgres.js': {
    async begin(url, fn) {
      const sql = newPostgres(url)
      await closing(() => drizzlePostgres(sql).transaction(fn), () => sql.end())
    },
    rows: async (tx, sql) => tx.execute(drizzleSql.raw(sql)),
  },
}

type Transaction = { penstock: Penstock, kind: string, tx: any, last: Promise<unknown>, end?: (commit: boolean) => Promise<void> }
type Call = { job: Job, end: (verdict: () => Verdict) => void }

const databases = new Map<string, { url: string, pool: pg.Pool, penstock: Penstock }>()
const transactions = new Map<string, Transaction>()
const workers = new Map<string, () => Promise<void>>()
const calls = new Map<string, Call>()
let names = 0
const name = () => String(++names)
const write = (line: object) => void process.stdout.write(JSON.stringify(line) + '\n')

const found = <T>(map: Map<string, T>, key: string): T => {
  const value = map.get(key)
  if (value === undefined) throw new Error(`there is no ${key}`)
  return value
}
const payloadOf = (p: any) => Buffer.from(p.payload ?? '', 'base64')
const messageOf = (m: any): Message => ({ ...m, payload: payloadOf(m) })
const newJobOf = ({ group_key, not_before, dedup_key, unique_key, on_conflict, debounce_max_ms, max_attempts, timeout_ms, holds, waits_for, on_dead, ...j }: any): NewJob => ({
  ...j, payload: payloadOf(j), groupKey: group_key, notBefore: not_before, dedupKey: dedup_key, uniqueKey: unique_key, onConflict: on_conflict,
  debounceMax: debounce_max_ms, maxAttempts: max_attempts, timeout: timeout_ms, holds: holds && BigInt(holds), waitsFor: waits_for?.map(BigInt), onDead: on_dead,
})
const leasesOf = (leases: string[] | null | undefined) => (leases ?? []).map(BigInt)
const toJSON = (j: Job) => ({
  id: `${j.id}`, kind: j.kind, key: j.key, group_key: j.groupKey, priority: j.priority, attempt: j.attempt, created_at: j.createdAt.toISOString(), headers: j.headers,
  payload: j.payload.toString('base64'), report: j.report === undefined ? '' : JSON.stringify(j.report), lease: `${j.lease}`, lease_until: j.leaseUntil.toISOString(),
})
const text = (v: unknown) => v == null ? null : Buffer.isBuffer(v) ? `\\x${v.toString('hex')}` : v instanceof Date ? v.toISOString() : typeof v === 'object' ? JSON.stringify(v) : String(v)
const queueOf = (r: any) => {
  const db = found(databases, r.db)
  return db.penstock.queue(db.pool, r.queue)
}

const ops: Record<string, (r: any) => unknown> = {
  hello: () => ({ language: 'typescript', version: (createRequire(import.meta.url)('@penstock/client/package.json') as { version: string }).version, kinds: Object.keys(kinds) }),
  async open({ url, schema }) {
    const pool = new pg.Pool({ connectionString: url, max: 30 }).on('error', () => {})
    const penstock = new Penstock(schema ? { schema } : {})
    try {
      await penstock.check(pool)
    } catch (err) {
      await pool.end()
      throw err
    }
    const db = name()
    databases.set(db, { url, pool, penstock })
    return { db }
  },
  async close({ db }) {
    const { pool } = found(databases, db)
    databases.delete(db)
    await pool.end()
    return null
  },
  begin({ db, kind }) {
    const { url, penstock } = found(databases, db)
    kind ??= 'pg'
    const rolledBack = new Error('rolled back')
    return new Promise((resolve, reject) => {
      let over: Promise<void>
      over = found(new Map(Object.entries(kinds)), kind).begin(url, tx => new Promise<void>((commit, rollback) => {
        const id = name()
        const end = (how: boolean) => {
          transactions.delete(id)
          how ? commit() : rollback(rolledBack)
          return over.catch(err => { if (err !== rolledBack) throw err })
        }
        transactions.set(id, { penstock, kind, tx, last: Promise.resolve(), end })
        resolve({ tx: id })
      }))
      over.catch(reject)
    })
  },
  commit: ({ tx }) => found(transactions, tx).end!(true).then(() => null),
  rollback: ({ tx }) => found(transactions, tx).end!(false).then(() => null),
  async execute({ tx: id, sql }) {
    const { kind, tx } = found(transactions, id)
    return (await kinds[kind]!.rows(tx, sql)).map(row => Object.values(row).map(text))
  },
  async publish({ tx, outbox, message }) {
    const t = found(transactions, tx)
    await t.penstock.publish(t.tx as Queryable, outbox, messageOf(message))
    return null
  },
  async publish_many({ tx, outbox, messages }) {
    const t = found(transactions, tx)
    await t.penstock.publishMany(t.tx as Queryable, outbox, messages.map(messageOf))
    return null
  },
  async enqueue({ tx, queue, job }) {
    const t = found(transactions, tx)
    const { id, deduplicated } = await t.penstock.enqueue(t.tx as Queryable, queue, newJobOf(job))
    return { id: `${id}`, deduplicated }
  },
  async enqueue_many({ tx, queue, jobs }) {
    const t = found(transactions, tx)
    return (await t.penstock.enqueueMany(t.tx as Queryable, queue, jobs.map(newJobOf))).map(({ id, deduplicated }) => ({ id: `${id}`, deduplicated }))
  },
  async barrier({ tx, queue }) {
    const t = found(transactions, tx)
    return `${await t.penstock.barrier(t.tx as Queryable, queue)}`
  },
  async seal({ tx, queue, barrier }) {
    const t = found(transactions, tx)
    await t.penstock.seal(t.tx as Queryable, queue, BigInt(barrier))
    return null
  },
  async publish_after({ tx, queue, waits_for, outbox, message, on_dead }) {
    const t = found(transactions, tx)
    return `${await t.penstock.publishAfter(t.tx as Queryable, queue, (waits_for ?? []).map(BigInt), outbox, messageOf(message), on_dead)}`
  },
  inbox_first({ tx, consumer, message_id }) {
    const t = found(transactions, tx)
    return t.penstock.inbox(consumer).first(t.tx as Queryable, message_id)
  },
  async claim(r) {
    const how = { lease: r.lease_ms ?? undefined, worker: r.worker ?? '', acks: r.acks ? leasesOf(r.acks) : undefined }
    const shares = new Map<string, number>()
    for (const group of r.groups ?? []) shares.set(group, (shares.get(group) ?? 0) + 1)
    const { jobs, acked, full } = await (shares.size ? queueOf(r).claimGroups(shares, how) : queueOf(r).claim({ n: r.n ?? undefined, groupKey: r.group_key ?? '', ...how }))
    return { jobs: jobs.map(toJSON), acked: acked.map(String), full }
  },
  ack: async r => (await queueOf(r).ack(leasesOf(r.leases))).map(String),
  extend: async r => (await queueOf(r).extend(leasesOf(r.leases), r.by_ms)).map(String),
  release: async r => (await queueOf(r).release(leasesOf(r.leases), r.after_ms ?? 0)).map(String),
  retry: async r => ({ dead: !await queueOf(r).retry(BigInt(r.lease), r.after_ms ?? undefined, r.error ?? '') }),
  dead_letter: r => queueOf(r).deadLetter(BigInt(r.lease), r.error ?? '').then(() => null),
  report: r => queueOf(r).report(BigInt(r.lease), JSON.parse(r.report)).then(() => null),
  async step({ call, name, result, tx }) {
    let ran = false
    const { job } = found(calls, call)
    const got = await step(job, name, () => {
      ran = true
      return result as string
    }, tx && found(transactions, tx).tx as Queryable)
    return { ran, result: got }
  },
  maintain: r => queueOf(r).maintain().then(() => null),
  work(r) {
    const { pool, penstock } = found(databases, r.db)
    const worker = name()
    const stop = new AbortController()
    const given = (value: any) => value ?? undefined
    const options = {
      concurrency: given(r.concurrency), batch: given(r.batch), lease: given(r.lease_ms), groupKey: given(r.group_key), groups: given(r.groups), allGroups: given(r.all_groups), drainTimeout: given(r.drain_ms),
      worker: given(r.worker_name), signal: stop.signal, logger: { warn: (message: string) => console.error(message) },
    }
    const ask = (job: Job, signal: AbortSignal, tx?: string) => new Promise<Verdict>((resolve, reject) => {
      const call = name()
      calls.set(call, { job, end: verdict => {
        calls.delete(call)
        new Promise<Verdict>(decided => decided(verdict())).then(resolve, reject)
      } })
      const aborted = () => {
        if (!calls.delete(call)) return
        write({ event: 'aborted', worker, call, cause: ({ LeaseLostError: 'lease_lost', TimeoutError: 'timeout' } as Record<string, string>)[(signal.reason as Error).name] ?? 'stopping' })
        reject(signal.reason)
      }
      signal.addEventListener('abort', aborted, { once: true })
      write({ event: 'job', worker, call, job: toJSON(job), ...tx && { tx, kind: 'pg' } })
      if (signal.aborted) aborted()
    })
    const ofKinds = <H>(handler: H): H | Record<string, H> => r.kinds ? Object.fromEntries(r.kinds.map((kind: string) => [kind, handler])) : handler
    const running = !r.work_tx ? penstock.work(pool, r.queue, ofKinds<Handler>(ask), options) : penstock.workTx(pool, r.queue, ofKinds<TxHandler<any>>(async (tx, job, signal) => {
      const id = name()
      transactions.set(id, { penstock, kind: 'pg', tx, last: Promise.resolve() })
      try {
        return await ask(job, signal, id)
      } finally {
        await transactions.get(id)!.last.catch(() => {})
        transactions.delete(id)
      }
    }), options)
    running.catch(err => console.error(err))
    workers.set(worker, () => {
      stop.abort()
      return running
    })
    return { worker }
  },
  outcome({ call, outcome, after_ms, reason }) {
    const verdicts: Record<string, () => Verdict> = {
      done: () => {},
      retry: () => retry(after_ms ?? undefined, reason ?? ''),
      snooze: () => snooze(after_ms ?? 0),
      dead_letter: () => deadLetter(reason ?? ''),
      cancelled: () => cancelled(reason ?? ''),
      error: () => { throw new Error(reason ?? '') },
      unreadable: () => { throw Object.create(null) },
    }
    calls.get(call)?.end(verdicts[outcome]!)
    return null
  },
  async stop({ worker }) {
    await found(workers, worker)()
    workers.delete(worker)
    return null
  },
}

async function answer(line: string) {
  const request = JSON.parse(line)
  try {
    const op = found(new Map(Object.entries(ops)), request.op)
    const inTx = transactions.get(request.tx)
    const result = inTx ? inTx.last.then(() => op(request), () => op(request)) : op(request)
    if (inTx) inTx.last = result as Promise<unknown>
    write({ id: request.id, result: await result ?? null })
  } catch (err: any) {
    const field = err instanceof FieldError ? err.field.replace(/[A-Z]/g, c => `_${c.toLowerCase()}`) : undefined
    write({ id: request.id, error: { message: String(err?.message ?? err), sqlstate: sqlState(err), field } })
  }
}

createInterface({ input: process.stdin }).on('line', line => void answer(line)).on('close', () => process.exit(0))
process.once('SIGTERM', () => void Promise.allSettled([...workers.values()].map(stop => stop())).then(() => process.exit(0)))
