// A job, how a handler may end it, and the statements that a worker sends.
import { executor, type Execute, type Queryable, type Value } from './database.js'
import { explained } from './errors.js'
import { array, headerKind, headerReport, interval, memberSteps, quoted, textOf, FieldError } from './values.js'

/** Job is a claimed job. The worker has it until its lease ends. */
export class Job {
  /** Stays with the job through all its attempts. */
  readonly id: bigint
  /** Says which handler takes it, '' if it has none. */
  readonly kind: string
  readonly key: string
  readonly groupKey: string
  readonly priority: number
  /** 1 the first time. */
  readonly attempt: number
  readonly createdAt: Date
  readonly headers: Readonly<Record<string, string>>
  readonly payload: Buffer
  /** What the last attempt that reported has reported; undefined if none has. The results of steps are in its member penstock-steps. */
  readonly report: unknown
  /** The token of this claim, 0 of a job that was dequeued. */
  readonly lease: bigint
  readonly leaseUntil: Date

  /** @internal */
  constructor(row: readonly Value[], queue?: Queue) {
    const [id, key, groupKey, priority, attempt, createdAt, headers, payload, lease, leaseUntil] = row
    this.id = BigInt(id!)
    this.key = key ?? ''
    this.groupKey = groupKey ?? ''
    this.priority = Number(priority)
    this.attempt = Number(attempt)
    this.createdAt = new Date(Number(createdAt))
    // Some drivers are configured to parse what looks like JSON.
    this.headers = typeof headers === 'string' ? JSON.parse(headers) : headers ?? {}
    this.kind = this.headers[headerKind] ?? ''
    if (headerReport in this.headers) {
      const { [headerReport]: report, ...rest } = this.headers
      this.headers = rest // they may be copied to another job, which has no report
      this.report = JSON.parse(report!)
    }
    if (queue) queues.set(this, queue)
    this.payload = Buffer.from(payload!, 'hex')
    this.lease = BigInt(lease ?? 0)
    this.leaseUntil = new Date(Number(leaseUntil ?? 0))
  }

  /** The payload as text. */
  text(): string {
    return this.payload.toString()
  }

  /** The job as a value for JSON: id and lease as text, and the payload. */
  toJSON() {
    return { ...this, id: String(this.id), lease: String(this.lease), payload: this.text() }
  }

  /** The payload parsed as JSON. T is not checked. */
  json<T = unknown>(): T {
    return JSON.parse(this.text()) as T
  }
}

const queues = new WeakMap<Job, Queue>()
const returned = new WeakMap<Job, Map<string, unknown>>()

/** queueOf is the queue that a job was claimed from; with tx, its calls are in that transaction. */
function queueOf(job: Job, tx?: Queryable): Queue {
  const queue = queues.get(job)
  if (!queue) throw new FieldError('job', 'was not claimed: a report needs its lease')
  return tx ? queue.on(tx) : queue
}

/**
 * report replaces the report of a job that runs: its progress, or its result. The results of its steps stay. With tx it takes effect if that
 * commits. value is kept as JSON of up to 64 KiB, for the next attempt as job.report. It must be an object if the job has steps.
 */
export async function report(job: Job, value: unknown, tx?: Queryable): Promise<void> {
  await queueOf(job, tx).report(job.lease, value)
}

/**
 * step runs a part of a job that is not to run again once it has returned: a later attempt gets the result, which is kept with the job as
 * JSON. An error is not kept. The name is different for each step of a job.
 *
 * If the process dies after fn has returned, and before its result is written, fn runs again. With tx the result is written in that
 * transaction, and the step has run if it commits: then what fn writes with tx takes effect once.
 */
export async function step<T>(job: Job, name: string, fn: () => T | Promise<T>, tx?: Queryable): Promise<T> {
  const queue = queueOf(job, tx)
  if (!name) throw new FieldError('step', 'has no name: give each step of a job a different one')
  textOf('step', name, 100)
  let results = returned.get(job)
  if (!results) {
    const kept = job.report && typeof job.report === 'object' ? (job.report as Record<string, object>)[memberSteps] : undefined
    returned.set(job, results = new Map(Object.entries(kept ?? {})))
  }
  if (results.has(name)) return results.get(name) as T
  const result = await fn()
  try {
    await queue.report(job.lease, { [memberSteps]: { [name]: result ?? null } })
  } catch (err) {
    if (err instanceof Error) err.message = `the result of step ${JSON.stringify(name)}: ${err.message}`
    throw err
  }
  if (!tx) results.set(name, result)
  return result
}

/** Outcome of a handler that is not simply done. Return it, or throw it. */
export class Outcome extends Error {
  override name = 'Outcome'
  /** @internal */
  constructor(readonly how: 'retry' | 'snooze' | 'deadLetter' | 'cancelled', readonly after: number | undefined, readonly reason: string) {
    super(reason || how)
  }
}

/** The package may be loaded twice, as an ES module and as CommonJS. @internal */
export const isOutcome = (v: unknown): v is Outcome => v instanceof Error && v.name === 'Outcome'

const pause = (ms: number | undefined) => {
  if (ms !== undefined && !(ms >= 0)) throw new FieldError('after', `is ${ms}, expected milliseconds`)
  return ms
}

/** retry asks for another attempt, after some milliseconds or the queue's own backoff. */
export const retry = (after?: number, reason = '') => new Outcome('retry', pause(after), reason)
/** snooze asks to be called again after some milliseconds. It spends no attempt. */
export const snooze = (after: number) => new Outcome('snooze', pause(after), '')
/** deadLetter gives the job up: it becomes a dead letter at once. */
export const deadLetter = (reason: string) => new Outcome('deadLetter', undefined, reason)
/** cancelled says that the job is no longer needed: it ends as if it were done. */
export const cancelled = (reason = '') => new Outcome('cancelled', undefined, reason)

