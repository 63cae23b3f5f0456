// Connections are cut while pools have no listener, as in the README. An error event without a listener ends the process, which fails the run.
import { EventEmitter } from 'node:events'
import pg from 'pg'
import { drizzle } from 'drizzle-orm/node-postgres'
import { expect, test, vi } from 'vitest'
import { listening } from '../src/database.js'
import { type End, type Queryable, type WorkOptions } from '../src/index.js'
import { advance } from '../src/testing.js'
import { Backoff, Outage } from '../src/waits.js'
import { newQueue, penstock, pool, sql, status, until, url } from './database.js'

const quiet = { warn() {} }

/** apart is a pool and what cuts all of its connections. */
function apart() {
  const name = `apart_${Math.random().toString(36).slice(2)}`
  const own = new pg.Pool({ connectionString: url, application_name: name, max: 8 })
  const open = new Set<pg.PoolClient>()
  own.on('connect', client => { open.add(client.once('end', () => open.delete(client))) })
  return { own, open, async cut() {
    const all = [...open]
    await sql('select pg_terminate_backend(pid) from pg_stat_activity where application_name = $1', name)
    await until('they are cut', () => all.every(client => !open.has(client)))
  } }
}

test('a worker lives through connections that are cut, at rest and in a handler’s transaction', async () => {
  for (const over of [(p: pg.Pool): Queryable => p, (p: pg.Pool): Queryable => drizzle(p)]) {
    const { own, open, cut } = apart()
    const queue = await newQueue()
    const stop = new AbortController()
    const ends: End[] = []
    const options: WorkOptions = { signal: stop.signal, logger: quiet, onEnd: (_, end) => ends.push(end) }
    await penstock.enqueue(pool, queue, { payload: 'cut' })
    const worker = penstock.workTx(over(own), queue, async (_, job) => {
      if (job.attempt > 1 || job.text() === 'quiet') return
      await cut()
    }, options)
    await until('it has failed', () => ends.length === 1)
    await advance(pool, queue, 3_600_000)
    await until('it is done', () => ends.length === 2)
    await until('connections are at rest', () => own.idleCount > 0)
    await cut()
    await penstock.enqueue(pool, queue, { payload: 'quiet' })
    await until('the next one is done', () => ends.length === 3)
    stop.abort()
    await worker
    expect(ends).toEqual(['failed', 'settled', 'settled'])
    expect(await status(queue)).toMatchObject({ ready: 0, running: 0, delayed: 0 })
    expect([own.listenerCount('error'), own.listenerCount('acquire'), own.listenerCount('release')]).toEqual([0, 0, 0])
    // The pool's own listener is left of each client.
    expect([...open].map(client => client.listenerCount('error'))).toEqual([...open].map(() => 1))
    expect(open.size).toBeGreaterThan(0)
    await own.end()
  }
})

test('no attempt is spent while the transactions of jobs cannot begin', async () => {
  const { own } = apart()
  for (const driver of ['pg', 'postgres.js', 'knex', 'kysely', 'drizzle']) {
    const queue = await newQueue()
    await penstock.enqueue(pool, queue, { payload: driver, maxAttempts: 1 })
    const stop = new AbortController()
    const ends: End[] = []
    const lines: string[] = []
    let away = true
    const begins = (name: string, begin: (db: any, args: any[]) => unknown) => (...args: any[]) => {
      if (away) throw new Error(`${name} is away`)
      return begin(own, args)
    }
    const query = (text: string, values: any) => own.query(text, values)
    // Objects as those drivers make them, whose transactions are begun by pg.
    const inPg = async (fn: (tx: any) => unknown) => {
      const client = await own.connect()
      try {
        await client.query('begin')
        await fn(client)
        await client.query('commit')
      } finally {
        client.release()
      }
    }
    const db: any = {
      'pg': { totalCount: 1, query, on: () => db, off: () => db, connect: begins('pg', db => db.connect()) },
      'postgres.js': { unsafe: async (text: string, values: any) => (await own.query(text, values)).rows, begin: begins('postgres.js', (_, [fn]) => inPg(fn)) },
      'knex': { raw: async (text: string, values: any[]) => own.query(text.replace(/\?/g, (() => { let n = 0; return () => `$${++n}` })()), values), transaction: begins('knex', (_, [fn]) => inPg(fn)) },
      'kysely': { executeQuery: async (q: any) => own.query(q.sql, q.parameters), transaction: () => ({ execute: begins('kysely', (_, [fn]) => inPg(fn)) }) },
      'drizzle': { execute: async (q: any) => { const { sql, params } = q.getSQL().toQuery(); return own.query(sql, params) }, transaction: begins('drizzle', (_, [fn]) => inPg(fn)) },
    }[driver]
    const worker = penstock.workTx(db, queue, async (_, job) => { expect(job.attempt).toBe(1) },
      { signal: stop.signal, concurrency: 1, logger: { warn: line => lines.push(line) }, onEnd: (_, end) => ends.push(end) })
    await until('it was given back', () => ends.length > 0)
    away = false
    await until('it is done', () => ends.at(-1) === 'settled')
    stop.abort()
    await worker
    expect(new Set(ends)).toEqual(new Set(['snoozed', 'settled']))
    expect(lines.filter(line => line.includes('cannot begin the transaction of a job'))).toHaveLength(1)
    expect(lines.join()).toContain(`${driver} is away`)
  }
  await own.end()
})

