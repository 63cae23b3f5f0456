import { execFileSync, spawn } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import pg from 'pg'
import * as v from 'valibot'
import { afterAll, describe, expect, test, vi } from 'vitest'
import { LeaseLostError, NotFoundError, StoppingError, cancelled, deadLetter, holdGroup, limited, retry, snooze, sqlState, type End, type Handler, type Job, type Queryable, type WorkOptions } from '../src/index.js'
import { advance } from '../src/testing.js'
import { run } from '../src/work.js'
import { messages, newOutbox, newQueue, penstock, pool, sql, status, until, url } from './database.js'
import { drivers } from './drivers.js'

const quiet = { warn() {} }

/** started is a worker that the test stops. */
function started(queue: string, handler: Handler, options: WorkOptions = {}, db: Queryable = pool) {
  const stop = new AbortController()
  const ends: [bigint, End][] = []
  const worker = penstock.work(db, queue, handler, { signal: stop.signal, logger: quiet, onEnd: (job, end) => ends.push([job.id, end]), ...options })
  worker.catch(() => {})
  return { ends, endsOf: () => ends.map(([, end]) => end).sort(), worker, stop: () => (stop.abort(), worker) }
}

/** logging is a logger that keeps its warnings. */
function logging() {
  const lines: string[] = []
  return { lines, logger: { warn: (line: string) => void lines.push(line), info() {} } }
}

test('jobs are done, once each, and the acks ride along', async () => {
  const queue = await newQueue()
  await penstock.enqueueMany(pool, queue, Array.from({ length: 1000 }, (_, n) => ({ payload: { n } })))
  const seen: number[] = []
  const w = started(queue, job => { seen.push(job.json<{ n: number }>().n) })
  await until('all are acked', () => w.ends.length === 1000)
  await w.stop()
  expect(seen.sort((a, b) => a - b)).toEqual(Array.from({ length: 1000 }, (_, n) => n))
  expect(await status(queue)).toEqual({ ready: 0, running: 0, delayed: 0, waiting: 0, dead: 0 })
})

test('a program without types may give anything as a reason, and no delay but a number', async () => {
  const queue = await newQueue()
  const far: Record<string, () => unknown> = {
    error: () => deadLetter(new Error('was caught') as never),
    number: () => retry(1e15, 404 as never),
    nothing: () => deadLetter(undefined as never),
    bigint: () => snooze(5n as never),
    backoff: () => { throw new Error('no') },
  }
  await penstock.enqueueMany(pool, queue, Object.keys(far).map(kind => ({ payload: '', kind })))
  const call: Handler = job => far[job.kind]!() as never
  const limits = limited(call, { backoff: () => NaN })
  const w = started(queue, (job, signal) => (job.kind === 'backoff' ? limits : call)(job, signal), { concurrency: 1 })
  await until('all have ended', () => w.ends.length === 5)
  await w.stop()
  expect(w.endsOf()).toEqual(['dead', 'dead', 'failed', 'failed', 'failed'])
  const errors = await sql(`select error from penstock.dead_jobs($1) union all select failures->-1->>'error' from penstock._scheduled where queue = (select id from penstock._queue where name = $1)`, queue)
  for (const reason of ['Error: was caught', 'undefined', '404', 'after is 5, expected milliseconds', 'after is NaN, expected milliseconds']) {
    expect(errors.filter(error => error.includes(reason)), `${reason} in ${errors}`).toHaveLength(1)
  }
})

test('onEnd may be an async function that fails', async () => {
  const queue = await newQueue()
  await penstock.enqueue(pool, queue, { payload: '' })
  const lines: string[] = []
  const w = started(queue, () => {}, { logger: { warn: line => lines.push(line) }, onEnd: async () => { throw new Error('no metrics') } })
  await until('it was logged', () => lines.length > 0)
  await w.stop()
  expect(lines).toEqual([expect.stringContaining('onEnd has failed: Error: no metrics')])
})

