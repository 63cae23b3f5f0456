import { afterAll, describe, expect, test } from 'vitest'
import { lineOf } from '../src/errors.js'
import { FieldError, Penstock, VersionError, sqlState, type Message, type NewJob } from '../src/index.js'
import { advance } from '../src/testing.js'
import { messages, newInbox, newOutbox, newQueue, penstock, pool, sql, status, url } from './database.js'
import { drivers } from './drivers.js'

const all = drivers(url)
afterAll(() => Promise.all(all.map(driver => driver.end())))
const awkward = 'a "quoted", \\backslashed, {braced}, ?, $1, NULL, ü €'

describe.each(all)('$name', ({ db, begin }) => {
  test('what rolls back was never published, what commits is whole', async () => {
    const outbox = await newOutbox()
    await expect(begin(async tx => {
      await penstock.publish(tx, outbox, { payload: 'lost' })
      await penstock.publishMany(tx, outbox, [{ payload: 'lost, too' }])
      throw new Error('the caller changes his mind')
    })).rejects.toThrow('changes his mind')
    await begin(async tx => {
      await penstock.publish(tx, outbox, { payload: { total: 10 }, key: awkward, topic: awkward, headers: { h: awkward }, id: 'id-1' })
      await penstock.publishMany(tx, outbox, [{ payload: Buffer.from([0, 255]), key: awkward, headers: { h: awkward } }, { payload: awkward }, { payload: '' }])
      await penstock.publishMany(tx, outbox, [])
    })
    const { rows } = await pool.query(`select id, key, topic, headers, payload from penstock."${outbox}" order by seq`)
    expect(rows).toEqual([
      { id: 'id-1', key: awkward, topic: awkward, headers: { h: awkward }, payload: Buffer.from('{"total":10}') },
      { id: null, key: awkward, topic: '', headers: { h: awkward }, payload: Buffer.from([0, 255]) },
      { id: null, key: null, topic: '', headers: null, payload: Buffer.from(awkward) },
      { id: null, key: null, topic: '', headers: null, payload: Buffer.alloc(0) },
    ])
  })

  test('jobs carry everything, and duplicates are told', async () => {
    const queue = await newQueue()
    const due = '2020-02-03T04:05:06.789012Z'
    await begin(async tx => {
      const one = await penstock.enqueue(tx, queue, { payload: [1, null], key: awkward, groupKey: awkward, priority: -16, headers: { h: awkward }, dedupKey: awkward, notBefore: due })
      expect(one.deduplicated).toBe(false)
      expect(typeof one.id).toBe('bigint')
      const more = await penstock.enqueueMany(tx, queue, [{ payload: 'x' }, { payload: '', dedupKey: awkward }, { payload: Buffer.from([0, 255]), priority: 15, notBefore: new Date(0) }])
      expect(more.map(e => e.deduplicated)).toEqual([false, true, false])
      expect(more[1]!.id).toBe(one.id)
      expect(await penstock.enqueueMany(tx, queue, [])).toEqual([])
    })
    const [job] = await penstock.queue(db, queue).dequeue(1, awkward)
    expect(job).toMatchObject({ key: awkward, groupKey: awkward, priority: -16, attempt: 1, headers: { h: awkward }, lease: 0n })
    expect(job!.json()).toEqual([1, null])
    const rest = await penstock.queue(db, queue).dequeue(10)
    expect(rest.map(j => [j.payload.toString('hex'), j.key, j.headers])).toEqual([['78', '', {}], ['00ff', '', {}]])
    expect(Math.abs(rest[0]!.createdAt.getTime() - Date.now())).toBeLessThan(3_600_000)
  })

  test('unique jobs, and limits of one job', async () => {
    const queue = await newQueue()
    await begin(async tx => {
      const one = await penstock.enqueue(tx, queue, { payload: 'a', uniqueKey: awkward, maxAttempts: 3, timeout: 1500, deadline: '2100-01-01T00:00:00Z' })
      const more = await penstock.enqueueMany(tx, queue, [
        { payload: 'b', uniqueKey: awkward, onConflict: 'debounce', debounceMax: 60_000, maxAttempts: 3, timeout: 1500, deadline: new Date('2100-01-01T00:00:00Z') }, { payload: 'c', uniqueKey: 'v' },
        { payload: 'late', deadline: new Date(0) },
      ])
      expect(more.map(e => e.deduplicated)).toEqual([true, false, false])
      expect([one.deduplicated, more[0]!.id]).toEqual([false, one.id])
    })
    const { jobs } = await penstock.queue(db, queue).claim({ n: 10 })
    expect(jobs.map(j => [j.key, j.text()])).toEqual([[awkward, 'b'], ['v', 'c']])
    expect(jobs[0]!.headers).toEqual({
      'penstock-unique-key': awkward, 'penstock-on-conflict': 'debounce', 'penstock-debounce-max': '60', 'penstock-max-attempts': '3', 'penstock-timeout': '1.5',
      'penstock-deadline': '2100-01-01T00:00:00.000Z',
    })
    for (const [field, job] of [
      ['uniqueKey', { uniqueKey: 'u', key: 'k' }], ['onConflict', { uniqueKey: 'u', onConflict: 'merge' }], ['onConflict', { onConflict: 'replace' }],
      ['debounceMax', { uniqueKey: 'u', debounceMax: 1000 }], ['maxAttempts', { maxAttempts: 0 }], ['maxAttempts', { maxAttempts: 2, headers: { 'penstock-max-attempts': '3' } }],
      ['timeout', { timeout: 0 }], ['deadline', { deadline: 'tomorrow' }],
      ['holds', { holds: 0n }], ['waitsFor', { waitsFor: Array(101).fill(1n) }], ['onDead', { waitsFor: [1n], onDead: 'die' }],
    ] as [string, Partial<NewJob>][]) {
      await expect(penstock.enqueue(db, queue, { payload: '', ...job })).rejects.toMatchObject({ name: 'FieldError', field })
    }
  })

  test('an inbox knows what it has received', async () => {
    const inbox = penstock.inbox(await newInbox())
    await begin(async tx => {
      expect(await inbox.first(tx, awkward)).toBe(true)
      expect(await inbox.first(tx, awkward)).toBe(false)
    })
    await begin(async tx => expect(await inbox.first(tx, awkward)).toBe(false))
  })

  test('errors of the database keep their code', async () => {
    for (const [step, call] of [ // the server's hint, where it has one
      ["penstock outbox create 'none'", () => penstock.publish(db, 'none', { payload: '' })],
      ['penstock outbox create NAME', () => penstock.publishMany(db, 'none', [{ payload: '' }])], // an INSERT
      ["penstock queue create 'none'", () => penstock.enqueue(db, 'none', { payload: '' })],
      ["select penstock.create_inbox('none')", () => penstock.inbox('none').first(db, 'x')],
      ["penstock queue create 'none'", () => penstock.queue(db, 'none').claim()],
    ] as [string, () => Promise<unknown>][]) {
      const err = await call().then(() => undefined, (err: unknown) => err)
      expect(sqlState(err)).toBe('42P01')
      expect(err).toMatchObject({ name: 'NotFoundError', message: expect.stringContaining(step) })
    }
    await expect(new Penstock({ schema: 'none' }).enqueue(db, 'q', { payload: '' })).rejects.toThrow(VersionError)
    expect(sqlState(new Error('none'))).toBeUndefined()
  })

  test('a writer writes what it has with one statement', async () => {
    const [a, b, q, r] = [await newOutbox(), await newOutbox(), await newQueue(), await newQueue()]
    await begin(async tx => {
      const writer = penstock.writer(tx)
      for (const n of [1, 2, 3]) {
        await writer.publish(a, { payload: `a${n}`, key: awkward })
        await writer.publish(b, { payload: `b${n}` })
      }
      const first = writer.enqueue(q, { payload: 'j', dedupKey: 'once' })
      const second = writer.enqueue(q, { payload: 'j', dedupKey: 'once' })
      const other = writer.enqueue(r, { payload: '' })
      expect(await sql(`select count(*)::int from penstock."${a}"`)).toEqual([0])
      expect(await second.enqueued()).toEqual({ id: (await first.enqueued()).id, deduplicated: true })
      expect((await other.enqueued()).deduplicated).toBe(false)
      await writer.flush()
    })
    expect(await messages(a)).toEqual(['a1', 'a2', 'a3'])
    expect(await messages(b)).toEqual(['b1', 'b2', 'b3'])
    expect((await status(q)).ready + (await status(r)).ready).toBe(2)
  })
})

