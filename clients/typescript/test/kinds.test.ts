import { afterEach, expect, test, vi } from 'vitest'
import { FieldError, deadLetter, defineTask, type End, type Handler, type Handlers, type Queryable, type WorkOptions } from '../src/index.js'
import { advance, runOne } from '../src/testing.js'
import { Strangers } from '../src/work.js'
import { newQueue, penstock, pool, sql, status, until } from './database.js'

afterEach(() => { vi.restoreAllMocks() })

/** Each job that has no handler rests for the longest time, so that a test decides when it comes back. */
const rests = () => vi.spyOn(Strangers.prototype, 'rest').mockReturnValue(10_000)

const never = { penstock: async () => { throw new Error('was sent') } }

test('a job has its kind by every way in, and says so', async () => {
  const queue = await newQueue()
  const kind = 'ä "kind", {braced}'
  await penstock.enqueue(pool, queue, { payload: '1', kind })
  await penstock.enqueueMany(pool, queue, [{ payload: '2', kind, headers: { a: 'b' } }, { payload: '3', headers: { 'penstock-kind': kind } }, { payload: '4', kind: '' }, { payload: '5', kind: null }])
  const writer = penstock.writer(pool)
  writer.enqueue(queue, { payload: '6', kind, headers: { 'penstock-kind': kind } })
  await writer.flush()
  const { jobs } = await penstock.queue(pool, queue).claim({ n: 10 })
  expect(jobs.map(job => [job.text(), job.kind])).toEqual([['1', kind], ['2', kind], ['3', kind], ['4', ''], ['5', ''], ['6', kind]])
  expect(jobs[1]!.headers).toEqual({ a: 'b', 'penstock-kind': kind })
  expect(JSON.parse(JSON.stringify(jobs[0]))).toMatchObject({ kind })
})

test('a kind that no job can have is refused', async () => {
  for (const job of [{ kind: 'x'.repeat(101) }, { kind: 'ä'.repeat(51) }, { kind: 'a\nb' }, { kind: 'a\x7f' }, { kind: 1 as never }, { headers: { 'penstock-kind': 'a\nb' } }, { kind: 'a', headers: { 'penstock-kind': 'b' } }]) {
    await expect(penstock.enqueue(never, 'q', { payload: '', ...job })).rejects.toMatchObject({ name: 'FieldError', field: 'kind' })
  }
})

test('each kind goes to its handler, and one that has none to another worker', async () => {
  rests()
  const queue = await newQueue()
  await penstock.enqueueMany(pool, queue, ['a', 'b', '', 'c'].map(kind => ({ payload: '', kind })))
  const [seen, lines, done]: [string[], string[], string[]] = [[], [], []]
  const taking = (name: string): Handler => job => { seen.push(`${name} ${job.kind} ${job.attempt}`) }
  const ends: [string, End][] = []
  const pauses: number[] = []
  const db: Queryable = { penstock: async (text, values) => {
    if (text.includes('release_many')) pauses.push(parseInt(values[2]!))
    return (await pool.query({ text, values: [...values], rowMode: 'array' })).rows
  } }
  const work = (handlers: Handlers) => {
    const stop = new AbortController()
    const worker = penstock.work(db, queue, handlers, { signal: stop.signal, logger: { warn: line => lines.push(line), debug: line => done.push(line) }, onEnd: (job, end) => ends.push([job.kind, end]) })
    return () => (stop.abort(), worker)
  }
  let stop = work([{ a: taking('first') }, { '': taking('none') }])
  await until('each has ended', () => ends.length === 4)
  await stop()
  expect(ends.sort()).toEqual([['', 'done'], ['a', 'done'], ['b', 'released'], ['c', 'released']])
  expect(await status(queue)).toMatchObject({ delayed: 2, ready: 0 })
  expect(lines.filter(line => /no handler for kind "[bc]" in this worker, which has "", "a"\. .* after 60 min/.test(line))).toHaveLength(2)
  expect(pauses.length).toBeGreaterThan(0)
  for (const pause of pauses) expect(Math.abs(pause - 10e6)).toBeLessThanOrEqual(1.25e6)
  stop = work({ b: taking('second'), c: taking('third') })
  await advance(pool, queue, 12_000)
  await until('the others have ended', () => ends.length === 6)
  await stop()
  expect(seen.sort()).toEqual(['first a 1', 'none  1', 'second b 1', 'third c 1'])
  expect(done.filter(line => /queue .*, job \d+, (kind [abc], )?attempt 1: done in [\d.]+ ms$/.test(line))).toHaveLength(4)
  expect(done).toHaveLength(4)
})

