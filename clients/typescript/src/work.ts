// The worker's engine. One call of run is one Worker: it claims jobs, extends their leases, writes down how they
// ended, and gives back what it has not begun when it stops.
import { hostname } from 'node:os'
import { sqlState } from './database.js'
import { FieldError, clientVersion, isAway, isForbidden, isMissing } from './errors.js'
import { Job, LeaseLostError, Outcome, Queue, StoppingError, isOutcome, reasonOf, type Shares } from './job.js'
import { typed } from './options.js'
import { Turns } from './turns.js'
import { headerTimeout, kindOf, textOf } from './values.js'
import { Backoff, Notice, Outage, type Logger, sleep, timely } from './waits.js'

/** Verdict is what a handler returns: undefined if the job is done, or 'settled' if it has ended the job itself, with the lease. */
export type Verdict = void | undefined | Outcome | 'settled'

/**
 * Handler does one job. It may also throw an Outcome. After any other error the job is tried again after the queue's
 * backoff, until its attempts are used up. signal aborts with a LeaseLostError when the job was cancelled or may be running elsewhere, with
 * a StoppingError when the worker stops and drainTimeout is over, and with a TimeoutError after the timeout of the job.
 */
export type Handler = (job: Job, signal: AbortSignal) => Verdict | Promise<Verdict>

/** TxHandler does one job within a transaction, which it must not end. */
export type TxHandler<T> = (tx: T, job: Job, signal: AbortSignal) => Verdict | Promise<Verdict>

/** OfTask says which task has made a handler. */
interface OfTask { readonly kind: string, readonly queue: string }
/** TaskHandler is a handler of a task's jobs. */
export type TaskHandler = Handler & OfTask
/** TxTaskHandler is one for workTx. */
export type TxTaskHandler<T> = TxHandler<T> & OfTask

/** Handlers is one handler for jobs of all kinds; or handlers by kind, where '' takes jobs without one; or a list of such, and of tasks' handlers. */
export type Handlers<H extends Function = Handler> = H | ByKind<H> | readonly ((H & OfTask) | ByKind<H>)[]
type ByKind<H> = Readonly<Record<string, H>>

/** Find says which handler takes a kind. kinds are those that have one, unless one takes all. */
export type Find<H = Handler> = ((kind: string) => H | undefined) & { kinds?: string[] | undefined }

export function handlerOf<H extends Function>(queue: string, handlers: Handlers<H>): Find<H> {
  if (typeof handlers === 'function' && !('kind' in handlers)) return () => handlers
  const all = new Map<string, H>()
  const add = (kind: string, handler: H) => {
    if (typeof handler !== 'function') throw new FieldError('handlers', `have none for kind ${JSON.stringify(kind)}`)
    if (all.has(kindOf(kind))) throw new FieldError('handlers', `have two for kind ${JSON.stringify(kind)}`)
    all.set(kind, handler)
  }
  for (const some of [handlers].flat() as ((H & OfTask) | ByKind<H>)[]) {
    if (typeof (some as { handle?: unknown } | undefined)?.handle === 'function' && 'enqueue' in some) throw new FieldError('handlers', `have a task, ${String(some.name)}: give what its handle(…) returns`)
    if (typeof some !== 'function') Object.entries(typed('handlers', some, 'handlers')).forEach(([kind, handler]) => add(kind, handler))
    else if (some.kind === undefined) throw new FieldError('handlers', "are a list with one that has no kind; { '': handler } takes jobs without one")
    else if (some.queue !== queue) throw new FieldError('handlers', `have one of task ${some.kind}, whose queue is ${some.queue}, in a worker of ${queue}`)
    else add(some.kind, some)
  }
  if (!all.size) throw new FieldError('handlers', 'are none')
  return Object.assign((kind: string) => all.get(kind), { kinds: [...all.keys()].sort() })
}

/** End is how an attempt ended. failed: it will be tried again. lost: its lease was lost, whatever the handler returned. */
export type End = 'done' | 'failed' | 'snoozed' | 'dead' | 'cancelled' | 'lost' | 'settled' | 'released'