test('a code of Node.js or of Prisma is no SQLSTATE', () => {
  const failed = (more: object) => Object.assign(new Error('write EPIPE'), more)
  for (const code of ['EPIPE', 'EBUSY', 'E2BIG', 'P2010']) expect(sqlState(failed({ code, syscall: 'write' })), code).toBeUndefined()
  expect(sqlState(new Error('the query failed', { cause: failed({ code: 'EPIPE', cause: { code: '40001' } }) }))).toBe('40001')
  expect(sqlState(failed({ code: 'P0001' }))).toBe('P0001')
  expect(sqlState(failed({ code: 'EMAIL', severity: 'ERROR' }))).toBe('EMAIL') // of a program's own trigger
  expect(lineOf(failed({ code: 'EPIPE' }))).toBe('write EPIPE')
})

test('a writer writes by itself when it is full, with one statement each time', async () => {
  const outbox = await newOutbox()
  let statements = 0
  const counting = { penstock: async (text: string, values: readonly (string | null)[]) => (statements++, (await pool.query({ text, values: [...values], rowMode: 'array' })).rows) }
  const writer = penstock.writer(counting, { flushAt: 10 })
  for (let n = 0; n < 25; n++) await writer.publish(outbox, { payload: `${n}` })
  expect(statements).toBe(2)
  await writer.flush()
  await writer.flush()
  expect(statements).toBe(3)
  expect(await messages(outbox)).toEqual(Array.from({ length: 25 }, (_, n) => `${n}`))
})

