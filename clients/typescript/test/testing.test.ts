import { expect, test } from 'vitest'
import { deadLetter, limited, report, retry, step, type Limits } from '../src/index.js'
import { advance, clear, requireEnqueued, requirePublished, runAll, runOne } from '../src/testing.js'
import { newOutbox, newQueue, penstock, pool, status } from './database.js'

test('requirePublished sees what a transaction has published', async () => {
  const outbox = await newOutbox()
  const client = await pool.connect()
  try {
    await client.query('begin')
    await penstock.publish(client, outbox, { payload: { total: 10 }, key: 'ann', topic: 'order.placed', headers: { h: 'x' } })
    const [message] = await requirePublished(client, outbox, { topic: 'order.placed', key: 'ann' })
    expect(message).toEqual({ id: null, key: 'ann', topic: 'order.placed', headers: { h: 'x' }, payload: Buffer.from('{"total":10}') })
    await requirePublished(client, outbox)
    await requirePublished(client, outbox, { key: 'ann' })
    await expect(requirePublished(client, outbox, { topic: 'order.paid' })).rejects.toThrow('nothing was published')
    await expect(requirePublished(client, outbox, { key: 'bob' })).rejects.toThrow('nothing was published')
  } finally {
    await client.query('rollback')
    client.release()
  }
  await expect(requirePublished(pool, outbox)).rejects.toThrow('nothing was published')
})

test('runOne runs the next job, also of the transaction that enqueued it', async () => {
  const queue = await newQueue()
  expect(await runOne(pool, queue, () => {})).toBeUndefined()
  const client = await pool.connect()
  try {
    await client.query('begin')
    const { id } = await penstock.enqueue(client, queue, { payload: 'hello' })
    expect(await runOne(client, queue, job => expect(job.text()).toBe('hello'))).toMatchObject({ job: { id }, end: 'done' })
    expect(await runOne(client, queue, () => {})).toBeUndefined()
  } finally {
    await client.query('rollback')
    client.release()
  }
  await penstock.enqueue(pool, queue, { payload: '' })
  await expect(runOne(pool, queue, () => { throw new Error('no') })).rejects.toThrow('no')
  expect(await status(queue)).toMatchObject({ delayed: 1 })
})

test('runOne takes the next job of a kind, and otherwise one of any group', async () => {
  const queue = await newQueue()
  for (const [n, kind] of ['welcome', 'invoice', 'welcome', ''].entries()) await penstock.enqueue(pool, queue, { payload: String(n), kind, groupKey: n === 1 ? 'g' : '' })
  const seen: string[] = []
  const run = (kind?: string, groupKey?: string) => runOne(pool, queue, job => { seen.push(job.text()) }, { kind, groupKey })
  expect(await run('invoice', '')).toBeUndefined()
  for (const kind of ['invoice', '', 'welcome', 'welcome']) expect(await run(kind)).toMatchObject({ job: { kind, attempt: 1 }, end: 'done' })
  expect(seen).toEqual(['1', '3', '0', '2'])
  await penstock.enqueue(pool, queue, { payload: '4', groupKey: 'g' })
  expect(await run('welcome')).toBeUndefined()
  expect(await run()).toMatchObject({ job: { groupKey: 'g' } })
})

test.each<[name: string, limits: Limits | undefined, end: 'delayed' | 'dead']>([
  ['without limits', undefined, 'delayed'],
  ['with attempts left', { maxAttempts: 5 }, 'delayed'],
  ['with a timeout', { timeout: 60_000 }, 'delayed'],
  ['with a backoff', { backoff: 60_000 }, 'delayed'],
  ['at its last attempt', { maxAttempts: 1 }, 'dead'],
])('runOne throws the failed expectation of a handler %s', async (_, limits, end) => {
  const queue = await newQueue()
  await penstock.enqueueMany(pool, queue, [{ payload: 'hello' }, { payload: 'no outcome fails the test' }])
  const failed = new Error('expected bye')
  const expects = () => { throw failed }
  const fails = limits ? limited(expects, limits) : expects
  await expect(runOne(pool, queue, fails)).rejects.toBe(failed)
  expect(await status(queue)).toMatchObject({ [end]: 1, ready: 1 })
  const given = () => { throw deadLetter('no such user') }
  expect(await runOne(pool, queue, limits ? limited(given, limits) : given)).toMatchObject({ end: 'dead' })
})

test('advance moves what waits for the clock', async () => {
  const queue = await newQueue()
  const day = 24 * 3_600_000
  await penstock.enqueueMany(pool, queue, [{ payload: 'later', notBefore: new Date(Date.now() + day) }, { payload: 'again' }, { payload: 'held' }])
  expect(await runOne(pool, queue, () => retry(day))).toMatchObject({ end: 'failed' })
  await penstock.queue(pool, queue).claim({ lease: day })
  expect(await status(queue)).toMatchObject({ ready: 0, running: 1, delayed: 2 })
  await advance(pool, queue, day / 2)
  expect(await status(queue)).toMatchObject({ ready: 0, running: 1, delayed: 2 })
  await advance(pool, queue, day)
  expect(await status(queue)).toMatchObject({ ready: 3, running: 0, delayed: 0 })
})

