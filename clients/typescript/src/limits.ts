// Limits of a handler: attempts, time, and the pause between attempts.
import { FieldError } from './errors.js'
import { Outcome, StoppingError, isOutcome, retry, type Job } from './job.js'
import { checked, typed } from './options.js'
import { headerTimeout } from './values.js'
import { outcomeOf, within, type Verdict } from './work.js'

/** Limits of a handler, or of a task. */
export interface Limits {
  /** After as many attempts the job is a dead letter, unless the queue's limit comes first. */
  maxAttempts?: number
  /** After as many milliseconds the handler's signal aborts, unless the job has its own timeout. A handler that then throws has failed for that reason. */
  timeout?: number
  /** Milliseconds, or a function of the attempt, in place of the queue's backoff. */
  backoff?: number | ((attempt: number) => number)
}

/** limited is a handler with limits, to be used like that handler: of work, workTx or a task. */
export function limited<A extends unknown[]>(handler: (...args: [...A, job: Job, signal: AbortSignal]) => Verdict | Promise<Verdict>, limits: Limits) {
  typed('handler', handler, 'function')
  const { maxAttempts = Infinity, timeout, backoff } = checked('limits', limits)
  if (!(maxAttempts >= 1)) throw new FieldError('maxAttempts', `is ${maxAttempts}, expected 1 or more`)
  if (timeout !== undefined && !(timeout >= 1 && timeout <= 2 ** 31 - 1)) throw new FieldError('timeout', `is ${timeout}, expected 1 to ${2 ** 31 - 1} ms`)
  const run = async (...args: [...A, job: Job, signal: AbortSignal]): Promise<Verdict> => {
    const job = args.at(-2) as Job
    const signal = args.at(-1) as AbortSignal
    /** The outcome with the limits, or undefined if they change nothing. */
    const changed = (how: Outcome, kept: { cause: unknown, thrown?: { err: unknown } } = { cause: how.cause }): Outcome | undefined => {
      if (how.how !== 'retry' || signal.reason instanceof StoppingError) return undefined
      if (job.attempt >= maxAttempts && !('penstock-max-attempts' in job.headers)) return Object.assign(new Outcome('deadLetter', undefined, how.reason), kept)
      if (how.after !== undefined || backoff === undefined) return undefined
      return Object.assign(retry(typeof backoff === 'function' ? backoff(job.attempt) : backoff, how.reason), kept)
    }
    try {
      const returned = await within(job, signal, headerTimeout in job.headers ? undefined : timeout, signal => handler(...[...args.slice(0, -1), signal] as [...A, Job, AbortSignal]))
      return isOutcome(returned) ? changed(returned) ?? returned : returned
    } catch (err) {
      const how = outcomeOf(err)
      throw changed(how, how === err ? undefined : { cause: how.cause, thrown: { err } }) ?? err
    }
  }
  return Object.assign(run, handler) // the kind and the queue of a task's handler
}
