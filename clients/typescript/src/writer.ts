import type { Execute, Value } from './database.js'
import { explained } from './errors.js'
import { checked } from './options.js'
import { callOf, enqueuedOf, insertInto, type Enqueued } from './statements.js'
import { arrays, jobArrays, jobRow, messageRow, type Message, type NewJob } from './values.js'

export interface WriterOptions {
  /** The number of messages and jobs after which the writer writes without a flush. Default 1,000. */
  flushAt?: number
}

/** Pending is a job that a Writer has accepted. */
export interface Pending {
  /** Writes the job if that has not happened yet, and returns the result. */
  enqueued(): Promise<Enqueued>
}

type Waiting = { resolve: (e: Enqueued) => void, reject: (err: unknown) => void }
type Part = { name: string, queue: boolean, rows: Value[][], waiting: Waiting[] }

/**
 * Writer collects messages and jobs of one transaction. It writes them with one statement, whatever the number of
 * outboxes and queues. Messages and jobs that are not flushed when the transaction commits are lost.
 */
export class Writer {
  #parts = new Map<string, Part>()
  #count = 0
  #last: Promise<void> = Promise.resolve()
  readonly #flushAt: number
  /** @internal */
  constructor(readonly execute: Execute, readonly schema: string, options: WriterOptions = {}) {
    this.#flushAt = checked('writer', options).flushAt ?? 1000
  }

  /** Takes a message, or throws a FieldError. You need not await it: awaiting it waits only while a full writer is written, whose error flush throws too. */
  publish(outbox: string, message: Message): Promise<void> {
    const row = messageRow(message)
    this.#part(outbox, false).rows.push(row)
    const taken = this.#taken()
    taken.catch(() => {}) // flush reports it
    return taken
  }

  /** Takes a job. Ask for its id once all jobs are taken, because asking writes them. */
  enqueue(queue: string, job: NewJob): Pending {
    const row = jobRow(job)
    const part = this.#part(queue, true)
    const written = new Promise<Enqueued>((resolve, reject) => part.waiting.push({ resolve, reject }))
    written.catch(() => {}) // flush reports it
    part.rows.push(row)
    this.#taken().catch(() => {})
    return { enqueued: () => this.flush().then(() => written) }
  }

  #part(name: string, queue: boolean): Part {
    const key = `${queue} ${name}`
    const part = this.#parts.get(key) ?? { name, queue, rows: [], waiting: [] }
    this.#parts.set(key, part)
    return part
  }

  async #taken() {
    if (++this.#count >= this.#flushAt) await this.flush()
  }

  /** Writes messages and jobs that were taken. It also throws the errors of earlier writes: the transaction is lost then. */
  flush(): Promise<void> {
    const parts = [...this.#parts.values()].filter(part => part.rows.length)
    this.#parts = new Map()
    this.#count = 0
    this.#last = this.#last.then(() => this.#write(parts))
    this.#last.catch(() => {}) // the next flush, or this one's caller, gets it
    return this.#last
  }

  async #write(parts: Part[]): Promise<void> {
    if (!parts.length) return
    try {
      const values: Value[] = []
      const ctes: string[] = []
      const selects: string[] = []
      parts.forEach((part, i) => {
        const n = values.length + 1
        const columns = part.queue ? jobArrays(part.rows) : arrays(part.rows)
        if (part.queue) {
          ctes.push(`p${i} as materialized (${callOf(this.schema, n, columns)})`)
          selects.push(`select ${i}::text as part, ids, deduplicated from p${i}`)
          values.push(part.name)
        } else ctes.push(`p${i} as (${insertInto(this.schema, part.name, n)})`)
        values.push(...columns)
      })
      const rows = await explained(this.execute(`with ${ctes.join(', ')} ${selects.join(' union all ') || 'select null'}`, values))
      for (const [part, ...row] of rows) {
        if (row.length) enqueuedOf(row).forEach((e, i) => parts[Number(part)]!.waiting[i]!.resolve(e))
      }
    } catch (err) {
      for (const part of parts) for (const waiting of part.waiting) waiting.reject(err)
      throw err
    }
  }
}
