// Helpers for the tests of programs that use Penstock.
import { executor, type Queryable } from './database.js'
import { Queue, isOutcome, type Job } from './job.js'
import { interval, quoted } from './values.js'
import { Strangers, handlerOf, run, type End, type Handler, type Handlers } from './work.js'

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

/** Met are those that the tests of this process have met. A job's time passes by advance, from its first meeting. */
class Met extends Strangers {
  advanced = 0
  readonly first = new Map<string, number>()

  override givesUp(job: Job, now: number, giveUp: number): boolean {
    const which = `${job.id} ${job.createdAt.getTime()}`
    const first = this.first.get(which) ?? this.advanced
    this.first.set(which, first)
    return super.givesUp(job, now + this.advanced - first, giveUp)
  }
}

const met = new Map<string, Met>()

function metIn(schema: string, queue: string): Met {
  const which = JSON.stringify([schema, queue])
  const its = met.get(which) ?? new Met()
  met.set(which, its)
  return its
}

/**
 * Claims the next job and runs the handler of its kind on it, as a worker would. Returns undefined if there is none. An error
 * that is not an outcome is recorded and then thrown, so a failed expectation in the handler fails the test. All calls are like one worker:
 * a job whose kind has no handler is released, and becomes a dead letter once advance has let an hour pass.
 * Jobs without a group come first, and then one of a group. groupKey chooses one group, or with '' the jobs without. kind chooses the next job of a kind:
 * those before it stay, behind the others of the queue.
 */
export async function runOne(db: Queryable, name: string, handlers: Handlers,
  { schema = 'penstock', groupKey, kind }: { schema?: string, groupKey?: string, kind?: string } = {}): Promise<{ job: Job, end: End } | undefined> {
  const queue = new Queue(db, name, schema)
  const find = handlerOf(name, handlers)
  const claim = async (groupKey: string) => {
    const { jobs } = await queue.claim({ groupKey, worker: 'test', n: kind === undefined ? 1 : 10_000 })
    const chosen = kind === undefined ? jobs[0] : jobs.find(job => job.kind === kind)
    await queue.release(jobs.filter(job => job !== chosen).map(job => job.lease))
    return chosen ? [chosen] : []
  }
  let jobs = await claim(groupKey ?? '')
  if (!jobs.length && groupKey === undefined) {
    for (const group of new Set(await queue.readyGroups(undefined, '', 1000))) if (!jobs.length) jobs = await claim(group)
  }
  if (!jobs.length) return undefined
  queue.claim = async ({ acks = [] } = {}) => ({ jobs: jobs.splice(0), acked: await queue.ack(acks), full: false })
  queue.heartbeat = async () => {}
  const stop = new AbortController()
  let ended: { job: Job, end: End } | undefined
  let thrown: { err: unknown } | undefined
  const catching = (handler: Handler): Handler => async (job, signal) => {
    try {
      return await handler(job, signal)
    } catch (err) {
      thrown = isOutcome(err) ? err.thrown : { err }
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
  }, metIn(schema, name))
  if (thrown) throw thrown.err
  return ended
}

/**
 * Lets this many milliseconds pass for a queue: delayed jobs become due, leases end, schedules run. The server's clock and deduplication windows do
 * not change. In a transaction it blocks others until the transaction ends. The role must own the schema.
 */
export async function advance(db: Queryable, queue: string, ms: number, schema = 'penstock'): Promise<void> {
  await executor(db)(`select ${quoted(schema)}.advance_queue($1::text, $2::text::interval)::text`, [queue, interval(ms)])
  metIn(schema, queue).advanced += ms
}