test('a step runs once, and a report comes with the next attempt', async () => {
  const queue = await newQueue()
  await penstock.enqueue(pool, queue, { payload: 'order', headers: { h: '1' } })
  let charged = 0
  const charge = () => ++charged && { receipt: 7 }
  const first = await runOne(pool, queue, async job => {
    expect(await step(job, 'charge', charge)).toEqual({ receipt: 7 })
    expect(await step(job, 'charge', charge)).toEqual({ receipt: 7 })
    await report(job, { rows: 1 })
    await expect(step(job, '', charge)).rejects.toThrow('no name')
    await expect(report(job, 5)).rejects.toThrow('expected an object')
    return retry(0)
  })
  expect(first).toMatchObject({ end: 'failed', job: { report: undefined } })
  const second = await runOne(pool, queue, async job => { expect(await step(job, 'charge', charge)).toEqual({ receipt: 7 }) })
  expect(second).toMatchObject({ end: 'done', job: { report: { 'rows': 1, 'penstock-steps': { charge: { receipt: 7 } } }, headers: { h: '1' } } })
  expect(charged).toBe(1)
})

test('calls of runOne are one worker: a job without a handler dies as there', async () => {
  const queue = await newQueue()
  await penstock.enqueue(pool, queue, { payload: '', kind: 'typo' })
  for (const [minutes, end] of [[0, 'released'], [25, 'released'], [10, 'released'], [25, 'released'], [10, 'dead']] as const) {
    await advance(pool, queue, minutes * 60_000)
    expect(await runOne(pool, queue, { known: () => {} }), `after ${minutes} more minutes`).toMatchObject({ end })
  }
  expect(await status(queue)).toMatchObject({ dead: 1 })
})

test('barriers open in a transaction that does not commit, and runAll runs all to their end', async () => {
  const queue = await newQueue()
  const client = await pool.connect()
  try {
    await client.query('begin')
    const barrier = await penstock.barrier(client, queue)
    for (const part of ['a', 'b']) await penstock.enqueue(client, queue, { payload: part, kind: 'part', groupKey: part, holds: barrier })
    await penstock.enqueue(client, queue, { payload: 'all', kind: 'total', waitsFor: [barrier] })
    await penstock.seal(client, queue, barrier)
    await penstock.enqueue(client, queue, { payload: 'later', kind: 'part', notBefore: new Date(Date.now() + 3_600_000) })
    let fails = 2
    const seen: string[] = []
    const ran = await runAll(client, queue, {
      part: job => { if (job.text() === 'a' && fails-- > 0) throw new Error('not yet') },
      total: job => { seen.push(job.text()) },
    })
    expect(ran.map(({ job, end }) => `${job.text()} ${end}`).sort()).toEqual(['a done', 'a failed', 'a failed', 'all done', 'b done', 'later done'])
    expect(ran.flatMap(({ error }) => error ?? [])).toEqual([new Error('not yet'), new Error('not yet')])
    expect(seen).toEqual(['all'])
    expect(await runAll(client, queue, () => {})).toEqual([])
    await penstock.enqueue(client, queue, { payload: '', kind: 'other' })
    await expect(runAll(client, queue, { part: () => {} })).rejects.toThrow("no handler for kind 'other'")
  } finally {
    await client.query('rollback')
    client.release()
  }
})

test('requireEnqueued compares payloads as JSON, and others by their bytes', async () => {
  const queue = await newQueue()
  await penstock.enqueue(pool, queue, { payload: { to: 'ann', n: 1 } })
  await penstock.enqueue(pool, queue, { payload: 'text' })
  expect(await requireEnqueued(pool, queue, { payload: { n: 1, to: 'ann' } })).toHaveLength(1)
  expect(await requireEnqueued(pool, queue, { payload: 'text' })).toHaveLength(1)
  for (const payload of [{ to: 'ann' }, '{"n":1,"to":"ann"}', 'tex']) await expect(requireEnqueued(pool, queue, { payload })).rejects.toThrow('nothing was enqueued')
})

test('requireEnqueued finds what waits and what is delayed, and clear removes all', async () => {
  const queue = await newQueue()
  const notBefore = new Date(Date.now() + 3_600_000)
  const { id } = await penstock.enqueue(pool, queue, { payload: { to: 'ann' }, kind: 'welcome', key: 'ann', priority: 2, headers: { h: 'x' } })
  await penstock.enqueue(pool, queue, { payload: '', kind: 'later', notBefore, dedupKey: 'once' })
  expect(await requireEnqueued(pool, queue, { kind: 'welcome', key: 'ann' })).toEqual([
    { id, kind: 'welcome', key: 'ann', groupKey: '', priority: 2, notBefore: undefined, headers: { h: 'x' }, payload: Buffer.from('{"to":"ann"}') }])
  expect((await requireEnqueued(pool, queue, { kind: 'later' }))[0]!.notBefore!.getTime()).toBe(notBefore.getTime())
  expect(await requireEnqueued(pool, queue)).toHaveLength(2)
  await expect(requireEnqueued(pool, queue, { kind: 'welcome', key: 'bob' })).rejects.toThrow('there is [{"kind":"later","key":null},{"kind":"welcome","key":"ann"}]')
  expect(await runOne(pool, queue, () => deadLetter('no'))).toMatchObject({ end: 'dead' })
  await penstock.enqueue(pool, queue, { payload: '' })
  await penstock.queue(pool, queue).claim({})
  await clear(pool, queue)
  expect(await status(queue)).toMatchObject({ ready: 0, running: 0, delayed: 0, dead: 0 })
  expect(await penstock.enqueue(pool, queue, { payload: '', dedupKey: 'once' })).toMatchObject({ deduplicated: false })
})
