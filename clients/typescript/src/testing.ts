// Helpers for the tests of programs that use Penstock.
import { isDeepStrictEqual } from 'node:util'
import { executor, type Queryable } from './database.js'
import { Queue, isOutcome, type Job } from './job.js'
import { checked } from './options.js'
import { bytesOf, headerKind, interval, quoted, type Payload } from './values.js'
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
  checked('published', want)
  const rows = await executor(tx)(`select id, key, topic, headers::text, encode(payload, 'hex') as payload
    from ${quoted(schema)}.${quoted(outbox)} where topic = coalesce($1::text, topic) and ($2::text is null or key = $2::text) order by xid, seq`, [want.topic ?? null, want.key ?? null])
  if (!rows.length) throw new Error(`nothing was published to ${outbox} with ${JSON.stringify(want)}`)
  return rows.map(([id, key, topic, headers, payload]) => ({ id: id!, key: key!, topic: topic!, headers: JSON.parse(headers ?? '{}') as Record<string, string>, payload: Buffer.from(payload!, 'hex') }))
}

/** EnqueuedJob is a job that waits in a queue, or is delayed. */
export interface EnqueuedJob {
  id: bigint
  kind: string
  key: string | null
  groupKey: string
  priority: number
  /** Of a delayed job. */
  notBefore?: Date
  headers: Record<string, string>
  payload: Buffer
}

/**
 * Fails unless the queue has a waiting or delayed job with the given kind, key and payload; those that are undefined match any. Two JSON texts of the
 * same value are equal. Returns the matching jobs, the latest first. Claimed jobs are left out. With a transaction that has not ended, it also sees jobs that the transaction has enqueued.
 * The role must be able to read the queue, as its owner can.
 */
export async function requireEnqueued(tx: Queryable, queue: string, want: { kind?: string, key?: string, payload?: Payload } = {}, schema = 'penstock'): Promise<EnqueuedJob[]> {
  checked('enqueued', want)
  const columns = "key, group_key, priority::text, headers::text, encode(payload, 'hex') as payload"
  const rows = await executor(tx)(`select id::text, due, key, group_key, priority, headers, payload from (
      select coalesce(id, seq) as id, null as due, ${columns} from ${quoted(schema)}.${quoted(queue)}
      union all select id, (extract(epoch from case when isfinite(due) then due end) * 1000)::text, ${columns} from ${quoted(schema)}._scheduled
      where queue = (select id from ${quoted(schema)}._queue where name = $1::text)) j order by j.id desc limit 1000`, [queue])
  const all = rows.map(([id, due, key, groupKey, priority, json, payload]) => {
    const { [headerKind]: kind = '', ...headers } = JSON.parse(json ?? '{}') as Record<string, string>
    return { id: BigInt(id!), kind, key: key!, groupKey: groupKey!, priority: Number(priority), notBefore: due === null ? undefined : new Date(Number(due)), headers, payload: Buffer.from(payload!, 'hex') }
  })
  const found = all.filter(job => (want.kind === undefined || job.kind === want.kind) && (want.key === undefined || job.key === want.key) && (want.payload === undefined || has(job.payload, want.payload)))
  if (!found.length) throw new Error(`nothing was enqueued in ${queue} with ${JSON.stringify(want)}; there is ${JSON.stringify(all.slice(0, 10).map(({ kind, key }) => ({ kind, key })))}`)
  return found
}