test('a client has one listener, also of a pool that does not say what it takes back', () => {
  const [old, client] = [Object.assign(new EventEmitter(), { totalCount: 1 }), new EventEmitter()]
  const over = listening(old)
  for (let n = 0; n < 3; n++) old.emit('acquire', client)
  expect(client.listenerCount('error')).toBe(1)
  over()
})

test.each([
  ['done', true, ['info started', 'warn away', 'info again']],
  ['error', false, ['warn away', 'warn again']], // a logger without info
])('an outage is a line when its first call fails, and one when all calls work again: %s', async (payload, info, expected) => {
  const queue = await newQueue()
  let away: RegExp | undefined
  const [failed, worked] = [new Set<string>(), new Set<string>()]
  const db = { penstock: async (text: string, values: readonly (string | null)[]) => {
    const call = /penstock"\.(\w+)/.exec(text)![1]!
    if (away?.test(call)) {
      failed.add(call)
      throw new Error('away')
    }
    const { rows } = await pool.query({ text, values: [...values], rowMode: 'array' })
    worked.add(call)
    return rows
  } }
  const lines: string[] = []
  const line = (level: string) => (text: string) => {
    const what = /started|away|again/.exec(text)
    if (what) lines.push(`${level} ${what}`)
  }
  const stop = new AbortController()
  const ends: End[] = []
  const worker = penstock.work(db, queue, async () => {
    away = /./
    await until('claims and maintenance have failed', () => /claim/.test([...failed].join()) && failed.has('maintain_queue'))
    away = /maintain_queue/
    worked.clear()
    await until('claims work again', () => /claim/.test([...worked].join()))
    expect(lines.at(-1)).toBe('warn away')
    away = undefined
    if (payload === 'error') throw new Error('no')
  }, { signal: stop.signal, concurrency: 2, logger: { warn: line('warn'), ...info && { info: line('info') } }, onEnd: (_, end) => ends.push(end) })
  await penstock.enqueue(pool, queue, { payload })
  await until('it has ended', () => ends.length === 1)
  await until('calls work again', () => lines.length >= expected.length)
  stop.abort()
  await worker
  expect(ends).toEqual([payload === 'error' ? 'failed' : 'done'])
  expect(lines).toEqual(expected)
})

test('the log has each other error of an outage once', () => {
  const lines: string[] = []
  const now = vi.spyOn(performance, 'now')
  try {
    const outage = new Outage('emails', { warn: line => { lines.push(line) } })
    const call = new Backoff(outage)
    for (const [at, error] of [[0, 'terminated'], [1000, 'wrong password'], [11_000, 'wrong password'], [30_000, 'wrong password'], [39_000, 'too many connections'], [60_000, 'wrong password']] as const) {
      now.mockReturnValue(at)
      call.failed('cannot claim jobs', new Error(error))
    }
    call.worked()
  } finally {
    now.mockRestore()
  }
  expect(lines.map(line => line.replace(/.*: /, ''))).toEqual([expect.stringContaining('terminated'), expect.stringContaining('wrong password'),
    expect.stringContaining('too many connections'), 'the database answers again, 60.0 s later'])
})

