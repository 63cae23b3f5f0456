// A job, how a handler may end it, and the statements that a worker sends.
import { executor, type Execute, type Queryable, type Value } from './database.js'
import { FieldError, explained } from './errors.js'
import { checked, typed } from './options.js'
import { Enqueued } from './statements.js'
import { array, headerKind, headerReport, interval, jobRow, memberSteps, quoted, textOf, type NewJob } from './values.js'

/** Shares says how many jobs a claim asks for of each group. */
export type Shares = ReadonlyMap<string, number>

/** Carrier is a job or a dead letter, which has the payload of one. */
class Carrier {
  /** @internal */
  constructor(readonly payload: Buffer) {}

  /** The payload as text. */
  text(): string {
    return this.payload.toString()
  }

  /** The payload parsed as JSON. T is not checked. */
  json<T = unknown>(): T {
    return JSON.parse(this.text()) as T
  }
}

/** Job is a claimed job. The worker has it until its lease ends. */
export class Job extends Carrier {
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
  /** What the last attempt that reported has reported; undefined if none has. The results of steps are in its member penstock-steps. */
  readonly report: unknown
  /** The token of this claim, 0 of a job that was dequeued. */
  readonly lease: bigint
  readonly leaseUntil: Date

  /** @internal */
  constructor(row: readonly Value[], queue?: Queue) {
    const [id, key, groupKey, priority, attempt, createdAt, headers, payload, lease, leaseUntil] = row
    super(Buffer.from(payload!, 'hex'))
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
    this.lease = BigInt(lease ?? 0)
    this.leaseUntil = new Date(Number(leaseUntil ?? 0))
  }

