// What a program without types gives: an option that there is not, or one of another type.
import { expect, test } from 'vitest'
import { FieldError, Penstock, defineTask, limited } from '../src/index.js'
import { requireEnqueued, requirePublished, runAll, runOne } from '../src/testing.js'
import { penstock } from './database.js'

const never = { penstock: async () => { throw new Error('was sent') } }
const emails: any = penstock.queue(never, 'emails')
const any: any = penstock
const handler = () => {}
const task: any = defineTask({ name: 'welcome', queue: 'emails' })

const calls: [name: string, call: (given: any) => unknown, option: string, says: string][] = [
  ['publish', given => any.publish(never, 'o', { payload: '', ...given }), 'topc', 'is not a field of a message; did you mean topic?'],
  ['publishMany', given => any.publishMany(never, 'o', [{ payload: '', ...given }]), 'Key', 'did you mean key?'],
  ['publishAfter', given => any.publishAfter(never, 'emails', [1n], 'o', { payload: '', ...given }), 'header', 'did you mean headers?'],
  ['enqueue', given => any.enqueue(never, 'emails', { payload: '', ...given }), 'priorty', 'is not a field of a job; did you mean priority?'],
  ['enqueueMany', given => any.enqueueMany(never, 'emails', [{ payload: '', ...given }]), 'groupkey', 'did you mean groupKey?'],
  ['the enqueue of a writer', given => any.writer(never).enqueue('emails', { payload: '', ...given }), 'max_attempts', 'did you mean maxAttempts?'],
  ['the enqueue of a task', given => task.enqueue(never, { to: 'ann' }, given), 'prioritty', 'did you mean priority?'],
  ['the job of a task', given => task.job({ to: 'ann' }, given), 'dedupkey', 'did you mean dedupKey?'],
  ['schedule', given => emails.schedule('n', '* * * * *', { payload: '', ...given }), 'delay', 'is not a field of a job of a schedule; there are: payload, kind'],
  ['the options of schedule', given => emails.schedule('n', '* * * * *', { payload: '' }, given), 'skipoverlap', 'did you mean skipOverlap?'],
  ['work', given => any.work(never, 'emails', handler, given), 'concurency', 'is not an option of a worker; did you mean concurrency?'],
  ['workTx', given => any.workTx(never, 'emails', handler, given), 'drainTimout', 'did you mean drainTimeout?'],
  ['new Penstock', given => new Penstock(given), 'shema', 'did you mean schema?'],
  ['writer', given => any.writer(never, given), 'flushat', 'did you mean flushAt?'],
  ['limited', given => limited(handler, given), 'maxAttempt', 'did you mean maxAttempts?'],
  ['defineTask', given => defineTask({ name: 'a', queue: 'q', ...given }), 'timeOut', 'did you mean timeout?'],
  ['claim', given => emails.claim(given), 'prefetch', 'is not an option of claim; there are: n, groupKey, lease, worker, acks'],
  ['claimGroups', given => emails.claimGroups(new Map([['a', 1]]), given), 'leas', 'did you mean lease?'],
  ['create', given => emails.create(given), 'ordring', 'is not an option of create; did you mean ordering?'],
  ['deadJobs', given => emails.deadJobs(given), 'limit', 'is not an option of deadJobs; there are: most, after'],
  ['setGroup', given => emails.setGroup('a', given), 'maxRuning', 'is not a limit of a group; did you mean maxRunning?'],
  ['groupPolicies', given => emails.groupPolicies(given), 'mosts', 'did you mean most?'],
  ['requirePublished', given => requirePublished(never, 'o', given), 'topik', 'did you mean topic?'],
  ['requireEnqueued', given => requireEnqueued(never, 'emails', given), 'kinds', 'did you mean kind?'],
  ['runOne', given => runOne(never, 'emails', handler, given), 'groupkey', 'did you mean groupKey?'],
  ['runAll', given => runAll(never, 'emails', handler, given), 'shema', 'did you mean schema?'],
]

test.each(calls)('%s: an option that it does not have is named, with the one that is meant', async (_, call, field, says) => {
  await expect((async () => { await call({ [field]: 1 }) })()).rejects.toMatchObject({ name: 'FieldError', field, message: expect.stringContaining(`${field} is not `) })
  await expect((async () => { await call({ [field]: 1 }) })()).rejects.toThrow(says)
})

test.each([ // of BullMQ, pg-boss and Graphile Worker
  ['attempts', 'use maxAttempts'], ['jobId', 'use uniqueKey'], ['startAfter', 'use notBefore'], ['retryLimit', 'use maxAttempts'], ['singletonKey', 'use uniqueKey'],
  ['backoff', 'use limited(handler, { backoff }) in the worker'], ['repeat', 'use schedule of a queue'],
])('what other queues call %s', async (field, says) => {
  await expect(job({ [field]: 1 })).rejects.toThrow(`${field} is not a field of a job; ${says}`)
})