/** lines is a logger and its lines. */
function lines() {
  const all: string[] = []
  return { all, logger: { warn: (line: string) => { all.push(line) }, info: (line: string) => { all.push(line) } } }
}

test('a worker that starts while the database is down waits for it', async () => {
  const queue = await newQueue()
  await penstock.enqueue(pool, queue, { payload: 'late' })
  const nowhere = new pg.Pool({ connectionString: 'postgres://127.0.0.1:1/app' })
  let tried = 0
  const db = { penstock: async (text: string, values: readonly (string | null)[]) => {
    if (tried++ < 2) await nowhere.query('select 1')
    return (await pool.query({ text, values: [...values], rowMode: 'array' })).rows
  } }
  const { all, logger } = lines(), stop = new AbortController(), ends: End[] = []
  const worker = penstock.work(db, queue, () => {}, { signal: stop.signal, logger, onEnd: (_, end) => ends.push(end) })
  await Promise.race([worker, until('it is done', () => ends.length === 1)])
  stop.abort()
  await worker
  expect(all[0]).toMatch(/cannot reach the database \(start it, or correct its address\); trying until it works: .*ECONNREFUSED/)
  expect(all.slice(1, 3)).toEqual([expect.stringContaining('the database answers again'), expect.stringContaining('has started')])

  const never = new AbortController(), waits = lines()
  const waiting = penstock.work(nowhere, queue, () => {}, { signal: never.signal, logger: waits.logger })
  await until('it waits', () => waits.all.length === 1)
  never.abort()
  await waiting
  const other = new URL(url)
  other.pathname = '/missing'
  await expect(penstock.work(new pg.Pool({ connectionString: other.href }), queue, () => {}, { logger: waits.logger })).rejects.toThrow('does not exist')
})

test('a worker without groups says that jobs of groups wait', async () => {
  const queue = await newQueue()
  await penstock.enqueueMany(pool, queue, ['a', 'b'].map(groupKey => ({ payload: '', groupKey })))
  const { all, logger } = lines(), stop = new AbortController()
  const real = performance.now.bind(performance), start = real()
  const now = vi.spyOn(performance, 'now').mockImplementation(() => start + (real() - start) * 100)
  const worker = penstock.work(pool, queue, () => {}, { signal: stop.signal, logger, lease: 3_000_000 })
  try {
    await until('it has said so', () => all.some(line => line.includes('jobs of group "a" and of others wait, and this worker takes only jobs without a group')))
  } finally {
    now.mockRestore()
    stop.abort()
    await worker
  }
})

test('a worker without the right to its queue ends with the grant; a right that is lost while it runs may come back', async () => {
  const queue = await newQueue(), grant = `penstock queue grant ${queue} ROLE --work`
  const role = `r_${queue}`
  await sql(`create role ${role} login`)
  await sql(`grant usage on schema penstock to ${role}`)
  const as = new URL(url)
  as.username = role
  const own = new pg.Pool({ connectionString: as.href })
  const { all, logger } = lines(), stop = new AbortController(), ends: End[] = []
  try {
    await expect(Promise.race([penstock.work(own, queue, () => {}, { logger, signal: AbortSignal.timeout(20_000) }), new Promise(r => setTimeout(r, 5000))])).rejects.toThrow(grant)
    expect(all).toEqual([])
    await sql(`select penstock.grant_worker('${queue}', '${role}')`)
    const worker = penstock.work(own, queue, () => {}, { signal: stop.signal, logger, onEnd: (_, end) => ends.push(end) })
    await penstock.enqueue(pool, queue, { payload: 'x' })
    await until('it is done', () => ends.length === 1)
    all.length = 0
    await sql(`revoke all on all functions in schema penstock from ${role}`)
    await until('one call has failed', () => all.length === 1)
    expect(all[0]).toContain(grant)
    await sql(`select penstock.grant_worker('${queue}', '${role}')`)
    await until('it goes on', () => all.some(line => line.includes('the database answers again')))
    stop.abort()
    await worker
  } finally {
    stop.abort()
    await own.end()
    await sql(`drop owned by ${role}`)
    await sql(`drop role ${role}`)
  }
})