/** Options of work. All times are milliseconds. */
export interface WorkOptions {
  /** How many handlers run at a time. Default 10. */
  concurrency?: number
  /** The most jobs that one call claims. Default 100. */
  batch?: number
  /** How long a job stays with a worker that has died, 1,000 or more. Default 30,000. */
  lease?: number
  /** The group to claim from. Default ''. */
  groupKey?: string
  /** Several groups to claim from, which take turns. */
  groups?: readonly string[]
  /** Whether to claim from every group in turn. */
  allGroups?: boolean
  /** The name that status shows. Default host/pid. */
  worker?: string
  /** The pause after a claim without jobs doubles from pollMin to pollMax. Default 2 and 50. */
  pollMin?: number
  pollMax?: number
  /** How long the end of a job waits at most for a claim to carry it. Default 20. */
  ackEvery?: number
  /** How long handlers may continue when the worker stops. Default 10,000. */
  drainTimeout?: number
  /**
   * The age from which a job that has no handler is a dead letter: its kind may be a typing error. The worker must also have known the job for
   * half of this time. So jobs that have waited long, or were enqueued for later, meet other workers first. Default 3,600,000.
   */
  giveUp?: number
  /** Stops the worker. Without a signal, SIGTERM and SIGINT do. */
  signal?: AbortSignal
  /** Called after the durable end of every attempt. ms is how long the handler ran. */
  onEnd?: (job: Job, end: End, ms: number) => void
  /** Default console. */
  logger?: Logger
}

const callTimeout = 30_000 // ends a call that hangs
const leastLease = 1000 // a shorter one may end before a call has extended it
const maintainEvery = 500
const heartbeatEvery = 30_000
const maxUnhandled = 10 // kinds without a handler that heartbeats name
const strangeAfter = 10_000 // the longest rest of a job that has no handler here
const forgetAfter = 15_000 // then such a job that has not come back is new to the worker, up to twice that
const maxMet = 10_000 // bounds the memory of a worker that meets many such jobs; others rest for strangeAfter, and are not given up meanwhile
const removed = 'it was removed while it ran, as cancel does'
const ignoredAfter = 1000 // a handler that goes on for so long after its timeout ignores it
const carryAt = 32 // how many ended jobs make it worthwhile for a claim to carry them

/** Task is one claimed job, held until its end is written down. */
interface Task {
  job: Job
  handler: Handler | undefined
  until: number // when the lease ends, or earlier, by this machine's clock
  abort: AbortController
  begun: boolean
  waited?: boolean // it was queued when leases were extended
  ended: boolean // the handler has returned
  left: boolean // the worker has stopped, and does not wait for the handler any more
  lost: boolean
  gone: boolean // it was lost before its time: the job was removed
  end: 'done' | 'cancelled' // once it is to be acked
  done: number // since when
  took: number
}

/** Strangers are the jobs without a handler here. */
export class Strangers {
  readonly met = new Map<string, number>() // the old ones, with the time at which this worker first met each, the oldest first
  private lately = new Map<bigint, { first: number, rests: boolean }>() // those met since turned; rests: if it is met again
  private before = this.lately // and those before
  private turned = 0

  /**
   * For how many milliseconds a job that is passed on may not be claimed. First it may be at once, and this worker leaves others the time to do so.
   * If it meets the job again, none has had room, and the job rests for half as long as the worker knows it. Then it is the others' turn again.
   */
  rest({ id }: Job, at: number): number {
    if (at - this.turned >= forgetAfter) [this.lately, this.before, this.turned] = [new Map(), this.lately, at]
    if (!this.lately.has(id) && this.lately.size >= maxMet) return strangeAfter
    const { first, rests } = this.lately.get(id) ?? this.before.get(id) ?? { first: at, rests: false }
    this.lately.set(id, { first, rests: !rests })
    return rests ? Math.min(Math.max((at - first) / 2, 1), strangeAfter) : 0
  }

  /** Whether this worker has known an old job for half of giveUp. now is when it was claimed, by the database's clock. */
  givesUp({ id, createdAt }: Job, now: number, giveUp: number): boolean {
    if (now - createdAt.getTime() < giveUp / 2) return false // need not be remembered
    const which = `${id} ${createdAt.getTime()}`
    const first = this.met.get(which)
    if (first !== undefined) return now - first >= giveUp / 2 && this.met.delete(which)
    if (this.met.size === maxMet) for (const [other, at] of this.met) {
      if (now - at <= giveUp) break
      this.met.delete(other) // another worker has taken it, probably
    }
    if (this.met.size < maxMet) this.met.set(which, now)
    return false
  }
}

/** run works. check comes first, again and again while the database is away. */
export async function run(queue: Queue, handler: Find, options: WorkOptions, strangers = new Strangers(), check?: () => Promise<void>): Promise<void> {
  const stop = new AbortController()
  const stopped = () => stop.abort()
  const { signal } = options
  if (signal) {
    if (signal.aborted) return
    signal.addEventListener('abort', stopped, { once: true })
  } else for (const name of ['SIGTERM', 'SIGINT'] as const) process.once(name, stopped)
  try {
    const worker = new Worker(queue, handler, options, stop, strangers)
    if (!check || await worker.reach(check)) await worker.run()
  } finally {
    if (signal) signal.removeEventListener('abort', stopped)
    else for (const name of ['SIGTERM', 'SIGINT'] as const) process.off(name, stopped)
  }
}