test('a handler that ignores its signal is left', async () => {
  const queue = await newQueue()
  const { id } = await penstock.enqueue(pool, queue, { payload: '' })
  let end!: () => void
  const ending = new Promise<void>(resolve => { end = resolve })
  let began = false
  const w = started(queue, () => {
    began = true
    return ending
  }, { drainTimeout: 1, lease: 60_000 })
  await until('it runs', () => began)
  await expect(w.stop()).rejects.toThrow('1 handlers went on after the drain time, and were left')
  end()
  await ending
  expect(w.ends).toEqual([])
  expect(await status(queue)).toMatchObject({ running: 1 })
  expect(await penstock.queue(pool, queue).cancel([id])).toBe(1)
})

test('each outcome ends a job as it says', async () => {
  const queue = await newQueue()
  await penstock.enqueueMany(pool, queue, ['done', 'retry', 'snooze', 'dead', 'cancelled', 'thrown', 'error'].map(payload => ({ payload })))
  const attempts = new Map<string, number[]>()
  const w = started(queue, async job => {
    const what = job.text()
    attempts.set(what, [...attempts.get(what) ?? [], job.attempt])
    if (attempts.get(what)!.length > 1) return
    switch (what) {
      case 'retry': return retry(1, 'once more')
      case 'snooze': return snooze(1)
      case 'dead': return deadLetter('no such user')
      case 'cancelled': return cancelled()
      case 'thrown': throw deadLetter('from deep inside')
      case 'error': throw new Error('the mail server is down')
    }
    return
  })
  await until('all have ended, two for the second time', () => w.ends.length === 9)
  await w.stop()
  expect(w.endsOf()).toEqual(['cancelled', 'dead', 'dead', 'done', 'done', 'done', 'failed', 'failed', 'snoozed'])
  expect(attempts.get('retry')).toEqual([1, 2])
  expect(attempts.get('snooze')).toEqual([1, 1])
  expect(await status(queue)).toMatchObject({ delayed: 1, dead: 2 })
  expect(await sql(`select string_agg(failures::text, '') from penstock._dead_job where queue = (select id from penstock._queue where name = $1)`, queue)).toEqual([expect.stringMatching(/no such user.*deep inside|deep inside.*no such user/s)])
})

const inside = {
  'the program': () => { throw new TypeError('no such user') },
  Node: () => { new URL('nowhere') },
  'a library': () => { v.parse(v.number(), 'no number') },
}
test.each(Object.entries(inside))('the job keeps what was thrown in %s and the line of the program, the log the whole stack, and onEnd may throw', async (_, call) => {
  const queue = await newQueue()
  await penstock.enqueue(pool, queue, { payload: '' })
  await sql('select penstock.set_queue($1, max_attempts => 1)', queue)
  let log = ''
  const w = started(queue, () => call(), { logger: { warn(line) { log += line } }, onEnd() { throw Object.create(null) } })
  await until('it is a dead letter', async () => (await status(queue)).dead === 1)
  await w.stop()
  const [kept] = await sql(`select string_agg(failures::text, '') from penstock._dead_job where queue = (select id from penstock._queue where name = $1)`, queue)
  expect(kept).toMatch(/"\w+Error: .* \(work\.test\.ts:\d+ in [^\\]+\)(\\n {2}from work\.test\.ts:\d+[^\\]*)*"/)
  expect(kept).not.toContain('    at ') // the stack
  expect(log).toMatch(/failed for the last time: \w+Error.*\n.*work\.test.*\n.*work\.test/s)
  expect(log).toContain('onEnd has failed')
})

test('jobs of a key run one at a time, in order, in two workers', async () => {
  const queue = await newQueue()
  await penstock.enqueueMany(pool, queue, Array.from({ length: 60 }, (_, n) => ({ payload: `${n}`, key: `key ${n % 3}` })))
  const seen: Record<string, number[]> = {}
  const running = new Set<string>()
  const handler = async (job: Job) => {
    expect(running.has(job.key)).toBe(false)
    running.add(job.key)
    await new Promise(resolve => setTimeout(resolve, 1))
    ;(seen[job.key] ??= []).push(Number(job.text()))
    running.delete(job.key)
  }
  const workers = [started(queue, handler), started(queue, handler)]
  await until('all are done', () => workers[0]!.ends.length + workers[1]!.ends.length === 60)
  await Promise.all(workers.map(w => w.stop()))
  expect(workers.flatMap(w => w.endsOf()).every(end => end === 'done')).toBe(true)
  for (const [key, order] of Object.entries(seen)) expect([key, order]).toEqual([key, [...order].sort((a, b) => a - b)])
})

