// What a worker waits for.

/** Backoff is the pause after failures in a row: doubling from 50 ms to 5 s, and up to half of it less. */
export class Backoff {
  failures = 0
  constructor(readonly over: AbortSignal) {}

  async wait(what: string, err: unknown, logger: { warn(message: string): void }, signal = this.over, most = 5000) {
    const pause = Math.min(50 * 2 ** Math.min(this.failures++, 7), most) * (1 - Math.random() / 2)
    logger.warn(`penstock: ${what}; trying again: ${err instanceof Error ? err.message : err}`)
    await sleep(pause, signal)
  }
}

/** Notice wakes whoever waits for it, now or next time. */
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

/** sleep ends early if signal aborts, or by what it hands to early. */
export function sleep(ms: number, signal: AbortSignal, early?: (wake: () => void) => void): Promise<void> {
  return new Promise(resolve => {
    if (signal.aborted) return resolve()
    const done = () => {
      clearTimeout(timer)
      signal.removeEventListener('abort', done)
      resolve()
    }
    const timer = setTimeout(done, Math.min(ms, 2 ** 31 - 1)) // what a timer can count
    signal.addEventListener('abort', done, { once: true })
    early?.(done)
  })
}

/** timely gives a call up that hangs. */
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