class Worker {
  readonly o
  readonly freed = new Notice() // there may be room to claim
  readonly acking = new Notice() // there are ended jobs
  readonly over = new AbortController() // everything is written, or must be given up
  readonly held = new Map<bigint, Task>()
  queued: Task[] = [] // claimed, not begun
  acks: Task[] = [] // done, not written, the oldest first
  writing = 0 // acks that a running call has taken
  busy = 0 // handlers that run, or whose failure is being written
  started = false
  passing = false // jobs without a handler here are being given back
  running = new Set<Promise<void>>()
  pace = 0 // how long a handler takes, about; 0 is not known
  settles = false // handlers end their jobs in their own transactions
  full = false // a limit of running jobs left hardly room at the last claim
  readonly holds = new Set<string>() // groups that handlers have held since the last claim began
  readonly strange = new Set<string>() // kinds without a handler that the log and heartbeats name
  readonly begun = new Date()
  readonly ends = new Map<End, number>() // how many attempts ended so
  claimedAt: Date | undefined
  nextHeartbeat = 0
  passedBy: Set<string> | undefined = new Set() // groups with ready jobs at the last look, which it takes none of; undefined once it has said so
  readonly outage: Outage
  readonly turns: Turns
  failure: unknown // an error that another attempt cannot cure

