import { type } from 'arktype'
import { expectTypeOf } from 'expect-type'
import type { Pool, PoolClient } from 'pg'
import * as v from 'valibot'
import { expect, test } from 'vitest'
import { z } from 'zod'
import { Penstock, defineTask, type End, type StandardSchemaV1, type Task } from '../src/index.js'
import { runOne } from '../src/testing.js'
import { newQueue, penstock, pool, sql, status, until } from './database.js'

const never = { penstock: async () => { throw new Error('was sent') } }
const failuresOf = (queue: string) => sql(`select failures::text from penstock._dead_job where queue = (select id from penstock._queue where name = $1)`, queue)

interface Mail { to: string, copies?: number }

test('a task writes its kind and JSON, and its handler gets the value', async () => {
  const queue = await newQueue()
  const welcome = defineTask<Mail>({ name: 'welcome', queue })
  const note = defineTask<string>({ name: 'note', queue })
  const { id } = await welcome.enqueue(pool, { to: 'ann' }, { key: 'ann', headers: { a: 'b' } })
  await penstock.enqueueMany(pool, queue, await Promise.all(['x', ''].map(text => note.job(text, { priority: 1 }))))
  const seen: unknown[] = []
  const handlers = [
    welcome.handle((mail, job, signal) => {
      expectTypeOf(mail).toEqualTypeOf<Mail>()
      expect(signal.aborted).toBe(false)
      seen.push([mail, job.id, job.kind, job.key, job.headers['a'], job.text()])
    }),
    note.handle(text => { seen.push(text) }),
  ]
  for (let n = 0; n < 3; n++) expect(await runOne(pool, queue, handlers)).toMatchObject({ end: 'done' })
  expect(seen).toEqual([[{ to: 'ann' }, id, 'welcome', 'ann', 'b', '{"to":"ann"}'], 'x', ''])
})

test('the handler of a task has its transaction in workTx', async () => {
  const queue = await newQueue()
  const welcome = defineTask<Mail>({ name: 'welcome', queue })
  const bye = defineTask<Mail>({ name: 'bye', queue })
  await sql(`create table ${queue}_sent (name text)`)
  const stop = new AbortController()
  const ends: End[] = []
  const worker = penstock.workTx(pool, queue, [
    welcome.handleTx(async (tx, mail, job) => {
      expectTypeOf(tx).toEqualTypeOf<PoolClient>()
      await tx.query(`insert into ${queue}_sent values ($1)`, [`${mail.to} ${job.kind}`])
    }),
    bye.handleTx<PoolClient>(async (tx, mail) => { await tx.query(`insert into ${queue}_sent values ($1)`, [mail.to]) }),
    { '': async tx => { await tx.query(`insert into ${queue}_sent values ('none')`) } },
  ], { signal: stop.signal, logger: { warn() {} }, onEnd: (_, end) => ends.push(end) })
  await welcome.enqueue(pool, { to: 'ann' })
  await bye.enqueue(pool, { to: 'bob' })
  await penstock.enqueue(pool, queue, { payload: 'what no task reads' })
  await until('all have ended', () => ends.length === 3)
  stop.abort()
  await worker
  expect(ends).toEqual(['settled', 'settled', 'settled'])
  expect((await sql(`select name from ${queue}_sent`)).sort()).toEqual(['ann welcome', 'bob', 'none'])
})

// The same rules in three libraries: `to` is text of three characters or more, `copies` is 1 where it is not given, `at` becomes a Date.
const libraries: [string, StandardSchemaV1<{ to: string, copies?: number | undefined, at: string }, { to: string, copies: number, at: Date }>][] = [
  ['zod', z.object({ to: z.string().min(3), copies: z.number().default(1), at: z.iso.datetime().transform(at => new Date(at)) })],
  ['valibot', v.object({ to: v.pipe(v.string(), v.minLength(3)), copies: v.optional(v.number(), 1), at: v.pipe(v.string(), v.isoTimestamp(), v.transform(at => new Date(at))) })],
  ['arktype', type({ to: 'string >= 3', copies: 'number = 1', at: 'string.date.iso.parse' })],
]