test('what other queues call lockDuration', async () => {
  await expect(work({ lockDuration: 30_000 })).rejects.toThrow('lockDuration is not an option of a worker; use lease')
  await expect(work({ workers: 3 })).rejects.toThrow('workers is not an option of a worker; use concurrency')
})

const job = (given: object) => any.enqueue(never, 'emails', { payload: '', ...given })
const work = (given: object) => any.work(never, 'emails', handler, given)

test.each<[says: string, call: () => unknown]>([
  ['delay is the string "5", expected a number of milliseconds', () => job({ delay: '5' })],
  ['priority is the string "1", expected a number', () => job({ priority: '1' })],
  ['timeout is the string "30s", expected a number of milliseconds', () => job({ timeout: '30s' })],
  ['kind is the number 5, expected a string', () => job({ kind: 5 })],
  ['notBefore is the number 5, expected a Date, or a string', () => job({ notBefore: 5 })],
  ['holds is the number 5, expected a bigint', () => job({ holds: 5 })],
  ['waitsFor is an array, expected an array of bigint', () => job({ waitsFor: ['1'] })],
  ['waitsFor is the bigint 1, expected an array of bigint', () => any.publishAfter(never, 'emails', 1n, 'o', { payload: '' })],
  ['headers is an array, expected an object', () => job({ headers: ['a'] })],
  ['key is the number 42, expected a string', () => any.publish(never, 'o', { payload: '', key: 42 })],
  ['job is the string "ann", expected an object with: payload, kind', () => any.enqueue(never, 'emails', 'ann')],
  ['job is undefined, expected an object with', () => any.enqueue(never, 'emails')],
  ['message is the string "ann", expected an object with: payload, key', () => any.publish(never, 'o', 'ann')],
  ['jobs is an object (Object), expected an array', () => any.enqueueMany(never, 'emails', { payload: '' })],
  ['messages is an object (Object), expected an array', () => any.publishMany(never, 'o', { payload: '' })],
  ['2 of 2: key is the boolean true', () => any.publishMany(never, 'o', [{ payload: '' }, { payload: '', key: true }])],
  ['concurrency is the string "20", expected a number', () => work({ concurrency: '20' })],
  ['worker is the number 20, expected an object with: concurrency', () => any.work(never, 'emails', handler, 20)],
  ['groups is the string "a", expected an array of strings', () => work({ groups: 'a' })],
  ['allGroups is the string "no", expected true or false', () => work({ allGroups: 'no' })],
  ['signal is an object (AbortController), expected an AbortSignal', () => work({ signal: new AbortController() })],
  ['onEnd is the boolean true, expected a function', () => work({ onEnd: true })],
  ['logger is an object (Object), expected an object with a function warn', () => work({ logger: {} })],
  ['lease is null, expected a number of milliseconds', () => work({ lease: null })],
  ['handlers is undefined, expected a function, or an object with one for each kind', () => any.work(never, 'emails')],
  ['handler is undefined, expected a function', () => limited(undefined as never, {})],
  ['timeout is the string "5", expected a number of milliseconds', () => limited(handler, { timeout: '5' as never })],
  ['deadJobs is the number 5, expected an object with: most, after', () => emails.deadJobs(5)],
  ['most is the string "5", expected a number', () => emails.deadJobs({ most: '5' })],
  ['after is the number 5, expected a bigint', () => emails.deadJobs({ after: 5 })],
  ['skipOverlap is the string "yes", expected true or false', () => emails.schedule('n', '* * * * *', { payload: '' }, { skipOverlap: 'yes' })],
  ['maxRunning is the string "5", expected a number', () => emails.setGroup('a', { maxRunning: '5' })],
  ['ids is the bigint 42, expected an array of ids', () => emails.cancel(42n)],
  ['ids is an array, expected an array of ids', () => emails.retryDeadJobs([{ id: 42n }])],
  ['ids is the string "42", expected an array of ids', () => emails.discardDeadJobs('42')],
  ['leases is the bigint 1, expected an array', () => emails.ack(1n)],
  ['ms is 5, expected milliseconds', () => emails.holdGroup('a', '5')],
])('%s', async (says, call) => {
  const failing = (async () => { await call() })()
  await expect(failing).rejects.toThrow(says)
  await expect(failing).rejects.toThrow(FieldError)
})

test('what is undefined is as if left out, and null is in a job or a message', async () => {
  const sent: unknown[] = []
  const seen = { penstock: async (_: string, values: readonly unknown[]) => (sent.push(values), [['{1}', '{f}']]) }
  await any.enqueue(seen, 'emails', { payload: '', key: null, delay: null, deadline: undefined, unknown: undefined })
  await any.publish(seen, 'o', { payload: '', topic: null, headers: null })
  expect(sent).toHaveLength(2)
})
