// Connections are cut while pools have no listener, as in the README. An error event without a listener ends the process, which fails the run.
import pg from 'pg'
import { drizzle } from 'drizzle-orm/node-postgres'
import { expect, test } from 'vitest'
import { type End, type Queryable, type WorkOptions } from '../src/index.js'
import { advance } from '../src/testing.js'
import { newQueue, penstock, pool, sql, status, until, url } from './database.js'

const quiet = { warn() {} }

/** apart is a pool and what cuts all of its connections. */
function apart() {
  const name = `apart_${Math.random().toString(36).slice(2)}`
  const own = new pg.Pool({ connectionString: url, application_name: name, max: 8 })
  const open = new Set<pg.PoolClient>()
  own.on('connect', client => { open.add(client.once('end', () => open.delete(client))) })
  return { own, async cut() {
    const all = [...open]
    await sql('select pg_terminate_backend(pid) from pg_stat_activity where application_name = $1', name)
    await until('they are cut', () => all.every(client => !open.has(client)))
  } }
}

test('a worker lives through connections that are cut, at rest and in a handler’s transaction', async () => {
  for (const over of [(p: pg.Pool): Queryable => p, (p: pg.Pool): Queryable => drizzle(p)]) {
    const { own, cut } = apart()
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
    await own.end()
  }
})

test('an outage is a line when it begins, and one when it is over', async () => {
  const queue = await newQueue()
  let away = false
  let calls = 0
  const db = { penstock: async (text: string, values: readonly (string | null)[]) => {
    if (away) {
      calls++
      throw new Error('away')
    }
    return (await pool.query({ text, values: [...values], rowMode: 'array' })).rows
  } }
  const lines: string[] = []
  const stop = new AbortController()
  const ends: End[] = []
  const worker = penstock.work(db, queue, async job => {
    if (job.text() === 'last') return
    [away, calls] = [true, 0]
    await until('calls have failed', () => calls > 3)
    away = false
    if (job.text() === 'error') throw new Error('no')
  }, { signal: stop.signal, concurrency: 1, logger: { warn: line => { if (!line.includes('failed:')) lines.push(`warn ${line}`) }, info: line => { lines.push(`info ${line}`) } }, onEnd: (_, end) => ends.push(end) })
  for (const payload of ['done', 'error', 'last']) {
    await penstock.enqueue(pool, queue, { payload })
    await until('it has ended', () => ends.includes(payload === 'error' ? 'failed' : 'done'))
    ends.length = 0
    await until('calls work again', () => lines.length === { done: 3, error: 5, last: 5 }[payload])
  }
  stop.abort()
  await worker
  expect(lines).toEqual([expect.stringMatching(/^info .*has started: .*, concurrency 1$/), ...[1, 2].flatMap(() => [
    expect.stringMatching(/^warn .*away$/), expect.stringMatching(/^info .*answers again, \d+\.\d s later$/)])])
})
