import { PrismaPg } from '@prisma/adapter-pg'
import { afterAll, expect, test } from 'vitest'
import { deadLetter, sqlState, type End, type Queryable } from '../../src/index.js'
import { messages, newInbox, newOutbox, newQueue, penstock, until, url } from '../database.js'
import { Prisma, PrismaClient } from './generated/client.js'

const prisma = new PrismaClient({ adapter: new PrismaPg({ connectionString: url }) })
afterAll(() => prisma.$disconnect())

// Checked by tsc: Penstock accepts the client and its transaction.
const taken: (tx: Prisma.TransactionClient | PrismaClient) => Queryable = tx => tx

test("publish, enqueue and inbox in Prisma's transaction", async () => {
  const [outbox, queue, inbox] = [await newOutbox(), await newQueue(), penstock.inbox(await newInbox())]
  const awkward = 'a "quoted", \\backslashed, {braced}, ?, $1, NULL, ü €'
  await expect(prisma.$transaction(async tx => {
    await penstock.publish(tx, outbox, { payload: 'lost' })
    throw new Error('the caller changes his mind')
  })).rejects.toThrow('changes his mind')
  await prisma.$transaction(async tx => {
    await penstock.publish(taken(tx), outbox, { payload: awkward, key: awkward, headers: { h: awkward } })
    await penstock.publishMany(tx, outbox, [{ payload: Buffer.from([48, 49]) }, { payload: '' }])
    const [one, again] = await penstock.enqueueMany(tx, queue, [{ payload: awkward, dedupKey: 'once', notBefore: new Date(0) }, { payload: awkward, dedupKey: 'once' }])
    expect(again).toEqual({ id: one!.id, deduplicated: true })
    expect(await inbox.first(tx, awkward)).toBe(true)
    expect(await inbox.first(tx, awkward)).toBe(false)
    const writer = penstock.writer(tx)
    await writer.publish(outbox, { payload: 'written' })
    await writer.flush()
  })
  expect(await messages(outbox)).toEqual([awkward, '01', '', 'written'])
  const [job] = await penstock.queue(prisma, queue).dequeue()
  expect([job!.text(), typeof job!.id]).toEqual([awkward, 'bigint'])
})

test("Prisma's errors keep PostgreSQL's code", async () => {
  expect(sqlState(await penstock.enqueue(prisma, 'none', { payload: '' }).catch((err: unknown) => err))).toBe('42P01')
  expect(sqlState(await penstock.publish(prisma, 'none', { payload: '' }).catch((err: unknown) => err))).toBe('42P01')
})

test('workTx commits what the handler writes and the end of its job', async () => {
  const [outbox, queue] = [await newOutbox(), await newQueue()]
  await penstock.enqueueMany(prisma, queue, [{ payload: 'done' }, { payload: 'dead' }])
  const stop = new AbortController()
  const ends: End[] = []
  const worker = penstock.workTx(prisma, queue, async (tx, job) => {
    await penstock.publish(tx, outbox, { payload: job.text() })
    return job.text() === 'dead' ? deadLetter('never') : undefined
  }, { signal: stop.signal, logger: { warn() {} }, concurrency: 2, onEnd: (_, end) => ends.push(end) })
  await until('both have ended', () => ends.length === 2)
  stop.abort()
  await worker
  expect(ends.sort()).toEqual(['dead', 'settled'])
  expect(await messages(outbox)).toEqual(['done'])
})
