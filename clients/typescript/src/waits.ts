// Pauses and notifications of a worker.
import { lineOf } from './errors.js'

export interface Logger {
  warn(message: string): void
  /** For events that are not problems: a start, the end of an outage. Without it, the end of an outage is a warning. */
  info?(message: string): void
  /** For each job that is done. The console gets none of these lines. */
  debug?(message: string): void
}

/**
 * Outage tracks failing calls of the database: one line when the first fails, one when all work again. In between each other error is logged once, one line
 * in ten seconds at most: a server that was stopped may have another password now.
 */
export class Outage {
  #calls = new Set<Backoff>() // that fail
  #since = 0
  #logged = 0
  #errors = new Set<string>() // that were logged
  constructor(readonly queue: string, readonly logger: Logger) {}

  fails(call: Backoff, what: string, err: unknown) {
    const now = performance.now(), begins = !this.#calls.size, error = lineOf(err)
    if (begins) this.#since = now
    if (begins || this.#errors.size === 100) this.#errors.clear()
    if (begins || !this.#errors.has(error) && now - this.#logged >= 10_000) {
      this.#logged = now
      this.#errors.add(error)
      this.logger.warn(`penstock: queue ${this.queue}: ${what}; trying until it works: ${error}`)
    }
    this.#calls.add(call)
  }

  works(call: Backoff) {
    if (!this.#calls.delete(call) || this.#calls.size) return
    const line = `penstock: queue ${this.queue}: the database answers again, ${((performance.now() - this.#since) / 1000).toFixed(1)} s later`
    this.logger.info ? this.logger.info(line) : this.logger.warn(line)
  }
}

/** Backoff is the pause after failures in a row. It doubles from 50 ms to 5 s and is up to half shorter. */
export class Backoff {
  failures = 0
  constructor(readonly outage: Outage, readonly over: AbortSignal = new AbortController().signal) {}

  async wait(what: string, err: unknown, signal: AbortSignal = this.over, most = 5000) {
    const pause = Math.min(50 * 2 ** Math.min(this.failures, 7), most) * (1 - Math.random() / 2)
    this.failed(what, err)
    await sleep(pause, signal)
  }

  /** The call has failed. */
  failed(what: string, err: unknown) {
    this.failures++
    this.outage.fails(this, what, err)
  }

  /** The call has succeeded. */
  worked() {
    this.failures = 0
    this.outage.works(this)
  }
}

/** Notice wakes the callers that wait for it, now or when they next wait. */
export class Notice {
  #given = false
  #wake: (() => void) | undefined

  notify() {
    this.#given = true
    this.#wake?.()
  }

  async wait(signal: AbortSignal, most = Infinity) {
    if (!this.#given) await sleep(most, signal, wake => { this.#wake = wake })
    this.#given = false
  }
}

/** sleep waits. It ends early if signal aborts, or when the function that it passes to early is called. */
export function sleep(ms: number, signal: AbortSignal, early?: (wake: () => void) => void): Promise<void> {
  return new Promise(resolve => {
    if (signal.aborted) return resolve()
    const done = () => {
      clearTimeout(timer)
      signal.removeEventListener('abort', done)
      resolve()
    }
    const timer = setTimeout(done, Math.min(ms, 2 ** 31 - 1)) // the longest time that a timer can count
    signal.addEventListener('abort', done, { once: true })
    early?.(done)
  })
}

/** timely gives up a call that hangs. */
export async function timely<T>(call: Promise<T>, ms: number): Promise<T> {
  let timer: NodeJS.Timeout | undefined
  try {
    return await Promise.race([call, new Promise<never>((_, reject) => {
      timer = setTimeout(() => reject(new Error(`the database did not answer within ${Math.round(ms)} ms`)), ms)
    })])
  } finally {
    clearTimeout(timer)
  }
}