test.each(libraries)('a schema of %s checks what is enqueued and makes what the handler gets', async (_, schema) => {
  const queue = await newQueue()
  const welcome = defineTask({ name: 'welcome', queue, schema })
  const at = '2026-02-03T04:05:06.000Z'
  await expect(welcome.enqueue(never, { to: 'x', at })).rejects.toMatchObject({ name: 'FieldError', field: 'payload', message: expect.stringMatching(/task welcome: to\b/) })
  await expect(welcome.enqueue(never, { to: 'ann' } as never)).rejects.toThrow(/task welcome: .*at\b/)
  // A Date would be text in JSON, which this schema takes.
  await welcome.enqueue(pool, { to: 'ann', at: new Date(at) as never })
  await penstock.enqueue(pool, queue, { kind: 'welcome', payload: { to: 1, at } })
  await penstock.enqueue(pool, queue, { kind: 'welcome', payload: '{' })
  const seen: unknown[] = []
  const handler = welcome.handle(mail => {
    expectTypeOf(mail).toEqualTypeOf<{ to: string, copies: number, at: Date }>()
    seen.push(mail)
  })
  expect(await runOne(pool, queue, [handler])).toMatchObject({ end: 'done' })
  for (let n = 0; n < 2; n++) expect(await runOne(pool, queue, handler)).toMatchObject({ end: 'dead', job: { attempt: 1 } })
  expect(seen).toEqual([{ to: 'ann', copies: 1, at: new Date(at) }])
  expect(await failuresOf(queue)).toEqual(expect.arrayContaining([expect.stringContaining('reading the payload: SyntaxError'), expect.stringMatching(/reading the payload: to\b/)]))
})

test('a schema may ask somebody, and one that fails is not the payload’s fault', async () => {
  const queue = await newQueue()
  let fails = false
  const schema: StandardSchemaV1<Mail, Mail> = { '~standard': { version: 1, vendor: 'test', async validate(mail) {
    if (fails) throw new Error('the directory is away')
    return (mail as Mail).to === 'nobody' ? { issues: [{ message: 'is not known', path: [{ key: 'to' }, 0] }, { message: 'is a pity' }] } : { value: mail as Mail }
  } } }
  const welcome = defineTask({ name: 'welcome', queue, schema })
  await expect(welcome.enqueue(never, { to: 'nobody' })).rejects.toThrow('task welcome: to.0: is not known; is a pity')
  await welcome.enqueue(pool, { to: 'ann' })
  fails = true
  await expect(runOne(pool, queue, [welcome.handle(() => {})])).rejects.toThrow('the directory is away')
  expect(await status(queue)).toMatchObject({ delayed: 1, dead: 0 })
})

test('what is no task, or no payload of one, is refused', async () => {
  expect(() => defineTask({ name: '', queue: 'q' })).toThrow('name is empty')
  expect(() => defineTask({ name: 'a\nb', queue: 'q' })).toThrow('control character')
  expect(() => defineTask({ name: 'a' } as never)).toThrow('queue')
  const task = defineTask<any>({ name: 'a', queue: 'q' })
  for (const value of [undefined, 10n, () => {}]) await expect(task.enqueue(never, value)).rejects.toMatchObject({ field: 'payload' })
  await expect(task.enqueue(never, null, { priority: 99 })).rejects.toMatchObject({ field: 'priority' })
  await expect(task.enqueue(never, null, { headers: { 'penstock-kind': 'b' } })).rejects.toMatchObject({ field: 'kind' })
  await expect(penstock.work(never, 'other', [task.handle(() => {})])).rejects.toThrow('task a, whose queue is q')
  // Another schema of the database.
  await expect(defineTask({ name: 'a', queue: 'q', penstock: new Penstock({ schema: 'none' }) }).enqueue(pool, null)).rejects.toMatchObject({ name: 'VersionError' })
})

test('types of tasks', () => {
  const schema = z.object({ to: z.string(), at: z.string().transform(at => new Date(at)) })
  const inferred = defineTask({ name: 'a', queue: 'q', schema })
  expectTypeOf(inferred).toEqualTypeOf<Task<{ to: string, at: string }, { to: string, at: Date }>>()
  expectTypeOf(defineTask<Mail>({ name: 'a', queue: 'q' })).toEqualTypeOf<Task<Mail>>()
  expectTypeOf(defineTask<Mail>({ name: 'a', queue: 'q', schema: z.object({ to: z.string(), copies: z.number().optional() }) })).toEqualTypeOf<Task<Mail>>()
  const uses = (db: Pool) => [
    // @ts-expect-error the payload has another type
    inferred.enqueue(db, { to: 1, at: '' }),
    // @ts-expect-error the kind is the task's
    inferred.enqueue(db, { to: '', at: '' }, { kind: 'b' }),
    // @ts-expect-error the schema makes something else
    defineTask<Mail>({ name: 'a', queue: 'q', schema: z.object({ to: z.number() }) }),
    penstock.work(db, 'q', [inferred.handle(mail => { expectTypeOf(mail.at).toEqualTypeOf<Date>() }), { b: job => { job.json<Mail>().to }, '': async () => {} }]),
    penstock.work(db, 'q', { b: inferred.handle(() => {}) }),
    // @ts-expect-error it wants a transaction
    penstock.work(db, 'q', [inferred.handleTx<PoolClient>(() => {})]),
  ]
  expect(uses).toBeTypeOf('function')
})