  constructor(readonly queue: Queue, readonly handler: Find, options: WorkOptions, readonly stop: AbortController,
    readonly strangers: Strangers) {
    const given = Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined)) as WorkOptions
    this.o = { concurrency: 10, batch: 100, lease: 30_000, worker: `${hostname()}/${process.pid}`, pollMin: 2, pollMax: 50,
      ackEvery: 20, drainTimeout: 10_000, giveUp: 3_600_000, onEnd: () => {}, logger: console, ...given }
    for (const field of ['concurrency', 'batch', 'lease', 'pollMin', 'pollMax', 'ackEvery', 'drainTimeout', 'giveUp'] as const) {
      const least = field === 'drainTimeout' ? 0 : field === 'lease' ? leastLease : 1
      if (!(this.o[field] >= least)) throw new FieldError(field, `is ${this.o[field]}, expected ${least} or more${field === 'lease' ? ': it is in milliseconds' : ''}`)
    }
    const { groupKey, groups, allGroups } = given
    if ([groupKey, groups?.length, allGroups].filter(Boolean).length > 1) throw new FieldError('groupKey', 'is given in several ways: give one of groupKey, groups and allGroups')
    for (const group of [groupKey ?? '', ...groups ?? []]) textOf('groupKey', group, 256)
    this.turns = new Turns(given)
    textOf('worker', this.o.worker, 256)
    this.outage = new Outage(queue.name, this.o.logger)
    if (this.o.batch > 10_000) throw new FieldError('batch', `is ${this.o.batch}, expected 10,000 or fewer`)
  }

  /** Tries until the database answers: the schema fits, and the role may work on the queue. False: it is stopped before. */
  async reach(check: () => Promise<void>): Promise<boolean> {
    const backoff = new Backoff(this.outage, this.stop.signal)
    while (!this.stop.signal.aborted) {
      try {
        await timely(check(), callTimeout)
        await timely(this.queue.maintain(), callTimeout).catch(err => {
          if (isAway(err) || isForbidden(err) || isMissing(err)) throw err // else it may pass
        })
        backoff.worked()
        return true
      } catch (err) {
        if (!isAway(err)) throw err
        await backoff.wait('cannot reach the database (start it, or correct its address)', err)
      }
    }
    return false
  }

  async run(): Promise<void> {
    const loops = [this.beatLoop(), this.maintainLoop(), this.ackLoop()]
    await this.claimLoop()
    const released = this.release(this.queued.splice(0))
    const handlers = Promise.all(this.running)
    if (this.busy) this.o.logger.info?.(`penstock: the worker of queue ${this.queue.name} stops: ${this.busy} handlers run, and have ${this.o.drainTimeout / 1000} s to end`)
    if (!this.failure) await Promise.race([handlers, sleep(this.o.drainTimeout, this.over.signal)])
    const running = [...this.held.values()].filter(task => task.handler && !task.ended)
    if (running.length) this.o.logger.warn(`penstock: the worker of queue ${this.queue.name} aborts the jobs that still run, with the ids ${running.map(task => task.job.id).join(', ')}`)
    for (const task of this.held.values()) if (!task.ended) task.abort.abort(new StoppingError('the worker stops'))
    const giveUp = setTimeout(() => this.over.abort(), Math.max(this.o.drainTimeout, 1000))
    await Promise.race([Promise.all([handlers, released]), sleep(Infinity, this.over.signal)]) // nothing can end a handler that ignores its signal
    const left = [...this.held.values()].filter(task => task.handler && !task.ended)
    for (const task of left) {
      task.left = true
      this.held.delete(task.job.lease)
    }
    await this.ack()
    clearTimeout(giveUp)
    this.over.abort()
    this.acking.notify()
    await Promise.all(loops)
    if (!this.failure) await this.heartbeat(true)
    if (this.failure) throw this.failure
    if (left.length) throw new Error(`${left.length} handlers went on after the drain time, and were left; their jobs run again when their leases end`)
    this.o.logger.info?.(`penstock: the worker of queue ${this.queue.name} has stopped`)
    if (this.held.size) throw new Error(`how ${this.held.size} jobs ended could not be written in time; they run again when their leases end`)
  }

  /** Claims jobs and starts them until the worker stops. */
  async claimLoop() {
    const backoff = new Backoff(this.outage, this.over.signal)
    let pause = 0 // 0: the last claim brought jobs
    while (!this.stop.signal.aborted) {
      const n = this.wanted()
      if (n <= 0) {
        await this.freed.wait(this.stop.signal)
        continue
      }
      let acks: Task[] = [], jobs: Job[] = [], until = 0, shares: Shares
      try {
        shares = await timely(this.turns.next(this.queue, n, this.full && !this.settles), callTimeout)
        if (backoff.failures === 0 && this.carries(pause > 0)) acks = this.takeAcks()
        until = now() + this.o.lease
        this.holds.clear()
        // Jobs that may share a lease are acked faster together, but acks of them in several transactions wait for each other.
        const carried = acks.length || !this.settles ? acks.map(leaseOf) : undefined
        if (!shares.size && acks.length) shares = new Map([[this.turns.last, n]]) // its jobs may wait for the end of those that are acked
        if (shares.size) {
          const [[groupKey, n]] = shares as unknown as [[string, number]], how = { lease: this.o.lease, worker: this.o.worker, acks: carried }
          const got = await timely(shares.size > 1 ? this.queue.claimGroups(shares, how) : this.queue.claim({ n, groupKey, ...how }), callTimeout)
          this.acked(acks, got.acked)
          this.full = got.full
          ;[jobs, until] = await this.stillLeased(got.jobs, until)
        }
      } catch (err) {
        this.returnAcks(acks)
        if (this.permanent(err)) return
        await backoff.wait('cannot claim jobs', err, this.stop.signal)
        continue
      }
      backoff.worked()
      this.start()
      const strange: Task[] = [], back: Task[] = []
      for (const job of jobs) {
        const handler = this.handler(job.kind)
        const task: Task = { job, handler, until, abort: new AbortController(), begun: !handler, ended: false, left: false, lost: false, gone: false, end: 'done', done: 0, took: 0 }
        this.held.set(job.lease, task)
        ;(this.holds.has(job.groupKey) ? back : handler ? this.queued : strange).push(task)
      }
      this.begin()
      if (back.length) this.runs(this.release(back))
      if (strange.length) this.runs(this.pass(strange))
      if (jobs.length) this.claimedAt = new Date()
      const more = this.turns.took(jobs.length, shares)
      pause = jobs.length ? 0 : Math.min(pause * 2 || this.o.pollMin, this.o.pollMax)
      if (!more) await this.rests(spread(Math.max(pause || this.o.pollMin, 4 * this.turns.looked)), jobs.some(job => job.key !== ''))
    }
  }

  /** Waits between two claims. Where keys may have kept jobs back, it waits only until all that run have ended. */
  async rests(ms: number, keyed: boolean) {
    if (!keyed) return sleep(ms, this.stop.signal)
    const end = now() + ms
    for (let left = ms; left > 0 && (this.busy || this.queued.length) && !this.stop.signal.aborted; left = end - now()) await this.freed.wait(this.stop.signal, left)
  }

  /**
   * Returns those of the jobs of a claim whose leases last, and until when. After a claim that took longer than a lease they may run elsewhere. So they
   * are extended first. Without an answer none of them begins.
   */
  async stillLeased(jobs: Job[], until: number): Promise<[Job[], number]> {
    const start = now()
    if (!jobs.length || start < until) return [jobs, until]
    const lasting = await timely(this.queue.extend(jobs.map(job => job.lease), this.o.lease), callTimeout).catch(() => undefined)
    return lasting ? [jobs.filter(job => lasting.includes(job.lease)), start + this.o.lease] : [[], until]
  }

  /** Logs the start, once the first claim has worked: before that the queue may not exist. */
  start() {
    if (this.started) return
    this.started = true
    this.o.logger.info?.(`penstock: a worker of queue ${this.queue.name} has started: ${this.o.worker}, concurrency ${this.o.concurrency}`)
  }

  /** How many jobs to claim now: one for each free handler, and some ahead for about a tenth of a second. Under a limit these would take places of others. */
  wanted(): number {
    const window = Math.min(100, this.o.lease / 10)
    const ahead = this.pace && !this.full ? Math.min(this.o.batch, this.o.concurrency * Math.floor(window / this.pace)) : 0
    // If the acks do not keep up, or jobs are being given back, no more is claimed.
    if (this.passing || this.queued.length > ahead / 2 || this.acks.length + this.writing >= 4 * this.o.batch) return 0
    return Math.min(this.o.batch, this.o.concurrency - this.busy + ahead - this.queued.length)
  }

  begin() {
    while (!this.stop.signal.aborted && this.busy < this.o.concurrency) {
      const task = this.queued.shift()
      if (!task) break
      this.busy++
      task.begun = true
      this.runs(this.work(task, task.handler!).finally(() => {
        this.busy--
        this.begin()
        this.freed.notify()
      }))
    }
  }

  /** Waits for it when the worker stops. */
  runs(running: Promise<void>) {
    this.running.add(running)
    void running.finally(() => this.running.delete(running))
  }

  /**
   * Leaves jobs that have no handler here to another worker. They come back later and spend no attempt. One that no worker has taken is
   * given up at last.
   */
  async pass(tasks: Task[]) {
    this.passing = true
    const { giveUp, lease } = this.o
    const old = tasks.filter(({ job }) => this.strangers.givesUp(job, job.leaseUntil.getTime() - lease, giveUp))
    for (const { job: { kind } } of tasks) {
      if (this.strange.has(kind) || this.strange.size === 100) continue
      this.strange.add(kind)
      const { kinds = [] } = this.handler, has = [...kinds.slice(0, 20).map(k => JSON.stringify(k)), ...(kinds.length > 20 ? ['others'] : [])].join(', ')
      this.o.logger.warn(`penstock: queue ${this.queue.name}: no handler for kind ${JSON.stringify(kind)} in this worker, which has ${has}. `
        + `Such jobs are left to other workers, and are dead letters after ${giveUp / 60_000} min: add a handler, or enqueue with one of these kinds`)
    }
    const rests = new Map<number, Task[]>()
    for (const task of tasks) {
      if (old.includes(task)) continue
      const rest = this.strangers.rest(task.job, now())
      rests.set(rest, [...rests.get(rest) ?? [], task])
    }
    await Promise.all([
      ...[...rests].map(([rest, those]) => this.release(those, spread(rest))),
      ...old.map(task => this.fail(task, new Outcome('deadLetter', undefined, `no handler for kind ${JSON.stringify(task.job.kind)}`))),
    ])
    if (rests.has(0)) await sleep(this.o.pollMax * 1.25, this.stop.signal) // others that look for jobs meet these first
    this.passing = false
    this.freed.notify()
  }

  /** Runs the handler on one job and makes sure that its end is written down. */
  async work(task: Task, handler: Handler) {
    const start = now()
    let verdict: 'settled' | Outcome | undefined
    try {
      warnings.set(task.job, what => this.warn(task, what))
      const returned = await within(task.job, task.abort.signal, Number(task.job.headers[headerTimeout] ?? 0) * 1000 || undefined, signal => handler(task.job, signal))
      verdict = returned === 'settled' || isOutcome(returned) ? returned : undefined
    } catch (err) {
      verdict = outcomeOf(err)
    }
    if (task.left) return
    task.took = now() - start
    this.pace = Math.max(this.pace ? this.pace + (task.took - this.pace) / 8 : task.took, 0.001)
    task.ended = true
    if (verdict === 'settled') {
      this.settles = true
      return this.finish(task, 'settled')
    }
    if (!verdict || verdict.how === 'cancelled') { // and if the lease was lost, the database will report it
      if (verdict) task.end = 'cancelled'
      task.done = now()
      this.acks.push(task)
      return this.acking.notify()
    }
    if (task.lost) {
      this.warn(task, task.gone ? removed : 'the lease was lost while it ran; it may run elsewhere')
      return this.finish(task, 'lost')
    }
    await this.fail(task, verdict)
  }

  /**
   * Writes the end of an attempt that is not done, and retries until it is written. The slot stays in use, to keep claims from outrunning
   * the writing of ends.
   */
  async fail(task: Task, outcome: Outcome) {
    const backoff = new Backoff(this.outage, this.over.signal)
    do {
      try {
        const end = await timely(this.tell(task, outcome), callTimeout)
        backoff.worked()
        return this.finish(task, end)
      } catch (err) {
        if (sqlState(err) === 'PS001') {
          backoff.worked()
          this.warn(task, 'it failed, but its lease was gone; unless an earlier call wrote that, it runs again')
          return this.finish(task, 'lost')
        }
        if (this.permanent(err)) return
        await backoff.wait('cannot write down that a job failed', err)
      }
    } while (!this.over.signal.aborted)
  }

  async tell(task: Task, { how, after, reason, cause }: Outcome): Promise<End> {
    const { lease } = task.job
    if (how === 'deadLetter') {
      await this.queue.deadLetter(lease, reason)
      this.warn(task, `dead letter: ${typeof cause === 'string' ? cause : reason}`)
      return 'dead'
    }
    if (how === 'holdGroup') {
      // A group of the name *, which stands for all, cannot be held: then this job waits alone.
      const holds = after! > 0 && task.job.groupKey !== '*'
      if (holds) {
        await this.queue.holdGroup(task.job.groupKey, after!, reasonOf(reason))
        this.warn(task, `its group ${JSON.stringify(task.job.groupKey)} is held for ${after} ms${reason && `: ${reason}`}`)
        this.holds.add(task.job.groupKey)
        const ahead = this.queued.filter(({ job }) => job.groupKey === task.job.groupKey)
        this.queued = this.queued.filter(other => !ahead.includes(other))
        this.runs(this.release(ahead))
      }
      return (await this.queue.release([lease], holds ? 0 : after)).length ? 'snoozed' : 'lost'
    }
    const interrupted = task.abort.signal.reason instanceof StoppingError // it is not the job's fault
    if (how === 'snooze' || interrupted) {
      const held = await this.queue.release([lease], how === 'snooze' ? after : 0)
      return held.length === 0 ? 'lost' : how === 'snooze' ? 'snoozed' : 'released'
    }
    const again = await this.queue.retry(lease, after, reason)
    this.warn(task, `${again ? 'failed' : 'failed for the last time'}: ${typeof cause === 'string' ? cause : reason}`)
    return again ? 'failed' : 'dead'
  }

  /** Forgets a task whose end is durable. */
  finish(task: Task, end: End) {
    this.held.delete(task.job.lease)
    this.ended(task, end, task.took)
  }

  ended(task: Task, end: End, ms: number) {
    this.ends.set(end, (this.ends.get(end) ?? 0) + 1)
    if (this.o.logger !== console && this.o.logger.debug && ['done', 'settled', 'cancelled'].includes(end)) {
      this.o.logger.debug(this.line(task, `${end === 'cancelled' ? end : 'done'} in ${ms.toFixed(1)} ms`))
    }
    const failed = (err: unknown) => this.warn(task, `onEnd has failed: ${outcomeOf(err).reason.split('\n')[0]}`)
    try {
      const made: unknown = this.o.onEnd(task.job, end, ms)
      if (made instanceof Promise) made.catch(failed) // an async function
    } catch (err) {
      failed(err)
    }
  }

  /**
   * Whether the next claim should carry ended jobs. Those that ended just now wait, unless a job of their key may wait for them, or the
   * last claim brought none.
   */
  carries(none: boolean): boolean {
    const oldest = this.acks[0]
    return !!oldest && (none || this.acks.length >= Math.min(carryAt, this.o.batch) || now() - oldest.done >= this.o.ackEvery / 2 || this.acks.some(t => t.job.key !== ''))
  }

  takeAcks(): Task[] {
    const tasks = this.acks.splice(0, 10_000)
    this.writing += tasks.length
    return tasks
  }

  returnAcks(tasks: Task[]) {
    this.writing -= tasks.length
    this.acks = tasks.concat(this.acks)
    if (tasks.length) this.acking.notify()
  }

  /** Finishes the tasks of a call that returned the leases that were held. */
  acked(tasks: Task[], leases: bigint[]) {
    this.writing -= tasks.length
    const held = new Set(leases)
    for (const task of tasks) {
      if (held.has(task.job.lease)) this.finish(task, task.end)
      else {
        this.warn(task, task.gone ? removed : 'it is done, but its lease was gone; unless an earlier call wrote that, it runs again')
        this.finish(task, 'lost')
      }
    }
    if (tasks.length) this.freed.notify()
  }

  /** Writes ended jobs that no claim has carried. */
  async ackLoop() {
    while (!this.over.signal.aborted) {
      const oldest = this.acks[0]
      const wait = oldest ? oldest.done + this.o.ackEvery - now() : Infinity
      if (oldest && (wait <= 0 || this.acks.length >= this.o.batch)) await this.ack()
      else await this.acking.wait(this.over.signal, wait)
    }
  }

  async ack() {
    const backoff = new Backoff(this.outage, this.over.signal)
    for (let tasks = this.takeAcks(); tasks.length; tasks = this.takeAcks()) {
      try {
        this.acked(tasks, await timely(this.queue.ack(tasks.map(leaseOf)), callTimeout))
      } catch (err) {
        this.returnAcks(tasks)
        if (this.permanent(err) || this.over.signal.aborted) return
        await backoff.wait('cannot write down that jobs are done', err)
      }
    }
    backoff.worked() // or claims have taken them along
  }

  /** Extends the leases of all held tasks at every third of a lease, with one call. */
  async beatLoop() {
    const backoff = new Backoff(this.outage, this.over.signal)
    await sleep(this.o.lease / 3, this.over.signal)
    while (!this.over.signal.aborted) {
      const tasks = [...this.held.values()].filter(task => !task.lost)
      const until = now() + this.o.lease
      try {
        this.prolong(tasks, await timely(this.queue.extend(tasks.map(leaseOf), this.o.lease), this.o.lease / 3), until)
        backoff.worked()
        await this.release(this.stuck())
        await sleep(this.o.lease / 3, this.over.signal)
      } catch (err) {
        this.prolong(tasks, undefined, until)
        if (this.permanent(err)) return
        await backoff.wait('cannot extend the leases of jobs', err, this.over.signal, this.o.lease / 10)
      }
    }
  }

  /** Takes out the jobs that were queued when leases were extended last. The handlers hang, and other workers may be free. So none is claimed ahead until one has ended. */
  stuck(): Task[] {
    const stuck = this.queued.filter(task => task.waited)
    if (stuck.length) {
      this.o.logger.warn(`penstock: no handler has begun ${stuck.length} jobs of queue ${this.queue.name} for long: they are given back for other workers`)
      this.pace = Math.max(this.pace, this.o.lease / 3)
      this.queued = this.queued.filter(task => !task.waited)
    }
    for (const task of this.queued) task.waited = true
    return stuck
  }

  /** Notes which leases last until then, and gives up the others. Without an answer, it gives up those that have expired by now. */
  prolong(tasks: Task[], extended: bigint[] | undefined, until: number) {
    const kept = extended && new Set(extended)
    for (const task of tasks) {
      const { lease } = task.job
      if (kept?.has(lease)) task.until = until
      if (task.ended || !this.held.has(lease) || (kept ? kept.has(lease) : now() < task.until)) continue
      if (task.begun) {
        task.lost = true
        task.gone = kept !== undefined && now() < task.until
        task.abort.abort(new LeaseLostError(task.gone ? 'the job was removed, as cancel does' : 'the lease of this job is lost'))
      } else {
        this.queued.splice(this.queued.indexOf(task), 1)
        this.finish(task, 'lost')
        this.freed.notify()
      }
    }
  }

  async maintainLoop() {
    const backoff = new Backoff(this.outage, this.stop.signal)
    while (!this.stop.signal.aborted) {
      try {
        await timely(this.queue.maintain(), callTimeout)
        backoff.worked()
        if (now() >= this.nextHeartbeat) await this.heartbeat()
        await sleep(maintainEvery, this.stop.signal)
      } catch (err) {
        if (this.permanent(err)) return
        await backoff.wait("the queue's maintenance failed", err)
      }
    }
  }

  /** Says that this worker lives. Only operators see it, so nothing else depends on it. */
  async heartbeat(stopped = false) {
    this.nextHeartbeat = now() + spread(heartbeatEvery)
    const count = (end: End) => this.ends.get(end) ?? 0
    try {
      await timely(this.queue.heartbeat({
        worker: this.o.worker, version: `@penstock/client ${clientVersion}`, started_at: this.begun, concurrency: this.o.concurrency, groups: this.turns.groups,
        running: this.held.size, done: count('done') + count('settled'), failed: count('failed'), dead: count('dead'), claimed_at: this.claimedAt,
        ...this.strange.size && { unhandled: [...this.strange].sort().slice(0, maxUnhandled) }, ...stopped && { stopped },
      }), callTimeout)
      if (!stopped && this.passedBy && this.turns.groups.length === 1 && this.turns.last === '') await this.look(this.passedBy)
    } catch {} // the next one is at its usual time
  }

  /** Says that jobs of groups wait, at two looks, if this worker takes none: if no other worker does, they would wait for ever. */
  async look(before: Set<string>) {
    const found = (await timely(this.queue.readyGroups(undefined, '', 16), callTimeout)).filter(Boolean)
    const [left, ...others] = [...new Set(found)].filter(group => before.has(group)).sort()
    this.passedBy = left === undefined ? new Set(found) : undefined
    if (left !== undefined) {
      this.o.logger.warn(`penstock: queue ${this.queue.name}: jobs of group ${JSON.stringify(left)}${others.length ? ' and of others' : ''} wait, and this worker takes only jobs without a group: start one with allGroups, or with groups`)
    }
  }

  /** Gives back jobs that have not begun, to run at once or after some milliseconds. */
  async release(tasks: Task[], after = 0) {
    for (const task of tasks) this.held.delete(task.job.lease)
    const backoff = new Backoff(this.outage, this.over.signal)
    while (tasks.length && !this.over.signal.aborted) {
      try {
        await timely(this.queue.release(tasks.map(leaseOf), after), callTimeout)
        backoff.worked()
        for (const task of tasks) this.ended(task, 'released', 0)
        return
      } catch (err) {
        if (this.permanent(err)) return
        await backoff.wait('cannot give back jobs that have not begun', err)
      }
    }
  }

  /** Returns whether err ends the worker, and notes it. */
  permanent(err: unknown): boolean {
    if (!(err instanceof FieldError) && !isMissing(err)) return false
    this.failure ??= err
    this.stop.abort()
    return true
  }

  warn(task: Task, what: string) {
    this.o.logger.warn(this.line(task, what))
  }

  line(task: Task, what: string): string {
    const { id, kind, attempt } = task.job
    return `penstock: queue ${this.queue.name}, job ${id}, ${kind && `kind ${kind}, `}attempt ${attempt}: ${what}`
  }
}

