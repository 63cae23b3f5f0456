import { Writer, type WriterOptions } from './writer.js'
import { begin, executor, listening, type Queryable, type Tx } from './database.js'
import { explained, schemaVersion } from './errors.js'
import { Queue, isOutcome, type Job } from './job.js'
import { callOf, enqueuedOf, insertInto, type Enqueued } from './statements.js'
import { arrays, jobArrays, jobRow, messageRow, quoted, FieldError, type Message, type NewJob } from './values.js'
import { run, type Handler, type Verdict, type WorkOptions } from './work.js'

/** TxHandler does one job within a transaction, which it must not end. */
export type TxHandler<T> = (tx: T, job: Job, signal: AbortSignal) => Verdict | Promise<Verdict>

/**
 * Penstock produces and works. It holds no connection: what it writes goes into the transaction that it is given, which
 * it does not end, and errors of the database are the driver's own.
 */
export class Penstock {
  readonly #name: string
  readonly #schema: string

  constructor(options: { schema?: string } = {}) {
    this.#name = options.schema ?? 'penstock'
    this.#schema = quoted(this.#name)
  }

  /** Publishes a message with tx: it is delivered if that commits. */
  async publish(tx: Queryable, outbox: string, message: Message): Promise<void> {
    const [id, key, topic, headers, payload] = messageRow(message)
    await explained(executor(tx)(
      `select ${this.#schema}.publish_bytes($1::text, $2::text::bytea, $3::text, $4::text, $5::text::jsonb, $6::text)::text`,
      [outbox, payload!, key!, topic!, headers!, id!]))
  }

  /** Publishes messages in their order, with one statement. */
  async publishMany(tx: Queryable, outbox: string, messages: readonly Message[]): Promise<void> {
    if (messages.length) await explained(executor(tx)(insertInto(this.#schema, outbox, 1), arrays(all(messages, messageRow))))
  }

  /** Enqueues a job with tx: it can run once that has committed. */
  async enqueue(tx: Queryable, queue: string, job: NewJob): Promise<Enqueued> {
    return (await this.enqueueMany(tx, queue, [job]))[0]!
  }

  /** Enqueues jobs with one statement, and says what became of each, in their order. */
  async enqueueMany(tx: Queryable, queue: string, jobs: readonly NewJob[]): Promise<Enqueued[]> {
    if (!jobs.length) return []
    const columns = jobArrays(all(jobs, jobRow))
    const [row] = await explained(executor(tx)(callOf(this.#schema, 1, columns), [queue, ...columns]))
    return enqueuedOf(row!)
  }

  /** A memory of what a consumer has received. */
  inbox(consumer: string) {
    const schema = this.#schema
    return {
      /** True if the id is new: do the work in this transaction. False: it was done. */
      async first(tx: Queryable, messageId: string): Promise<boolean> {
        const rows = await explained(executor(tx)(`select ${schema}.inbox($1::text, $2::text)::text`, [consumer, messageId]))
        return rows[0]![0] === 'true'
      },
    }
  }

  /** Collects what is published and enqueued with tx, to write it with one statement. Call flush before the commit. */
  writer(tx: Queryable, options?: WriterOptions): Writer {
    return new Writer(executor(tx), this.#schema, options)
  }

  /** A queue as workers use it, for loops that you write. On a pool each call is a separate transaction. */
  queue(db: Queryable, name: string): Queue {
    return new Queue(db, name, this.#name)
  }

  /** Fails with a VersionError if the database is not migrated, or if its version and this client's do not fit. */
  async check(db: Queryable): Promise<void> {
    await explained(executor(db)(`select ${this.#schema}.check_client($1::text::bigint)::text`, [String(schemaVersion)]))
  }

  /**
   * Claims jobs and calls the handler for each, until options.signal aborts or, without one, the process is sent SIGTERM or
   * SIGINT. Then it claims no more, gives back what has not begun and waits for what runs. db is a pool; it goes on
   * through the database's errors, and rejects for what another attempt cannot cure, as a queue that does not exist.
   */
  async work(db: Queryable, queue: string, handler: Handler, options: WorkOptions = {}): Promise<void> {
    const over = listening(db)
    try {
      await this.check(db)
      await run(this.queue(db, queue), handler, options)
    } finally {
      over()
    }
  }

  /**
   * Is work with a transaction around each handler, which ends the job, too: what the handler writes with it takes
   * effect exactly once. Anything but done and cancelled rolls it back. The pool needs a connection for each handler
   * that runs and two more.
   */
  async workTx<D extends Queryable>(db: D, queue: string, handler: TxHandler<Tx<D>>, options: WorkOptions = {}): Promise<void> {
    await this.work(db, queue, async (job, signal): Promise<'settled'> => {
      await begin(db, async tx => {
        const outcome = await handler(tx, job, signal)
        if (isOutcome(outcome) && outcome.how !== 'cancelled') throw outcome
        await this.queue(tx as Queryable, queue).ackOne(job.lease)
      })
      return 'settled'
    }, options)
  }
}

/** all makes rows of everything before the first is sent, and says which one cannot be. */
function all<T, R>(values: readonly T[], row: (value: T) => R): R[] {
  return values.map((value, i) => {
    try {
      return row(value)
    } catch (err) {
      if (err instanceof FieldError && values.length > 1) err.message = `${i + 1} of ${values.length}: ${err.message}`
      throw err
    }
  })
}