/** has asks whether a payload is the expected one. Two JSON texts of the same value are equal. */
function has(there: Buffer, payload: Payload): boolean {
  const wanted = bytesOf(payload)
  if (there.equals(wanted)) return true
  try {
    return typeof payload !== 'string' && !ArrayBuffer.isView(payload) && isDeepStrictEqual(JSON.parse(there.toString()), JSON.parse(wanted.toString()))
  } catch {
    return false
  }
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
 * those before it stay, behind the others of the queue. Barriers open before, as at a commit.
 */
export async function runOne(db: Queryable, name: string, handlers: Handlers, options: Choice = {}): Promise<Ran | undefined> {
  const { thrown, ran } = await next(db, name, handlers, checked('runOne', options)) ?? {}
  if (thrown) throw thrown.err
  return ran
}

/** Ran is an attempt that has ended. */
export interface Ran {
  job: Job
  end: End
  /** Why it failed or gave the job up: the outcome of the handler, or what it has thrown. */
  error?: unknown
}

interface Choice { schema?: string, groupKey?: string, kind?: string }

async function next(db: Queryable, name: string, handlers: Handlers, { schema = 'penstock', groupKey, kind }: Choice): Promise<{ ran: Ran, thrown?: { err: unknown }, unhandled: boolean } | undefined> {
  const queue = new Queue(db, name, schema)
  const find = handlerOf(name, handlers)
  for (const when of ['immediate', 'deferred']) await executor(db)(`set constraints ${quoted(schema)}.turn ${when}`, []) // else barriers open at the commit
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
  let ended: Ran | undefined
  let thrown: { err: unknown } | undefined
  let error: unknown
  const catching = (handler: Handler): Handler => async (job, signal) => {
    try {
      const returned = await handler(job, signal)
      error = returned
      return returned
    } catch (err) {
      thrown = isOutcome(err) ? err.thrown : { err }
      error = thrown ? thrown.err : err
      throw err
    }
  }
  let unhandled = false
  await run(queue, kind => {
    const handler = find(kind)
    unhandled = !handler
    return handler && catching(handler)
  }, {
    concurrency: 1, batch: 1, signal: stop.signal, logger: { warn() {} },
    onEnd(job, end) {
      ended = { job, end, ...(error !== undefined && (end === 'failed' || end === 'dead') && { error }) }
      stop.abort()
    },
  }, metIn(schema, name))
  return ended && { ran: ended, thrown, unhandled }
}

const mostAttempts = 1000

/**
 * Runs the queue's jobs, of every group, until each is done or a dead letter, and returns the attempts. Time passes at once: for retries, snoozes and
 * delayed jobs. An error that a handler throws fails an attempt, and is not thrown again. It fails after a thousand attempts, for example if a
 * handler snoozes for ever, and at once at a job whose kind has no handler. Give it a transaction, or a queue that nothing else uses. The role must own the schema.
 */
export async function runAll(db: Queryable, name: string, handlers: Handlers, options: { schema?: string } = {}): Promise<Ran[]> {
  const { schema = 'penstock' } = checked('runAll', options)
  const all: Ran[] = []
  for (;;) {
    const { ran, unhandled } = await next(db, name, handlers, { schema }) ?? {}
    if (ran) {
      all.push(ran)
      if (unhandled) throw new Error(`no handler for kind '${ran.job.kind}' in ${name}`)
      if (all.length > mostAttempts) throw new Error(`after ${mostAttempts} attempts ${name} still has jobs to run; the last was job ${ran.job.id}, ${ran.end}`)
      continue
    }
    const [[ms]] = await executor(db)(`select ceil(extract(epoch from min(due) - clock_timestamp()) * 1000)::text from ${quoted(schema)}._scheduled
      where queue = (select id from ${quoted(schema)}._queue where name = $1::text) and isfinite(due)`, [name]) as [[string | null]]
    if (ms === null) return all
    await advance(db, name, Math.max(Number(ms), 0) + 1, schema)
  }
}

/** Removes a queue's jobs in every state, its dead letters and its memory of dedup keys. The role must own the schema. */
export async function clear(db: Queryable, name: string, schema = 'penstock'): Promise<void> {
  const s = quoted(schema)
  const ids = await executor(db)(`with q as (select id from ${s}._queue where name = $1::text) select coalesce(id, seq)::text from ${s}.${quoted(name)}
    union all select t.id::text from ${s}._scheduled t join q on q.id = t.queue union all select t.id::text from ${s}._lease t join q on q.id = t.queue where t.id is not null
    union all select j.id::text from ${s}._lease t join q on q.id = t.queue cross join lateral unnest(t.jobs) j`, [name])
  await new Queue(db, name, schema).cancel(ids.map(([id]) => BigInt(id!)))
  for (const table of ['_dead_job', '_dedup']) await executor(db)(`delete from ${s}.${table} where queue = (select id from ${s}._queue where name = $1::text)`, [name])
}

/**
 * Lets this many milliseconds pass for a queue: delayed jobs become due, leases end, schedules run. The server's clock and deduplication windows do
 * not change. In a transaction it blocks others until the transaction ends. The role must own the schema.
 */
export async function advance(db: Queryable, queue: string, ms: number, schema = 'penstock'): Promise<void> {
  await executor(db)(`select ${quoted(schema)}.advance_queue($1::text, $2::text::interval)::text`, [queue, interval(ms)])
  metIn(schema, queue).advanced += ms
}