/** aging is a worker that has no handler for the queue's jobs, and a database whose clock is some milliseconds ahead when it claims. */
function aging(queue: string, options: WorkOptions = {}) {
  const stop = new AbortController()
  const clock = { ahead: 0 }
  let ends: End[] = []
  const gone = new Set<string>() // ids of jobs that came back by themselves while this machine was slow
  const db: Queryable = { penstock: async (text, values) => { // the clock of the answer: a claim that was sent before may bring the next job
    const rows = (await pool.query({ text, values: [...values], rowMode: 'array' })).rows
    const leaseUntil = text.includes('from lease_until') ? 9 : -1
    return rows.map(row => row.map((value: string | null, i: number) => (i === leaseUntil && value !== null ? String(Number(value) + clock.ahead) : value)))
  } }
  const worker = penstock.work(db, queue, { welcome: () => {} }, { ...options, signal: stop.signal, logger: { warn() {} }, onEnd: (job, end) => gone.has(`${job.id}`) || ends.push(end) })
  return {
    gone,
    /** How n jobs ended that met the worker so many minutes from now. */
    async met(n: number, minutes: number, bring: () => Promise<unknown> = () => advance(pool, queue, 12_000)): Promise<End[]> {
      clock.ahead = minutes * 60_000
      ends = []
      await bring()
      await until(`${n} have ended`, () => ends.length >= n)
      return ends
    },
    stop: () => (stop.abort(), worker),
  }
}

test('a job that no worker has taken for an hour is a dead letter, if this one has known it for half of that', async () => {
  rests()
  const queue = await newQueue()
  const old = aging(queue)
  expect(await old.met(1, 61, () => penstock.enqueue(pool, queue, { payload: '', kind: 'wel"come' }))).toEqual(['released'])
  for (const minutes of [70, 90]) expect(await old.met(1, minutes)).toEqual(['released'])
  expect(await old.met(1, 92)).toEqual(['dead'])
  await old.stop()
  expect(await sql(`select failures::text from penstock._dead_job where queue = (select id from penstock._queue where name = $1)`, queue)).toEqual([expect.stringContaining(JSON.stringify('no handler for kind "wel\\"come"').slice(1, -1))])

  const short = aging(queue, { giveUp: 120_000 })
  expect(await short.met(1, 3, () => penstock.enqueue(pool, queue, { payload: '', kind: 'other' }))).toEqual(['released'])
  expect(await short.met(1, 3.5)).toEqual(['released'])
  expect(await short.met(1, 4.5)).toEqual(['dead'])
  await short.stop()
})

test('a worker remembers ten thousand such jobs, and forgets those that others have taken', async () => {
  rests()
  const queue = await newQueue()
  const worker = aging(queue, { concurrency: 10_000, batch: 10_000 })
  let ids: string[] = []
  const bring = (n: number) => async () => { ids = (await penstock.enqueueMany(pool, queue, Array.from({ length: n }, () => ({ payload: '', kind: 'strange' })))).map(({ id }) => `${id}`) }
  expect(new Set(await worker.met(10_000, 61, bring(10_000)))).toEqual(new Set(['released']))
  ids.forEach(id => worker.gone.add(id))
  expect(await sql('select penstock.cancel($1, $2::bigint[])', queue, ids)).toEqual([10_000])
  expect(await worker.met(1, 70, bring(1))).toEqual(['released'])
  for (const minutes of [120, 140]) expect(await worker.met(1, minutes), `after ${minutes} minutes`).toEqual(['released'])
  expect(await worker.met(1, 160)).toEqual(['released'])
  expect(await worker.met(1, 171)).toEqual(['dead'])
  await worker.stop()
})