const warnings = new WeakMap<Job, (what: string) => void>() // the log of the worker that runs a job

/**
 * within runs a handler of a job whose signal aborts after some milliseconds. If the handler then throws, it has failed for that reason. If it goes on,
 * or ends in another way, the log says so: nothing can stop it.
 */
export async function within<T>(job: Job, signal: AbortSignal, ms: number | undefined, handler: (signal: AbortSignal) => T | Promise<T>): Promise<T> {
  if (ms === undefined || ms >= 2 ** 31) return handler(signal) // a timer counts no further
  const over = new AbortController()
  const start = now()
  const warn = (what: string) => warnings.get(job)?.(what)
  const returns = () => {
    if ((over.signal.aborted || now() - start > ms) && !signal.aborted) warn(`ran longer than its timeout of ${ms} ms: its handler ended after ${Math.round(now() - start)} ms, and its outcome counts`)
  }
  let timer = setTimeout(() => {
    over.abort(Object.assign(new Error(`the job ran longer than its timeout of ${ms} ms`), { name: 'TimeoutError' }))
    timer = setTimeout(() => warn(`runs longer than its timeout of ${ms} ms: its handler ignores the signal`), ignoredAfter)
  }, ms)
  try {
    const returned = await handler(AbortSignal.any([signal, over.signal]))
    returns()
    return returned
  } catch (err) {
    if (!isOutcome(err)) throw over.signal.aborted && !signal.aborted ? over.signal.reason : err
    returns()
    throw err
  } finally {
    clearTimeout(timer)
  }
}