test('a writer whose calls are not awaited refuses a message at once, and flush has the error of a write', async () => {
  const outbox = await newOutbox()
  const client = await pool.connect()
  await client.query('begin')
  const writer = penstock.writer(client, { flushAt: 2 })
  expect(() => void writer.publish(outbox, { payload: '', key: 'x'.repeat(1025) })).toThrow(FieldError)
  for (const name of [outbox, 'none']) void writer.publish(name, { payload: '' })
  await expect(writer.flush()).rejects.toThrow('"penstock.none" does not exist')
  await client.query('rollback')
  client.release()
})

test('bytes are bytes in each of their forms, and what JSON would make empty is refused', async () => {
  const queue = await newQueue()
  const { buffer } = Uint8Array.of(9, 0, 255, 9)
  for (const payload of [buffer.slice(1, 3), new DataView(buffer, 1, 2)]) await penstock.enqueue(pool, queue, { payload })
  expect((await penstock.queue(pool, queue).claim({ n: 2 })).jobs.map(job => [...job.payload])).toEqual([[0, 255], [0, 255]])
  for (const payload of [Promise.resolve('x'), new Map([['a', 1]]), new Set(['a'])]) {
    await expect(penstock.enqueue(pool, queue, { payload })).rejects.toMatchObject({ field: 'payload' })
  }
})

test('a writer that failed says so at every flush', async () => {
  const writer = penstock.writer(pool)
  const pending = writer.enqueue('none', { payload: '' })
  await expect(writer.flush()).rejects.toThrow('there is no queue')
  await expect(pending.enqueued()).rejects.toThrow('there is no queue')
  await expect(writer.flush()).rejects.toThrow('there is no queue')
})

test('what the database could not carry is refused before anything is sent', async () => {
  const never = { penstock: async () => { throw new Error('was sent') } }
  const long = 'x'.repeat(2000)
  const cycle: { of?: object } = {}
  cycle.of = cycle
  const badMessages: [string, Message][] = [
    ['payload', { payload: Buffer.alloc((64 << 20) + 1) }], ['payload', { payload: '\ud800' }], ['payload', { payload: (() => {}) as object }], ['payload', { key: 'a' } as Message], ['payload', { payload: undefined as never }],
    ['payload', { payload: { total: 10n } }], ['payload', { payload: cycle }],
    ['key', { payload: '', key: long }], ['key', { payload: '', key: 'a\0' }], ['key', { payload: '', key: '\udc00' }], ['topic', { payload: '', topic: long }], ['id', { payload: '', id: 'x'.repeat(257) }], ['id', { payload: '', id: 'a\nb' }],
    ['headers', { payload: '', headers: { '': 'x' } }], ['headers', { payload: '', headers: { a: 'x'.repeat(65536) } }], ['headers', { payload: '', headers: { a: 1 as unknown as string } }], ['headers', { payload: '', headers: { a: '\0' } }],
  ]
  const badJobs: [string, NewJob][] = [
    ['groupKey', { payload: '', groupKey: 'x'.repeat(257) }], ['dedupKey', { payload: '', dedupKey: 'x'.repeat(257) }], ['priority', { payload: '', priority: 16 }], ['priority', { payload: '', priority: 0.5 }],
    ...['2026-03-29T02:30:00', '2026-03-29', '29 March 2026 01:00 UTC', '5', '2026-02-30T00:00:00Z'].flatMap(at => [['notBefore', { payload: '', notBefore: at }], ['deadline', { payload: '', deadline: at }]] as [string, NewJob][]),
    ['notBefore', { payload: '', notBefore: new Date(NaN) }], ['notBefore', { payload: '', notBefore: new Date(Date.UTC(10000, 0)) }],
  ]
  for (const [field, message] of badMessages) {
    await expect(penstock.publishMany(never, 'o', [{ payload: '' }, message])).rejects.toMatchObject({ name: 'FieldError', field, message: expect.stringContaining('2 of 2') })
    await expect(penstock.publish(never, 'o', message)).rejects.toThrow(FieldError)
  }
  for (const [field, job] of badJobs) await expect(penstock.enqueue(never, 'q', job)).rejects.toMatchObject({ name: 'FieldError', field })
})

