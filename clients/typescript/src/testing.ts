// Helpers for the tests of programs that use Penstock.
import { executor, type Queryable } from './database.js'
import { Queue, isOutcome, type Job } from './job.js'
import { interval, quoted } from './values.js'
import { handlerOf, run, type End, type Handler, type Handlers } from './work.js'

/** Published is a message as it is in the outbox. */
export interface Published {
  id: string | null
  key: string | null
  topic: string
  headers: Record<string, string>
  payload: Buffer
}

/**
 * Fails unless the outbox has a message with the given topic and key; those that are undefined match any. Returns the
 * matching messages. With a transaction that has not ended, it also sees messages that the transaction has published.
 * The role must be able to read the outbox, as its owner can.
 */
export async function requirePublished(tx: Queryable, outbox: string, want: { topic?: string, key?: string } = {}, schema = 'penstock'): Promise<Published[]> {
  const rows = await executor(tx)(`select id, key, topic, headers::text, encode(payload, 'hex') as payload
    from ${quoted(schema)}.${quoted(outbox)} where topic = coalesce($1::text, topic) and ($2::text is null or key = $2::text) order by xid, seq`, [want.topic ?? null, want.key ?? null])
  if (!rows.length) throw new Error(`nothing was published to ${outbox} with ${JSON.stringify(want)}`)
  return rows.map(([id, key, topic, headers, payload]) => ({ id: id!, key: key!, topic: topic!, headers: JSON.parse(headers ?? '{}') as Record<string, string>, payload: Buffer.from(payload!, 'hex') }))
}

/**
 * Claims the next job and runs the handler of its kind on it, as a worker would. Returns undefined if there is none. An error
 * that is not an outcome is recorded and then thrown, so a failed expectation in the handler fails the test.
 */
export async function runJob(db: Queryable, name: string, handlers: Handlers, { schema = 'penstock', groupKey = '' } = {}): Promise<{ job: Job, end: End } | undefined> {
  const queue = new Queue(db, name, schema)
  const find = handlerOf(name, handlers)
  const { jobs } = await queue.claim({ groupKey, worker: 'test' })
  if (!jobs.length) return undefined
  queue.claim = async ({ acks = [] } = {}) => ({ jobs: jobs.splice(0), acked: await queue.ack(acks) })
  const stop = new AbortController()
  let ended: { job: Job, end: End } | undefined
  let thrown: { err: unknown } | undefined
  const catching = (handler: Handler): Handler => async (job, signal) => {
    try {
      return await handler(job, signal)
    } catch (err) {
      if (!isOutcome(err)) thrown = { err }
      throw err
    }
  }
  await run(queue, kind => {
    const handler = find(kind)
    return handler && catching(handler)
  }, {
    concurrency: 1, batch: 1, signal: stop.signal, logger: { warn() {} },
    onEnd(job, end) {
      ended = { job, end }
      stop.abort()
    },
  })
  if (thrown) throw thrown.err
  return ended
}

/**
 * Lets this many milliseconds pass for a queue: delayed jobs become due, leases end, schedules run. The server's clock and deduplication windows do
 * not change. In a transaction it blocks others until the transaction ends. The role must own the schema.
 */
export async function advance(db: Queryable, queue: string, ms: number, schema = 'penstock'): Promise<void> {
  await executor(db)(`select ${quoted(schema)}.advance_queue($1::text, $2::text::interval)::text`, [queue, interval(ms)])
}