  /** The job as a value for JSON: id and lease as text, and the payload. */
  toJSON() {
    return { ...this, id: String(this.id), lease: String(this.lease), payload: this.text() }
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
  readonly reason: string
  /** What the handler has thrown, if limits have made this outcome of it: a test is to see it. @internal */
  declare readonly thrown?: { readonly err: unknown }
  /** @internal */
  constructor(readonly how: 'retry' | 'snooze' | 'holdGroup' | 'deadLetter' | 'cancelled', readonly after: number | undefined, reason: string) {
    const text = typeof reason === 'string' ? reason : String(reason) // of a program without types: what it has caught, for example
    super(text || how)
    this.reason = text
  }
}

/** The package may be loaded twice, as an ES module and as CommonJS. @internal */
export const isOutcome = (v: unknown): v is Outcome => v instanceof Error && v.name === 'Outcome'

const pause = (ms: number | undefined, field = 'after') => {
  if (ms !== undefined && !(typeof ms === 'number' && ms >= 0)) throw new FieldError(field, `is ${ms}, expected milliseconds`)
  return ms
}

/** retry asks for another attempt, after some milliseconds or the queue's own backoff. */
export const retry = (after?: number, reason = '') => new Outcome('retry', pause(after), reason)
/** snooze asks to be called again after some milliseconds. It spends no attempt. */
export const snooze = (after: number) => new Outcome('snooze', pause(after), '')
/**
 * holdGroup gives the job back and holds its group: no job of the group starts for some milliseconds, by any worker. For example, a server has
 * answered 429 for one customer, whose jobs are a group. It spends no attempt, and jobs that run continue.
 */
export const holdGroup = (ms: number, reason = '') => new Outcome('holdGroup', pause(ms), reason)
/** deadLetter gives the job up: it becomes a dead letter at once. */
export const deadLetter = (reason: string) => new Outcome('deadLetter', undefined, reason)
/** cancelled says that the job is no longer needed: it ends as if it were done. */
export const cancelled = (reason = '') => new Outcome('cancelled', undefined, reason)

/** LeaseLostError is why a handler was aborted: the job was cancelled, or may be running elsewhere. */
export class LeaseLostError extends Error {
  override name = 'LeaseLostError'
}
/** StoppingError is why a handler was aborted: the worker stops, and drainTimeout is over. */
export class StoppingError extends Error {
  override name = 'StoppingError'
}

/** Schedule is a periodic job of a queue. */
export interface Schedule {
  readonly name: string
  readonly cron: string
  /** When it runs next, unless it is paused. */
  readonly next: Date
  readonly paused: boolean
  /** Whether it leaves out a time at which its last job has not ended. */
  readonly skipOverlap: boolean
  /** The id of the last job that it has made. */
  readonly lastJob: bigint | undefined
  readonly kind: string
  readonly key: string
  readonly groupKey: string
  readonly priority: number
  readonly dedupKey: string
  readonly headers: Readonly<Record<string, string>>
  readonly payload: Buffer
}

/** Failure is an attempt of a job that failed. */
export interface Failure { readonly attempt: number, readonly at: string, readonly error: string }

/** DeadJob is a dead letter of a queue. */
export interface DeadJob extends Carrier {
  readonly id: bigint
  readonly kind: string
  readonly key: string
  readonly groupKey: string
  readonly priority: number
  readonly attempt: number
  readonly createdAt: Date
  readonly diedAt: Date
  readonly headers: Readonly<Record<string, string>>
  /** Of the last attempt. */
  readonly error: string
  /** The last ten. */
  readonly failures: readonly Failure[]
}

/** FoundJob is where a job is. */
export interface FoundJob {
  readonly id: bigint
  /** waiting: for barriers, or for a job of its key that failed. */
  readonly state: 'ready' | 'delayed' | 'waiting' | 'running' | 'dead' | 'done'
  readonly kind: string
  readonly key: string
  readonly groupKey: string
  readonly priority: number
  /** How many have begun. */
  readonly attempt: number
  readonly createdAt: Date
  /** When the last attempt began, of a running or done job. */
  readonly claimedAt?: Date
  /** When a delayed job is due, or the lease of a running one ends. */
  readonly until?: Date
  /** When it was done, or died. */
  readonly endedAt?: Date
  readonly worker: string
  /** Of the last failed attempt. */
  readonly error: string
  /** The handler's last report. */
  readonly report?: unknown
}

/** QueueStatus counts the jobs of a queue by where they are. */
export interface QueueStatus {
  readonly ready: number
  readonly running: number
  readonly delayed: number
  /** For barriers, or for another job of their key. */
  readonly waiting: number
  /** Its dead letters. */
  readonly dead: number
  /** How many milliseconds ago the oldest ready job was enqueued; 0 if none is ready. */
  readonly oldest: number
  /** How many jobs have ended because their deadline had passed, since the queue was made. */
  readonly expired: number
}

/** GroupLimits limit the jobs of a group. What is left out limits nothing. */
export interface GroupLimits {
  /** How many jobs of the group run at a time, in all processes together. */
  maxRunning?: number
  /** How many jobs start in per, evenly spread. */
  rate?: number
  /** In milliseconds. */
  per?: number
  /** How many may start at once after a pause. Default 1. */
  burst?: number
  /** The group's share of a worker for several groups, 1 to 100. Default 1. */
  weight?: number
}

/** GroupPolicy is the policy of a group, or of '*', and how long the group is held. What is undefined limits nothing. */
export interface GroupPolicy {
  readonly groupKey: string
  readonly maxRunning: number | undefined
  readonly rate: number | undefined
  /** In milliseconds. */
  readonly per: number | undefined
  readonly burst: number | undefined
  readonly weight: number | undefined
  /** How many jobs may start now; undefined without a rate. */
  readonly tokens: number | undefined
  readonly heldUntil: Date | undefined
  /** Why it is held, '' if nothing was said. */
  readonly reason: string
}

// Some drivers are configured to parse what looks like JSON.
const parsed = <T>(json: unknown, otherwise: T): T => (typeof json === 'string' ? JSON.parse(json) as T : json as T | null) ?? otherwise
const ms = (column: string) => `(extract(epoch from ${column}) * 1000)::text`
const numberOf = (value: Value) => (value === null ? undefined : Number(value))
const textIf = (value: number | undefined) => (value === undefined ? null : String(value))

const jobColumns = `id::text, key, group_key, priority::text, attempt::text, (extract(epoch from created_at) * 1000)::text as created,
  headers::text, encode(payload, 'hex') as payload`

/** Claimed is the result of a claim: jobs, those of its acks that were still held, and whether a limit of running jobs is close. */
export interface Claimed { readonly jobs: Job[], readonly acked: bigint[], readonly full: boolean }

/** Queue is a queue for workers' loops of your own, and for those who look after it: its state, schedules, dead letters and groups. Each call is one statement. */
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
    return typed('leases', leases, 'array').length ? (await this.#rows(`l::text from penstock.${text} l`, array(leases), ...values)).map(([lease]) => BigInt(lease!)) : []
  }

  /**
   * Claims jobs, and ends those of acks in the same call. Pass [] as acks if all jobs will end many at a time.
   */
  async claim(options: { n?: number, lease?: number, groupKey?: string, worker?: string, acks?: readonly bigint[] } = {}): Promise<Claimed> {
    const { n = 1, lease = 30_000, groupKey = '', worker = '', acks } = checked('claim', options)
    const values = [String(n), interval(lease), groupKey, worker]
    const call = acks ? 'ack_claim($1::text, $6::text::bigint[]' : 'claim($1::text'
    return this.#claimed(`penstock.${call}, $2::text::int, $3::text::interval, $4::text, $5::text)`, ...values, ...acks ? [array(acks)] : [])
  }