test('leases are extended while the handler runs', async () => {
  const queue = await newQueue()
  await penstock.enqueue(pool, queue, { payload: '' })
  let lease = 0n
  let end: () => void = () => {}
  const w = started(queue, async job => {
    lease = job.lease
    await new Promise<void>(resolve => { end = resolve })
  }, { lease: 3000 })
  const leaseUntil = async () => (await sql('select max(lease_until) from penstock._lease where lease = $1', String(lease)))[0] as Date | null
  await until('it runs', () => lease !== 0n)
  const first = await leaseUntil()
  await until('its lease is extended twice', async () => (await leaseUntil())!.getTime() > first!.getTime() + 1500)
  end()
  await until('it ends', () => w.ends.length === 1)
  await w.stop()
  expect(w.endsOf()).toEqual(['done'])
})

test('a handler whose lease is lost is aborted', async () => {
  const queue = await newQueue()
  const made = await penstock.enqueueMany(pool, queue, ['throws', 'returns'].map(payload => ({ payload })))
  const why: unknown[] = []
  const { lines, logger } = logging()
  const w = started(queue, async (job, signal) => {
    await sql('select penstock.cancel($1, $2)', queue, [String(job.id)])
    await new Promise(resolve => signal.addEventListener('abort', resolve))
    why.push(signal.reason)
    if (job.text() === 'throws') signal.throwIfAborted()
  }, { lease: 1000, logger })
  await until('both end', () => w.ends.length === 2)
  await w.stop()
  expect(why).toEqual([expect.any(LeaseLostError), expect.any(LeaseLostError)])
  expect(why.map(String)).toEqual(Array(2).fill('LeaseLostError: the job was removed, as cancel does'))
  expect(w.endsOf()).toEqual(['lost', 'lost'])
  expect(lines.sort()).toEqual(made.map(({ id }) => `penstock: queue ${queue}, job ${id}, attempt 1: it was removed while it ran, as cancel does`).sort())
})

test('a lease that runs out while the database is away may be of a job that runs elsewhere', async () => {
  const queue = await newQueue()
  await penstock.enqueue(pool, queue, { payload: '' })
  const { lines, logger } = logging()
  let away = false
  const db = { penstock: async (text: string, values: readonly unknown[]) => {
    if (away && text.includes('extend_many')) throw new Error('away')
    return (await pool.query({ text, values: values as unknown[], rowMode: 'array' })).rows
  } }
  const w = started(queue, async (_, signal) => {
    away = true
    await new Promise(resolve => signal.addEventListener('abort', resolve))
    away = false
    signal.throwIfAborted()
  }, { lease: 1000, logger }, db)
  await until('it ends', () => w.ends.length === 1)
  await w.stop()
  expect(w.endsOf()).toEqual(['lost'])
  expect(lines.filter(line => line.includes('job '))).toEqual([expect.stringContaining('the lease was lost while it ran; it may run elsewhere')])
})