/** outcomeOf reads what a handler has thrown, once. Reading it runs the handler's code, which may throw. */
export function outcomeOf(thrown: unknown): Outcome {
  try {
    if (isOutcome(thrown)) return thrown
    const outcome = new Outcome('retry', undefined, keptOf(thrown))
    if (thrown instanceof Error && thrown.stack) outcome.cause = String(thrown.stack) // for the log
    return outcome
  } catch {
    return new Outcome('retry', undefined, 'what the handler threw cannot be read')
  }
}

const maxPlaces = 10
const maxCauses = 5

/**
 * keptOf is what a job keeps of an error. The first line is its name and message, with the innermost line of the program's code: dead letters are grouped
 * by it. Behind the rest of the message is from where that was called, and the causes.
 */
function keptOf(thrown: unknown): string {
  const lineOf = (error: unknown, place?: string) => {
    const [first, ...rest] = String(error).split('\n')
    return [first + (place ? ` (${place})` : ''), ...rest]
  }
  const [place, ...from] = placesOf(thrown)
  const lines = [...lineOf(thrown, place), ...from.map(one => `  from ${one}`)]
  for (let n = 0, e = thrown; n < maxCauses && e instanceof Error && e.cause !== undefined; n++) {
    e = e.cause
    lines.push(`caused by ${lineOf(e, placesOf(e)[0])[0]}`)
  }
  return lines.join('\n')
}

const framesOf = (stack: unknown) => [...String(stack ?? '').matchAll(/^ {4}at (?:async )?(?:(.*) \()?(.*[\\/])?(.*:\d+):\d+\)?$/gm)]
  .map(([, name, folder = '', line]) => ({ folder, place: `${line}${name ? ` in ${name}` : ''}` }))
const ours = framesOf(new Error().stack)[0]?.folder // of a program in one file as well

/** placesOf are the lines of the program's code in the stack of an error, the innermost first. */
function placesOf(error: unknown): string[] {
  const frames = framesOf(error instanceof Error ? error.stack : '').filter(({ folder }) => !/^node:|[\\/]node_modules[\\/]/.test(folder))
  const own = frames.filter(({ folder }) => folder !== ours)
  return (own.length ? own : frames.slice(0, 1)).slice(0, maxPlaces).map(({ place }) => place)
}

const now = () => performance.now()
/** Up to an eighth longer or shorter: workers that began together do not stay together. */
const spread = (ms: number) => ms * (0.875 + Math.random() / 4)
const leaseOf = (task: Task) => task.job.lease