/** LeaseLostError is why a handler was aborted: the job may be running elsewhere. */
export class LeaseLostError extends Error {
  override name = 'LeaseLostError'
}
/** StoppingError is why a handler was aborted: the worker stops, and drainTimeout is over. */
export class StoppingError extends Error {
  override name = 'StoppingError'
}

const jobColumns = `id::text, key, group_key, priority::text, attempt::text, (extract(epoch from created_at) * 1000)::text as created,
  headers::text, encode(payload, 'hex') as payload`

/** Queue is a queue for workers. Each call is one statement. work does all of this; Queue is for your own loops. */
export class Queue {
  readonly #execute: Execute
  readonly #schema: string
  constructor(db: Queryable, readonly name: string, readonly schema: string) {
    this.#execute = executor(db)
    this.#schema = quoted(schema)
  }

  /** The same queue, whose calls are in a transaction. */
  on(tx: Queryable): Queue {
    return new Queue(tx, this.name, this.schema)
  }

  async #rows(text: string, ...values: Value[]): Promise<Value[][]> {
    return explained(this.#execute(`select ${text.replaceAll('penstock.', () => this.#schema + '.')}`, [this.name, ...values]))
  }

  async #held(text: string, leases: readonly bigint[], ...values: Value[]): Promise<bigint[]> {
    return leases.length ? (await this.#rows(`l::text from penstock.${text} l`, array(leases), ...values)).map(([lease]) => BigInt(lease!)) : []
  }

  /**
   * Claims jobs, and ends those of acks in the same call. Pass [] as acks if all jobs will end many at a time. acked are those of acks
   * that were still held.
   */
  async claim({ n = 1, lease = 30_000, groupKey = '', worker = '', acks }: { n?: number, lease?: number, groupKey?: string, worker?: string, acks?: readonly bigint[] } = {}): Promise<{ jobs: Job[], acked: bigint[] }> {
    const values = [String(n), interval(lease), groupKey, worker]
    const call = acks ? 'ack_claim($1::text, $6::text::bigint[]' : 'claim($1::text'
    const rows = await this.#rows(`${jobColumns}, lease::text, (extract(epoch from lease_until) * 1000)::text as until
      from penstock.${call}, $2::text::int, $3::text::interval, $4::text, $5::text)`, ...values, ...acks ? [array(acks)] : [])
    return { jobs: rows.filter(([id]) => id !== null).map(row => new Job(row, this)), acked: rows.filter(([id]) => id === null).map(row => BigInt(row[8]!)) }
  }

  /** Takes jobs within the caller's transaction. They are removed by its commit, and come back after its rollback. They have no lease. */
  async dequeue(n = 1, groupKey = ''): Promise<Job[]> {
    return (await this.#rows(`${jobColumns} from penstock.dequeue($1::text, $2::text::int, $3::text)`, String(n), groupKey)).map(row => new Job(row))
  }

  /** Ends jobs that are done. Returns the leases that were still held, as extend and release do. */
  ack(leases: readonly bigint[]): Promise<bigint[]> {
    return this.#held('ack_many($1::text, $2::text::bigint[])', leases)
  }

  /** Ends a job that is done, within a transaction. Fails with PS001 if its lease is lost. */
  async ackOne(lease: bigint): Promise<void> {
    await this.#rows('penstock.ack($1::text, $2::text::bigint)::text', String(lease))
  }

  /** Makes leases end this many milliseconds from now. */
  extend(leases: readonly bigint[], by: number): Promise<bigint[]> {
    return this.#held('extend_many($1::text, $2::text::bigint[], $3::text::interval)', leases, interval(by))
  }

  /** Gives jobs back, to run at once or after some milliseconds. No attempt is spent. */
  release(leases: readonly bigint[], after = 0): Promise<bigint[]> {
    return after > 0 ? this.#held('release_many($1::text, $2::text::bigint[], $3::text::interval)', leases, interval(after))
      : this.#held('release_many($1::text, $2::text::bigint[])', leases)
  }

  /**
   * Runs a job again, after some milliseconds or the queue's backoff. Returns false if it is a dead letter now. Fails with PS001 if the
   * lease is lost.
   */
  async retry(lease: bigint, after: number | undefined, error: string): Promise<boolean> {
    const pause = after === undefined ? null : after <= 0 ? '0' : interval(after)
    const rows = await this.#rows('penstock.retry($1::text, $2::text::bigint, $3::text::interval, $4::text)::text', String(lease), pause, storable(error))
    return rows[0]![0] === 'true'
  }

  /** Makes a job a dead letter. Fails with PS001 if the lease is lost. */
  async deadLetter(lease: bigint, error: string): Promise<void> {
    await this.#rows('penstock.dead_letter($1::text, $2::text::bigint, $3::text)::text', String(lease), storable(error))
  }

  /** Replaces the report of a job that runs, but for the results of its steps: see report and step. Fails with PS001 if the lease is lost. */
  async report(lease: bigint, value: unknown): Promise<void> {
    const text = JSON.stringify(value)
    if (text === undefined) throw new FieldError('report', 'is not JSON')
    await this.#rows('penstock.report($1::text, $2::text::bigint, $3::text::jsonb)::text', String(lease), text)
  }

  /** Does the queue's housekeeping. Call it about twice a second while a worker runs. */
  async maintain(): Promise<void> {
    await this.#rows('penstock.maintain_queue($1::text)::text')
  }
}

/** storable is a text that every database can store, cut to a limit. */
const storable = (reason: string) => reason.slice(0, 4096).toWellFormed().replaceAll('\0', '\uFFFD')