test('of a handler that holds up the event loop beyond its lease another process does the job, and its own end is refused', async () => {
  const queue = await newQueue()
  await penstock.enqueue(pool, queue, { payload: 'held up' })
  const rescue = `
    import pg from 'pg'
    import { Penstock } from '${new URL('../dist/index.js', import.meta.url)}'
    const pool = new pg.Pool({ connectionString: process.env.URL })
    const queue = new Penstock().queue(pool, '${queue}')
    for (let jobs = []; !jobs.length; ) {
      await queue.maintain()
      ;({ jobs } = await queue.claim())
      await queue.ack(jobs.map(job => job.lease))
    }
    await pool.end()`
  const attempts: [string, number][] = []
  const w = started(queue, job => {
    attempts.push([job.text(), job.attempt])
    if (job.text() === 'held up') execFileSync(process.execPath, ['--input-type=module', '-e', rescue], { env: { ...process.env, URL: url }, cwd: fileURLToPath(new URL('..', import.meta.url)) })
  }, { lease: 1000 })
  await until('its end is refused', () => w.ends.length === 1)
  await penstock.enqueue(pool, queue, { payload: 'next' })
  await until('it goes on', () => w.ends.length === 2)
  await w.stop()
  expect(w.endsOf()).toEqual(['done', 'lost'])
  expect(attempts).toEqual([['held up', 1], ['next', 1]])
  expect(await status(queue)).toEqual({ ready: 0, running: 0, delayed: 0, waiting: 0, dead: 0 })
})

test('one that stops gives back what has not begun, and waits for what runs', async () => {
  const queue = await newQueue()
  await penstock.enqueueMany(pool, queue, Array.from({ length: 50 }, () => ({ payload: '' })))
  let begun = 0
  let go: () => void = () => {}
  const going = new Promise<void>(resolve => { go = resolve })
  // Quick jobs first, so the worker claims ahead.
  const w = started(queue, async () => { if (++begun > 10) await going }, { concurrency: 2, batch: 20 })
  await until('two are held up', () => begun === 12)
  const stopped = w.stop()
  let over = false
  void stopped.then(() => { over = true })
  await until('what has not begun is given back', async () => (await status(queue)).ready === 38)
  expect(over).toBe(false)
  go()
  await stopped
  expect(begun).toBe(12)
  expect((await status(queue))).toEqual({ ready: 38, running: 0, delayed: 0, waiting: 0, dead: 0 })
})

test('jobs claimed ahead of handlers that hang are given back for other workers', async () => {
  const queue = await newQueue()
  await penstock.enqueueMany(pool, queue, Array.from({ length: 60 }, () => ({ payload: '' })))
  let begun = 0
  let go: () => void = () => {}
  const going = new Promise<void>(resolve => { go = resolve })
  const lines: string[] = []
  const start = performance.now()
  // Quick jobs first, so the worker claims ahead.
  const w = started(queue, async () => { if (++begun > 10) await going }, { concurrency: 2, batch: 20, lease: 3000, logger: { warn: line => lines.push(line) } })
  await until('two are held up, and others are claimed', async () => begun === 12 && (await status(queue)).running > 2)
  await until('those are given back', async () => (await status(queue)).running === 2)
  expect(performance.now() - start).toBeGreaterThan(1900) // at the second look: each has waited for a third of a lease
  for (let n = 0; n < 10; n++) { // while they hang none is claimed ahead
    await new Promise(resolve => setTimeout(resolve, 50))
    expect((await status(queue)).running).toBe(2)
  }
  expect(lines).toEqual([expect.stringMatching(/no handler has begun \d+ jobs of queue .* for long/)])
  go()
  await until('all are done', async () => (await status(queue)).ready + (await status(queue)).running === 0)
  await w.stop()
  expect(begun).toBe(60)
})

test('what goes on for longer than the drain time is aborted and given back, no attempt spent', async () => {
  const queue = await newQueue()
  await penstock.enqueue(pool, queue, { payload: '' })
  let [begun, why]: [boolean, unknown] = [false, undefined]
  const lines: string[] = []
  const w = started(queue, async (_, signal) => {
    begun = true
    await new Promise(resolve => signal.addEventListener('abort', resolve))
    why = signal.reason
    signal.throwIfAborted()
  }, { drainTimeout: 50, logger: { warn: line => lines.push(line) } })
  await until('it runs', () => begun)
  await w.stop()
  expect(why).toBeInstanceOf(StoppingError)
  expect(lines).toEqual([expect.stringMatching(/aborts the jobs that still run, with the ids 1$/)])
  expect(w.endsOf()).toEqual(['released'])
  expect((await penstock.queue(pool, queue).claim()).jobs).toMatchObject([{ attempt: 1 }])
})