test('what JSON cannot hold is named', async () => {
  const never = { penstock: async () => { throw new Error('was sent') } }
  const cycle: { self?: object } = {}
  cycle.self = cycle
  for (const [payload, says] of [[{ order: { total: 10n } }, /payload .*BigInt.* at "total"; give String/], [10n as never, /payload .*BigInt/], [cycle, /payload .*circular.*'self'/], [undefined as never, /payload is missing/]] as const) {
    await expect(penstock.enqueue(never, 'q', { payload })).rejects.toThrow(says)
  }
})

test('what became of a job can be logged as JSON', async () => {
  const queue = await newQueue()
  const made = await penstock.enqueue(pool, queue, { payload: { to: 'ann' }, key: 'k' })
  expect(JSON.parse(JSON.stringify(made))).toEqual({ id: String(made.id), deduplicated: false })
  const { jobs: [job] } = await penstock.queue(pool, queue).claim()
  expect(JSON.parse(JSON.stringify(job))).toMatchObject({ id: String(made.id), lease: String(job!.lease), key: 'k', attempt: 1, payload: '{"to":"ann"}' })
})

test('anything else is no transaction', async () => {
  await expect(penstock.publish({} as never, 'o', { payload: '' })).rejects.toThrow(TypeError)
  await expect(penstock.publish(undefined as never, 'o', { payload: '' })).rejects.toThrow(TypeError)
})

test('a client and a schema whose versions do not fit say so', async () => {
  await penstock.check(pool)
  await expect(new Penstock({ schema: 'none' }).check(pool)).rejects.toMatchObject({ name: 'VersionError', message: expect.stringContaining('penstock migrate') })
  for (const version of ['1', '99999']) {
    const other = { penstock: async (text: string) => (await pool.query(text, [version])).rows }
    await expect(penstock.check(other)).rejects.toMatchObject({ name: 'VersionError', message: expect.stringMatching(/use a newer client|penstock migrate/) })
  }
})

test('names are quoted', async () => {
  const outbox = 'a "b" $1 ?'
  await sql('select penstock.create_outbox($1)', outbox)
  for (const { db } of all) await penstock.publishMany(db, outbox, [{ payload: 'x' }])
  expect(await sql('select count(*)::int from penstock."a ""b"" $1 ?"')).toEqual([all.length])
})

test('a member that no job has is refused, and a claimed job may be enqueued again', async () => {
  for (const [field, message] of [['runAt', 'notBefore'], ['attempts', 'maxAttempts'], ['data', 'payload'], ['constructor', 'is not a field of a job']] as const) {
    await expect(penstock.enqueue({ penstock: async () => [] }, 'q', { payload: '', [field]: 5000 } as NewJob)).rejects.toMatchObject({ name: 'FieldError', field, message: expect.stringContaining(message) })
  }
  const queue = await newQueue()
  await penstock.enqueue(pool, queue, { payload: 'hello', ...{ runAt: undefined } })
  const { jobs: [job] } = await penstock.queue(pool, queue).claim()
  await penstock.enqueue(pool, queue, job!)
  expect(await status(queue)).toMatchObject({ running: 1, ready: 1 })
})

test('a delay is from now', async () => {
  const queue = await newQueue()
  await penstock.enqueueMany(pool, queue, [{ payload: 'later', delay: 3_600_000 }, { payload: 'now', delay: 0 }])
  expect((await penstock.queue(pool, queue).claim({ n: 2 })).jobs.map(job => job.text())).toEqual(['now'])
  expect(await status(queue)).toMatchObject({ delayed: 1 })
  const claim = async () => (await penstock.queue(pool, queue).claim({ n: 2 })).jobs.map(job => job.text())
  await advance(pool, queue, 3_000_000)
  expect(await claim()).not.toContain('later')
  await advance(pool, queue, 601_000)
  expect(await claim()).toContain('later')
  for (const delay of [-1, NaN, Infinity, '5m' as unknown as number]) await expect(penstock.enqueue(pool, queue, { payload: '', delay })).rejects.toMatchObject({ name: 'FieldError', field: 'delay' })
  await expect(penstock.enqueue(pool, queue, { payload: '', delay: 1, notBefore: new Date() })).rejects.toMatchObject({ field: 'delay', message: expect.stringContaining('notBefore') })
})
