// Connections that are cut, with pools that nobody listens to, as in the README: an error event without a listener ends the process, which fails the run.
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