test('a dead letter keeps the callers and the causes behind the first line', async () => {
  const queue = await newQueue()
  await penstock.enqueue(pool, queue, { payload: '', maxAttempts: 1 })
  const address = () => {
    try {
      throw new RangeError('no key')
    } catch (cause) {
      throw new TypeError('no address\nof this user', { cause })
    }
  }
  const w = started(queue, function send() { address() })
  await until('it is a dead letter', async () => (await status(queue)).dead === 1)
  await w.stop()
  const [dead] = await penstock.queue(pool, queue).deadJobs()
  expect(dead!.error).toMatch(/^TypeError: no address \(work\.test\.ts:\d+ in address\)\nof this user\n {2}from work\.test\.ts:\d+ in send\n(.*\n)*caused by RangeError: no key \(work\.test\.ts:\d+ in address\)$/)
})

test('a queue that is dropped during a statement is not found', async () => {
  const lost = { penstock: async () => { throw Object.assign(new Error('could not open relation with OID 4711'), { code: 'XX000' }) } }
  await expect(penstock.enqueue(lost, 'emails', { payload: '' })).rejects.toThrow(NotFoundError)
  const other = { penstock: async () => { throw Object.assign(new Error('unexpected'), { code: 'XX000' }) } }
  await expect(penstock.enqueue(other, 'emails', { payload: '' })).rejects.not.toThrow(NotFoundError)
})

test('it goes on through errors of the database', async () => {
  const queue = await newQueue()
  await penstock.enqueueMany(pool, queue, Array.from({ length: 20 }, () => ({ payload: '' })))
  let failures = 0
  const db = { penstock: async (text: string, values: readonly (string | null)[]) => {
    const { rows } = await pool.query({ text, values: [...values], rowMode: 'array' })
    // Every second answer is lost after the call took effect.
    if (/ack_many|retry/.test(text) && failures++ % 2 === 0) throw new Error('the connection is gone')
    return rows
  } }
  const w = started(queue, job => job.id % 2n ? undefined : retry(3_600_000), { concurrency: 3 }, db)
  await until('all have ended', () => w.ends.length === 20)
  await w.stop()
  expect(failures).toBeGreaterThan(0)
  expect(await status(queue)).toEqual({ ready: 0, running: 0, delayed: 10, waiting: 0, dead: 0 })
})

test('a lease of nothing is refused', async () => {
  const queue = penstock.queue(pool, await newQueue())
  for (const lease of [0, -1]) {
    expect(sqlState(await queue.claim({ lease }).catch(err => err))).toBe('22023')
    expect(sqlState(await queue.extend([1n], lease).catch(err => err))).toBe('22023')
  }
  expect((await queue.claim({ lease: 1e-6 })).jobs).toEqual([])
  expect((await queue.claim({ lease: 1e300 })).jobs).toEqual([])
})

test('what another attempt cannot cure ends it', async () => {
  const gone = await newQueue()
  const w = started(gone, () => {})
  await until('it works', async () => (await penstock.enqueue(pool, gone, { payload: '' }), w.ends.length > 0))
  // The worker and drop_queue may take locks in opposite order.
  await until('it is dropped', () => sql('select penstock.drop_queue($1)', gone).then(() => true, () => false))
  await expect(w.worker).rejects.toThrow(NotFoundError)
  const lines: string[] = []
  await expect(penstock.work(pool, 'none', () => {}, { logger: { warn() {}, info: line => lines.push(line) } })).rejects.toThrow('there is no queue')
  expect(lines).toEqual([]) // it has not started
  const away = { penstock: async () => { throw new Error('away') } }
  await expect(penstock.work(away, gone, () => {}, { logger: quiet })).rejects.toThrow('away')
  await expect(penstock.work(pool, gone, () => {}, { concurrency: 0 })).rejects.toMatchObject({ field: 'concurrency' })
  await expect(penstock.work(pool, gone, () => {}, { batch: 10_001 })).rejects.toMatchObject({ field: 'batch' })
  await expect(penstock.work(pool, gone, () => {}, { groupKey: 'x'.repeat(257) })).rejects.toMatchObject({ field: 'groupKey' })
})