  /** Claims a number of jobs of each of these groups, and ends those of acks, with one call. */
  async claimGroups(shares: Shares, options: { lease?: number, worker?: string, acks?: readonly bigint[] } = {}): Promise<Claimed> {
    const { lease = 30_000, worker = '', acks = [] } = checked('claimGroups', options)
    const groups = array([...shares.keys()]), ns = array([...shares.values()].map(String)) // the claims of those behind the first see the acked jobs gone
    return this.#claimed(`unnest($2::text::int[], $3::text::text[]) with ordinality g(n, in_group, i) cross join lateral penstock.ack_claim($1::text,
      case when g.i = 1 then $4::text::bigint[] else '{}' end, g.n, $5::text::interval, g.in_group, $6::text)`, ns, groups, array(acks), interval(lease), worker)
  }

  async #claimed(from: string, ...values: Value[]): Promise<Claimed> {
    const rows = await this.#rows(`${jobColumns}, lease::text, (extract(epoch from lease_until) * 1000)::text as until from ${from}`, ...values)
    const held = rows.filter(([id]) => id === null).map(row => BigInt(row[8]!))
    return { jobs: rows.filter(([id]) => id !== null).map(row => new Job(row, this)), acked: held.filter(lease => lease), full: held.includes(0n) }
  }

  /** Returns the groups that have jobs to claim, of some or of all: up to most, those behind one first. Each is there as often as it weighs. */
  async readyGroups(groups?: readonly string[], behind = '', most = 100): Promise<string[]> {
    return (await this.#rows('g from penstock.ready_groups($1::text, $2::text::text[], $3::text, $4::text::int) g', groups ? array(groups) : null, behind, String(most))).map(([group]) => group!)
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

  /** Says that a worker lives: penstock.report for lease 0 stands for the worker itself. @internal */
  async heartbeat(report: object): Promise<void> {
    await this.#rows('penstock.report($1::text, 0, $2::text::jsonb)::text', JSON.stringify(report))
  }

  /**
   * Makes or changes a periodic job, and returns when it runs next. cron has five fields, as in '30 4 * * 1-5', in UTC or in a zone that comes first:
   * 'TZ=Europe/Berlin 30 4 * * *'. With skipOverlap it enqueues no job while its last one has not ended. A paused schedule stays paused.
   * As all calls about schedules, it needs the role that owns the schema.
   */
  async schedule(name: string, cron: string, job: Omit<NewJob, 'notBefore' | 'delay'>, options: { skipOverlap?: boolean } = {}): Promise<Date> {
    const { skipOverlap = false } = checked('schedule', options)
    const [payload, key, groupKey, priority, , dedupKey, headers] = jobRow(checked('scheduled', job))
    const rows = await this.#rows(`${ms('s')} as next from penstock.schedule_bytes($1::text, $2::text, $3::text, $4::text::bytea, key => $5::text, group_key => $6::text,
      priority => $7::text::int, headers => $8::text::jsonb, dedup_key => $9::text, skip_overlap => $10::text::boolean) s`,
    name, cron, payload!, key!, groupKey!, priority!, headers!, dedupKey!, String(skipOverlap))
    return new Date(Number(rows[0]![0]))
  }

  /** Ends a periodic job. Jobs that it has enqueued stay. Fails with a NotFoundError if there is none of the name, as the next three do. */
  async unschedule(name: string): Promise<void> {
    await this.#rows('penstock.unschedule($1::text, $2::text)::text', name)
  }

  /** Pauses a periodic job: none is enqueued until resumeSchedule. */
  async pauseSchedule(name: string): Promise<void> {
    await this.#rows('penstock.pause_schedule($1::text, $2::text)::text', name)
  }

  /** Ends the pause, and returns when the schedule runs next. No job makes up for times that have passed. */
  async resumeSchedule(name: string): Promise<Date> {
    return new Date(Number((await this.#rows(`${ms('s')} as next from penstock.resume_schedule($1::text, $2::text) s`, name))[0]![0]))
  }

  /** Enqueues the job of a schedule now, also while that is paused or its last job has not ended. */
  async runSchedule(name: string): Promise<Enqueued> {
    const rows = await this.#rows('e.id::text, coalesce(penstock.deduplicated(e.n), false)::text as deduplicated from penstock.run_schedule($1::text, $2::text) with ordinality e(id, n)', name)
    return new Enqueued(BigInt(rows[0]![0]!), rows[0]![1] === 'true')
  }

  /** Lists the periodic jobs, by name. */
  async schedules(): Promise<Schedule[]> {
    const rows = await this.#rows(`name, cron, ${ms('next')} as next, paused::text, skip_overlap::text, last_job::text, kind, key, group_key, priority::text, dedup_key,
      headers::text, encode(payload, 'hex') as payload from penstock.schedules($1::text)`)
    return rows.map(([name, cron, next, paused, skip, last, kind, key, groupKey, priority, dedupKey, headers, payload]) => ({
      name: name!, cron: cron!, next: new Date(Number(next)), paused: paused === 'true', skipOverlap: skip === 'true', lastJob: last === null ? undefined : BigInt(last!),
      kind: kind!, key: key ?? '', groupKey: groupKey!, priority: Number(priority), dedupKey: dedupKey ?? '', headers: parsed(headers, {}), payload: Buffer.from(payload!, 'hex'),
    }))
  }

  /** Makes the queue. Fails with 42P07 if it exists already. It needs the role that owns the schema. */
  async create(options: { ordering?: 'fifo' | 'lifo' } = {}): Promise<void> {
    const { ordering = 'fifo' } = checked('create', options)
    await this.#rows('penstock.create_queue($1::text, $2::text)::text', ordering)
  }

  /** Counts the queue's jobs. It reads the queue, and needs grant_operator. */
  async status(): Promise<QueueStatus> {
    const [row] = await this.#rows(`ready::text, running::text, delayed::text, waiting::text, dead::text, ${ms('oldest')} as oldest, expired::text from penstock.queue_status($1::text)`)
    const [ready, running, delayed, waiting, dead, oldest, expired] = row!.map(Number) as [number, number, number, number, number, number, number]
    return { ready, running, delayed, waiting, dead, oldest, expired }
  }

  /** Cancels jobs, in any state, and returns how many there were. A running one loses its lease. It needs grant_operator, as pause and resume do. */
  async cancel(ids: readonly bigint[]): Promise<number> {
    return Number((await this.#rows('penstock.cancel($1::text, $2::text::bigint[])::text', idsOf(ids)))[0]![0])
  }

  /** Pauses the queue: no job starts until resume, and those that run continue. */
  async pause(): Promise<void> {
    await this.#rows('penstock.pause_queue($1::text)::text')
  }

  /** Ends the pause. */
  async resume(): Promise<void> {
    await this.#rows('penstock.resume_queue($1::text)::text')
  }

  /** Lists dead letters by id: up to most, behind the id of one. */
  async deadJobs(options: { most?: number, after?: bigint } = {}): Promise<DeadJob[]> {
    const { most = 100, after = 0n } = checked('deadJobs', options)
    const rows = await this.#rows(`id::text, key, group_key, priority::text, attempt::text, ${ms('created_at')} as created, ${ms('died_at')} as died, headers::text,
      encode(payload, 'hex') as payload, error, failures::text from penstock.dead_jobs($1::text, $2::text::int, $3::text::bigint)`, String(most), String(after))
    return rows.map(([id, key, groupKey, priority, attempt, created, died, json, payload, error, failures]) => {
      const headers = parsed<Record<string, string>>(json, {})
      return Object.assign(new Carrier(Buffer.from(payload!, 'hex')), {
        id: BigInt(id!), kind: headers[headerKind] ?? '', key: key ?? '', groupKey: groupKey!, priority: Number(priority), attempt: Number(attempt),
        createdAt: new Date(Number(created)), diedAt: new Date(Number(died)), headers, error: error!, failures: parsed<Failure[]>(failures, []),
      })
    })
  }

  /**
   * Returns where a job is, and its report. undefined: it has ended and is not kept, or there was none. It is for one job that a person looks at: it
   * reads all leases of the queue. grant_enqueuer, grant_worker and grant_operator allow it.
   */
  async findJob(id: bigint): Promise<FoundJob | undefined> {
    const rows = await this.#rows(`id::text, state, kind, key, group_key, priority::text, attempt::text, ${ms('created_at')} as created, ${ms('claimed_at')} as claimed, ${ms('until')} as until,
      ${ms('ended_at')} as ended, worker, error, report::text from penstock.find_job($1::text, $2::text::bigint)`, String(id))
    const at = (text: string | null) => text === null ? undefined : new Date(Number(text))
    return rows.map(([id, state, kind, key, groupKey, priority, attempt, created, claimed, until, ended, worker, error, report]) => ({
      id: BigInt(id!), state: state as FoundJob['state'], kind: kind!, key: key ?? '', groupKey: groupKey!, priority: Number(priority), attempt: Number(attempt), createdAt: new Date(Number(created)),
      claimedAt: at(claimed!), until: at(until!), endedAt: at(ended!), worker: worker ?? '', error: error ?? '', report: parsed<unknown>(report, undefined),
    }))[0]
  }

  /** Puts dead letters back at the end of the queue, with one more attempt at least. Returns how many there were. */
  async retryDeadJobs(ids: readonly bigint[]): Promise<number> {
    return Number((await this.#rows('penstock.retry_dead_jobs($1::text, $2::text::bigint[])::text', idsOf(ids)))[0]![0])
  }

  /** Removes dead letters permanently. Returns how many there were. */
  async discardDeadJobs(ids: readonly bigint[]): Promise<number> {
    return Number((await this.#rows('penstock.discard_dead_jobs($1::text, $2::text::bigint[])::text', idsOf(ids)))[0]![0])
  }

  /**
   * Replaces the policy of a group, or with '*' that of each group without one. A policy without limits is deleted.
   * It needs grant_operator, as groupPolicies does.
   */
  async setGroup(groupKey: string, limits: GroupLimits = {}): Promise<void> {
    const { maxRunning, rate, per, burst, weight } = checked('group', limits)
    textOf('groupKey', groupKey, 256)
    for (const [field, value] of Object.entries({ maxRunning, rate, burst, weight })) {
      if (value !== undefined && !(Number.isInteger(value) && value >= 1 && value < 2 ** 31)) throw new FieldError(field, `is ${value}, expected 1 or more`)
    }
    if (rate === undefined ? per ?? burst : per === undefined) throw new FieldError(rate === undefined ? 'rate' : 'per', 'is missing, give both: { rate: 60, per: 60_000 }')
    if (per !== undefined && !(per > 0)) throw new FieldError('per', `is ${per}, expected milliseconds`)
    await this.#rows('penstock.set_group($1::text, $2::text, $3::text::int, $4::text::int, $5::text::interval, $6::text::int, $7::text::int)::text',
      groupKey, textIf(maxRunning), textIf(rate), per === undefined ? null : interval(per), textIf(burst), textIf(weight))
  }

  /**
   * Lets no job of a group start for some milliseconds from now; jobs that run continue. It does not shorten an earlier hold; 0 ends it.
   * It needs grant_worker or grant_operator. The reason is for people.
   */
  async holdGroup(groupKey: string, ms: number, reason = ''): Promise<void> {
    textOf('groupKey', groupKey, 256)
    pause(ms, 'ms')
    await this.#rows('penstock.hold_group($1::text, $2::text, $3::text::interval, $4::text)::text', groupKey, interval(ms), textOf('reason', reason, maxReason) || null)
  }

  /** Lists the groups that have a policy or are held, by name: up to most, behind the name of one. */
  async groupPolicies(options: { most?: number, after?: string } = {}): Promise<GroupPolicy[]> {
    const { most = 1000, after = '' } = checked('groupPolicies', options)
    const rows = await this.#rows(`group_key, max_running::text, rate::text, ${ms('per')} as per, burst::text, weight::text, tokens::text, ${ms('held_until')} as until, reason
      from penstock.group_policies($1::text, $2::text, $3::text::int)`, after, String(most))
    return rows.map(([groupKey, maxRunning, rate, per, burst, weight, tokens, until, reason]) => ({
      groupKey: groupKey!, maxRunning: numberOf(maxRunning!), rate: numberOf(rate!), per: numberOf(per!), burst: numberOf(burst!), weight: numberOf(weight!), tokens: numberOf(tokens!),
      heldUntil: until === null ? undefined : new Date(Number(until)), reason: reason ?? '',
    }))
  }

  /** Does the queue's maintenance. Call it about twice a second while a worker runs. */
  async maintain(): Promise<void> {
    await this.#rows('penstock.maintain_queue($1::text)::text')
  }
}

const idsOf = (ids: readonly bigint[]) => array(typed('ids', ids, 'ids'))

const maxReason = 1024

/** reasonOf is the reason of a hold, cut to its limit. */
export const reasonOf = (reason: string) => new TextDecoder().decode(Buffer.from(storable(reason)).subarray(0, maxReason), { stream: true })

/** storable is a text that every database can store, cut to a limit. */
const storable = (reason: string) => reason.slice(0, 4096).toWellFormed().replaceAll('\0', '\uFFFD')