test('a job without a handler rests every other time; else it may be claimed at once, and the worker claims nothing for a while', async () => {
  const queue = await newQueue()
  await penstock.enqueue(pool, queue, { payload: '', kind: 'strange' })
  const calls: [string, number][] = []
  const db: Queryable = { penstock: async (text, values) => {
    const { rows } = await pool.query({ text, values: [...values], rowMode: 'array' })
    if (/release_many|claim/.test(text)) calls.push([text.includes('release_many') ? `released ${parseInt(values[2]!) > 0}` : 'claimed', performance.now()])
    return rows
  } }
  const stop = new AbortController()
  const worker = penstock.work(db, queue, { known: () => {} }, { signal: stop.signal, logger: { warn() {} } })
  await until('it has rested', () => calls.some(([what]) => what === 'released true'))
  stop.abort()
  await worker
  const at = calls.findIndex(([what]) => what === 'released false')
  expect(calls[at + 1]![1] - calls[at]![1]).toBeGreaterThan(50)

  const strangers = new Strangers()
  const met = (...seconds: number[]) => seconds.map(s => strangers.rest({ id: 1n } as never, s * 1000) / 1000)
  expect(met(100, 101, 102, 108, 109, 118, 119, 128)).toEqual([0, 0.5, 0, 4, 0, 9, 0, 10])
  expect(met(200)).toEqual([0]) // it was forgotten
})

test('a crowd of such jobs is given back before more are claimed', async () => {
  rests()
  const queue = await newQueue()
  const kinds = ['strange', 'known']
  await penstock.enqueueMany(pool, queue, Array.from({ length: 200 }, (_, n) => ({ payload: '', kind: kinds[n % 2] })))
  let [giving, overlap] = [0, 0]
  const db: Queryable = { penstock: async (text, values) => {
    const gives = text.includes('release_many')
    if (giving && /claim/.test(text)) overlap++
    if (gives) giving++
    const { rows } = await pool.query({ text, values: [...values], rowMode: 'array' })
    if (gives) giving--
    return rows
  } }
  const stop = new AbortController()
  const ends: End[] = []
  const worker = penstock.work(db, queue, { known: () => {} }, { signal: stop.signal, batch: 10, logger: { warn() {} }, onEnd: (_, end) => ends.push(end) })
  await until('all have ended', () => ends.length === 200)
  stop.abort()
  await worker
  expect([ends.filter(end => end === 'done').length, ends.filter(end => end === 'released').length, overlap]).toEqual([100, 100, 0])
  expect(await status(queue)).toMatchObject({ delayed: 100, ready: 0, running: 0 })
})

test('a handler without a kind takes all, and workTx knows kinds as well', async () => {
  const queue = await newQueue()
  await penstock.enqueueMany(pool, queue, ['a', '', 'b'].map(kind => ({ payload: '', kind })))
  for (const kind of ['a', '']) expect(await runOne(pool, queue, () => {})).toMatchObject({ job: { kind }, end: 'done' })
  const stop = new AbortController()
  const ends: End[] = []
  const worker = penstock.workTx(pool, queue, { a: () => deadLetter('never'), b: async tx => { await tx.query('select 1') } }, { signal: stop.signal, logger: { warn() {} }, onEnd: (_, end) => ends.push(end) })
  await until('it has ended', () => ends.length === 1)
  stop.abort()
  await worker
  expect(ends).toEqual(['settled'])
})

test('handlers that make no sense are refused before a job is claimed', async () => {
  const task = (kind: string, queue: string) => Object.assign(() => {}, { kind, queue })
  const wrong: [string, Handlers][] = [
    ['are none', {}], ['are none', []], ['have none for kind "a"', { a: undefined as never }], ['have two for kind "a"', [{ a: () => {} }, task('a', 'q')]],
    ['no kind', [(() => {}) as never]], ['have a task, a: give what its handle(…) returns', [defineTask({ name: 'a', queue: 'q' }) as never]],
    ['have a task, a', defineTask({ name: 'a', queue: 'q' }) as never], ['task a, whose queue is other, in a worker of q', [task('a', 'other')]], ['control character', { 'a\n': () => {} }],
  ]
  for (const [says, handlers] of wrong) {
    await expect(penstock.work(never, 'q', handlers)).rejects.toThrow(says)
    await expect(penstock.workTx(never as never, 'q', handlers as never)).rejects.toThrow(FieldError)
    await expect(runOne(never, 'q', handlers)).rejects.toThrow(says)
  }
})