test.each([[3, 1], [3, 2]])('workTx warns of a pool with too few connections: %s for %s handlers', async (max, concurrency) => {
  const lines: string[] = []
  const small = new pg.Pool({ connectionString: url, max })
  try {
    await expect(penstock.workTx(small, 'none', () => {}, { concurrency, logger: { warn: line => lines.push(line) } })).rejects.toThrow('there is no queue')
  } finally {
    await small.end()
  }
  expect(lines).toEqual(concurrency === 1 ? [] : [expect.stringContaining('at most 3 connections')])
})

test('SIGTERM stops one that has no signal', async () => {
  const queue = await newQueue()
  await penstock.enqueue(pool, queue, { payload: '' })
  const program = `
    import pg from 'pg'
    import { Penstock } from '${new URL('../dist/index.js', import.meta.url)}'
    const pool = new pg.Pool({ connectionString: process.env.URL })
    await new Penstock().work(pool, '${queue}', async () => { console.log('runs'); await new Promise(resolve => setTimeout(resolve, 300)); console.log('done') })
    console.log('stopped')
    await pool.end()`
  const child = spawn(process.execPath, ['--input-type=module', '-e', program], { env: { ...process.env, URL: url }, cwd: fileURLToPath(new URL('..', import.meta.url)) })
  let out = ''
  child.stderr.on('data', data => { out += data })
  child.stdout.on('data', data => {
    out += data
    if (String(data).includes('runs')) child.kill('SIGTERM')
  })
  const code = await new Promise(resolve => child.on('close', resolve))
  expect([code, out]).toEqual([0, expect.stringMatching(/^penstock: .* has started: .*\nruns\npenstock: .* stops: 1 handlers run, and have 10 s to end\ndone\npenstock: .* has stopped\nstopped\n$/)])
  expect(await status(queue)).toMatchObject({ ready: 0, running: 0 })
})

test('the next job of a key is claimed once all that run have ended, however long the pauses between claims are', async () => {
  const queue = await newQueue()
  await penstock.enqueueMany(pool, queue, Array.from({ length: 10 }, () => ({ payload: '', key: 'k' })))
  const w = started(queue, () => {}, { pollMin: 600_000, pollMax: 600_000, ackEvery: 600_000, concurrency: 4 })
  await until('all are done', () => w.ends.length >= 9)
  await w.stop()
  expect(w.endsOf()).toEqual(Array(10).fill('done'))
})

test('what is no pool is refused before a job is claimed', async () => {
  const queue = await newQueue()
  const wants = 'expected a connection, pool or transaction of pg'
  for (const none of [undefined, 'postgres://localhost']) {
    await expect(penstock.work(none as never, queue, () => {})).rejects.toThrow(wants)
    await expect(penstock.workTx(none as never, queue, () => {})).rejects.toThrow(wants)
  }
  await penstock.enqueue(pool, queue, { payload: 'x' })
  const given = await pool.connect()
  const client = new pg.Client({ connectionString: url })
  for (const one of [given, client]) await expect(penstock.workTx(one as never, queue, () => {}, { signal: AbortSignal.timeout(500) })).rejects.toThrow('expected a pg.Pool')
  given.release()
  expect((await penstock.queue(pool, queue).claim()).jobs[0]!.attempt).toBe(1)
})

describe('workTx', () => {
  const all = drivers(url)
  afterAll(() => Promise.all(all.map(driver => driver.end())))

  test.each(all)('$name: what the handler writes and the end of its job are one', async ({ db }) => {
    const [queue, outbox] = [await newQueue(), await newOutbox()]
    await penstock.enqueueMany(pool, queue, ['done', 'error', 'dead', 'retry', 'cancelled'].map(payload => ({ payload })))
    const stop = new AbortController()
    const ends: End[] = []
    const worker = penstock.workTx(db, queue, async (tx: Queryable, job) => {
      const what = job.text()
      await penstock.publish(tx, outbox, { payload: `${what} ${job.attempt}` })
      if (job.attempt > 1) return
      if (what === 'error') throw new Error('no')
      if (what === 'dead') return deadLetter('never')
      if (what === 'retry') return retry(0)
      if (what === 'cancelled') return cancelled()
      return
    }, { signal: stop.signal, logger: quiet, concurrency: 3, onEnd: (_, end) => ends.push(end) })
    await until('all have ended', () => ends.length === 6)
    stop.abort()
    await worker
    expect(ends.sort()).toEqual(['dead', 'failed', 'failed', 'settled', 'settled', 'settled'])
    expect((await messages(outbox)).sort()).toEqual(['cancelled 1', 'done 1', 'retry 2'])
  })

  test('a commit that fails, after the statement that ends the job, is another attempt', async () => {
    const [queue, outbox] = [await newQueue(), await newOutbox()]
    await penstock.enqueue(pool, queue, { payload: '' })
    // A deferred constraint is checked by the commit.
    await sql(`create table ${queue}_once (attempt int primary key deferrable initially deferred)`)
    await sql(`insert into ${queue}_once values (1)`)
    const stop = new AbortController()
    const ends: End[] = []
    const worker = penstock.workTx(pool, queue, async (tx, job) => {
      await tx.query(`insert into ${queue}_once values ($1)`, [job.attempt])
      await penstock.publish(tx, outbox, { payload: `${job.attempt}` })
    }, { signal: stop.signal, logger: quiet, onEnd: (_, end) => ends.push(end) })
    await until('the first attempt has failed', () => ends.length === 1)
    await advance(pool, queue, 3_600_000)
    await until('the second has not', () => ends.length === 2)
    stop.abort()
    await worker
    expect(ends).toEqual(['failed', 'settled'])
    expect(await messages(outbox)).toEqual(['2'])
  })

  test('a handler whose lease was lost is rolled back', async () => {
    const [queue, outbox] = [await newQueue(), await newOutbox()]
    const { id } = await penstock.enqueue(pool, queue, { payload: '' })
    const stop = new AbortController()
    const ends: End[] = []
    const worker = penstock.workTx(pool, queue, async (tx, job) => {
      await penstock.publish(tx, outbox, { payload: 'never' })
      await sql('select penstock.cancel($1, $2)', queue, [String(id)])
      expect(job.id).toBe(id)
    }, { signal: stop.signal, logger: quiet, onEnd: (_, end) => ends.push(end) })
    await until('it ends', () => ends.length === 1)
    stop.abort()
    await worker
    expect(ends).toEqual(['lost'])
    expect(await messages(outbox)).toEqual([])
  })
})

// Their pauses, 50 ms if they find nothing, vary by an eighth in both directions.
test.each([[0, 43.75], [1, 56.25]])('workers that begin together do not ask together: chance %d', async (chance, pause) => {
  const stop = new AbortController()
  const pauses: number[] = []
  const later = setTimeout
  const timers = vi.spyOn(globalThis, 'setTimeout').mockImplementation(((done: () => void, ms = 0) => (pauses.push(ms), later(done, 0))) as typeof setTimeout)
  const random = vi.spyOn(Math, 'random').mockReturnValue(chance)
  let polls = 0
  const queue = {
    name: 'jobs',
    claim: async () => (++polls === 20 && stop.abort(), { acked: [], jobs: [] }),
    maintain: async () => {},
  }
  try {
    await run(queue as unknown as Parameters<typeof run>[0], () => () => {}, { signal: stop.signal, logger: quiet })
  } finally {
    timers.mockRestore()
    random.mockRestore()
  }
  expect(pauses).toContain(pause)
})

test('a lease in seconds is refused', async () => {
  await expect(penstock.work(pool, await newQueue(), () => {}, { lease: 30 })).rejects.toThrow('lease is 30, expected 1000 or more: it is in milliseconds')
})

test('an option that no worker has is refused', async () => {
  const queue = await newQueue()
  for (const [field, given] of [['prefetch', { prefetch: 1 }], ['groupKey', { groups: ['a'], allGroups: true }]] as const) {
    const options = { ...given, signal: AbortSignal.timeout(10_000) } as WorkOptions
    await expect(penstock.work(pool, queue, () => {}, options)).rejects.toMatchObject({ name: 'FieldError', field })
  }
})

test('after the timeout of a job its signal aborts, and what the handler throws then is not why it failed', async () => {
  const queue = await newQueue()
  const timeout = 50
  await penstock.enqueueMany(pool, queue, ['throws', 'returns'].map(payload => ({ payload, timeout, maxAttempts: 1 })))
  const w = started(queue, async (job, signal) => {
    await new Promise(aborted => signal.addEventListener('abort', aborted))
    if (job.text() === 'throws') throw new Error('no connection')
  })
  await until('both have ended', () => w.ends.length === 2)
  await w.stop()
  expect(w.endsOf()).toEqual(['dead', 'done'])
  expect((await penstock.queue(pool, queue).deadJobs()).map(({ error }) => error)).toEqual([expect.stringContaining('the job ran longer than its timeout of 50 ms')])
})

test.each(['its own', 'of its handler'])('a handler that ignores the timeout of a job, %s, is logged, and its outcome counts', async whose => {
  const queue = await newQueue()
  const own = whose === 'its own'
  const { id } = await penstock.enqueue(pool, queue, { payload: '', ...own && { timeout: 50 } })
  const { lines, logger } = logging()
  const handler: Handler = () => until('it is logged', () => lines.length === 1)
  const w = started(queue, own ? handler : limited(handler, { timeout: 50 }), { logger })
  await until('it ends', () => w.ends.length === 1)
  await w.stop()
  expect(w.endsOf()).toEqual(['done'])
  const job = `penstock: queue ${queue}, job ${id}, attempt 1: `
  expect(lines).toEqual([`${job}runs longer than its timeout of 50 ms: its handler ignores the signal`,
    expect.stringMatching(`^${job}ran longer than its timeout of 50 ms: its handler ended after 1\\d\\d\\d ms, and its outcome counts$`)])
})

test('a handler that ends at the signal of its timeout by an error has failed, and no other line says so', async () => {
  const queue = await newQueue()
  await penstock.enqueue(pool, queue, { payload: '', timeout: 50 })
  const { lines, logger } = logging()
  const w = started(queue, (_, signal) => new Promise((_, reject) => signal.addEventListener('abort', () => reject(signal.reason))), { logger })
  await until('it ends', () => w.ends.length === 1)
  await w.stop()
  expect(lines).toEqual([expect.stringContaining('failed: TimeoutError: the job ran longer than its timeout of 50 ms')])
})

test('a held group leaves the jobs of other groups that were claimed ahead', async () => {
  const queue = await newQueue()
  let ofB = 0
  const ends: string[] = []
  const w = started(queue, async job => {
    if (job.groupKey === 'b') ofB++
    if (job.text() !== 'hold') return
    await until('jobs of the other group are claimed ahead', async () =>
      (await sql("select running > 0 and ready + running = $2 from penstock.queue_groups($1) where group_key = 'b'", queue, 10 - ofB))[0] as boolean)
    return holdGroup(3_600_000)
  }, { allGroups: true, concurrency: 1, onEnd: (job, end) => ends.push(`${job.groupKey} ${end}`) })
  await penstock.enqueueMany(pool, queue, Array.from({ length: 40 }, () => ({ groupKey: 'quick', payload: '' })))
  await until('it has learned that its handler is quick', () => ends.length === 40)
  await penstock.enqueueMany(pool, queue, ['hold', '', ...Array<string>(10).fill('b')].map(payload => ({ groupKey: payload === 'b' ? 'b' : 'a', payload })))
  await until('one group is held, and the other done', () => ends.includes('a snoozed') && ends.filter(end => end === 'b done').length === 10)
  await w.stop()
  expect(ends).not.toContain('a done')
  expect(ends).not.toContain('b released')
  expect(await status(queue)).toMatchObject({ ready: 2, running: 0 })
})
