import { Writer, type WriterOptions } from './writer.js'
import { begin, connectionsOf, executor, listening, refuseClient, type Queryable, type Tx } from './database.js'
import { FieldError, explained, schemaVersion } from './errors.js'
import { Queue, isOutcome, snooze } from './job.js'
import { checked, typed } from './options.js'
import { callOf, enqueuedOf, insertInto, type Enqueued } from './statements.js'
import { arrays, jobArrays, jobRow, messageRow, onDeadOf, quoted, waitsOf, type Message, type NewJob } from './values.js'
import { Backoff, Outage, type Logger } from './waits.js'
import { handlerOf, run, type Find, type Handler, type Handlers, type TxHandler, type Verdict, type WorkOptions } from './work.js'

/**
 * Penstock produces and works. It holds no connection. It writes in the transaction that it is given, which it does not
 * end. Errors of the database are the driver's own.
 */
export class Penstock {
  readonly #name: string
  readonly #schema: string

  constructor(options: { schema?: string } = {}) {
    this.#name = checked('penstock', options).schema ?? 'penstock'
    this.#schema = quoted(this.#name)
  }

  /** Publishes a message with tx. It is delivered if tx commits. */
  async publish(tx: Queryable, outbox: string, message: Message): Promise<void> {
    const [id, key, topic, headers, payload] = messageRow(message)
    await explained(executor(tx)(
      `select ${this.#schema}.publish_bytes($1::text, $2::text::bytea, $3::text, $4::text, $5::text::jsonb, $6::text)::text`,
      [outbox, payload!, key!, topic!, headers!, id!]))
  }

  /** Publishes messages in the given order, with one statement. */
  async publishMany(tx: Queryable, outbox: string, messages: readonly Message[]): Promise<void> {
    if (typed('messages', messages, 'array').length) await explained(executor(tx)(insertInto(this.#schema, outbox, 1), arrays(all(messages, messageRow))))
  }

  /** Enqueues a job with tx. It can run once tx has committed. */
  async enqueue(tx: Queryable, queue: string, job: NewJob): Promise<Enqueued> {
    return (await this.enqueueMany(tx, queue, [job]))[0]!
  }

  /** Enqueues jobs with one statement, and returns a result for each, in the given order. */
  async enqueueMany(tx: Queryable, queue: string, jobs: readonly NewJob[]): Promise<Enqueued[]> {
    if (!typed('jobs', jobs, 'array').length) return []
    const columns = jobArrays(all(jobs, jobRow))
    const [row] = await explained(executor(tx)(callOf(this.#schema, 1, columns), [queue, ...columns]))
    return enqueuedOf(row!)
  }

  /**
   * Makes a barrier for jobs of a queue with tx, and returns its number, for holds and waitsFor. It opens, once, when it is sealed and each job
   * that holds it has ended.
   */
  async barrier(tx: Queryable, queue: string): Promise<bigint> {
    return BigInt((await explained(executor(tx)(`select ${this.#schema}.barrier($1::text)::text`, [queue])))[0]![0]!)
  }

  /** Seals a barrier with tx: it opens when each job that holds it has ended, at once if none does. A job that holds it may still add others. */
  async seal(tx: Queryable, queue: string, barrier: bigint): Promise<void> {
    await explained(executor(tx)(`select ${this.#schema}.seal($1::text, $2::text::bigint)::text`, [queue, String(barrier)]))
  }

  /**
   * Publishes a message with tx once these barriers of the queue are open: in the transaction that opens the last one. Until then the queue shows
   * it as a job that waits, by the id that is returned. onDead is as of a job.
   */
  async publishAfter(tx: Queryable, queue: string, waitsFor: readonly bigint[], outbox: string, message: Message, onDead?: NewJob['onDead']): Promise<bigint> {
    const [id, key, topic, headers, payload] = messageRow(message)
    const [row] = await explained(executor(tx)(
      `select ${this.#schema}.publish_after($1::text, $2::text::bigint[], $3::text, $4::text::bytea, $5::text, $6::text, $7::text::jsonb, $8::text, $9::text)::text`,
      [queue, waitsOf(waitsFor), outbox, payload!, key!, topic!, headers!, id!, onDeadOf(onDead)]))
    return BigInt(row![0]!)
  }

  /** The inbox of a consumer: it remembers which messages were received. */
  inbox(consumer: string) {
    const schema = this.#schema
    return {
      /** True if the id is new: process the message in this transaction. False if it was processed before. */
      async first(tx: Queryable, messageId: string): Promise<boolean> {
        const rows = await explained(executor(tx)(`select ${schema}.inbox($1::text, $2::text)::text`, [consumer, messageId]))
        return rows[0]![0] === 'true'
      },
    }
  }

  /** Collects messages and jobs for tx, to write them with one statement. Call flush before the commit. */
  writer(tx: Queryable, options?: WriterOptions): Writer {
    return new Writer(executor(tx), this.#schema, options)
  }

  /** A queue for loops of your own, its schedules and its dead letters. On a pool each call is a separate transaction. */
  queue(db: Queryable, name: string): Queue {
    return new Queue(db, name, this.#name)
  }

  /** Fails with a VersionError if the database is not migrated, or if this client does not support its version. */
  async check(db: Queryable): Promise<void> {
    await explained(executor(db)(`select ${this.#schema}.check_client($1::text::bigint)::text`, [String(schemaVersion)]))
  }

  /**
   * Claims jobs and calls the handler of its kind for each, until options.signal aborts or, without a signal, the process gets SIGTERM
   * or SIGINT. Then it claims no more, gives back jobs that have not begun and waits for running handlers. db is a pool.
   * work waits for a database that cannot be reached. It continues through the database's errors, and rejects if another attempt would not help: the
   * queue does not exist, or at its start the password is wrong or the role may not work on the queue.
   */
  async work(db: Queryable, queue: string, handlers: Handlers, options: WorkOptions = {}): Promise<void> {
    await this.#work(db, queue, handlerOf(queue, handlers), checked('worker', options))
  }

  async #work(db: Queryable, queue: string, handler: Find, options: WorkOptions) {
    executor(db) // refuses what is none
    const over = listening(db)
    try {
      await run(this.queue(db, queue), handler, options, undefined, () => this.check(db))
    } finally {
      over()
    }
  }

  /**
   * Like work, with a transaction around each handler that also ends the job: the handler's writes with it take
   * effect exactly once. Any outcome but done and cancelled rolls it back. The pool should have a connection for each
   * running handler, and two more: with fewer, calls wait for handlers, and the lease of a long job may end.
   */
  async workTx<D extends Queryable>(db: D, queue: string, handlers: Handlers<TxHandler<Tx<D>>>, options: WorkOptions = {}): Promise<void> {
    const find = handlerOf(queue, handlers)
    const { concurrency = 10, logger = console } = checked('worker', options)
    refuseClient(db)
    const begins = beginning(queue, logger)
    const most = connectionsOf(db)
    if (most !== undefined && most < concurrency + 2) {
      logger.warn(`penstock: queue ${queue}: the pool has at most ${most} connections, and ${concurrency} handlers in transactions should have ${concurrency + 2}: leases may end while calls wait`)
    }
    await this.#work(db, queue, Object.assign((kind: string) => {
      const handler = find(kind)
      return handler && this.inTx(db, queue, handler, begins)
    }, { kinds: find.kinds }), options)
  }

  /** The handler that runs one of workTx in a transaction. @internal */
  inTx<D extends Queryable>(db: D, queue: string, handler: TxHandler<Tx<D>>, begins = beginning(queue, console)): Handler {
    refuseClient(db)
    return async (job, signal): Promise<Verdict> => {
      let begun = false
      try {
        await begin(db, async tx => {
          begun = true
          begins.worked()
          const outcome = await handler(tx, job, signal)
          if (isOutcome(outcome) && outcome.how !== 'cancelled') throw outcome
          await this.queue(tx as Queryable, queue).ackOne(job.lease)
        })
      } catch (err) {
        if (begun || err instanceof TypeError) throw err // a TypeError: db is no pool
        begins.failed('cannot begin the transaction of a job', err)
        return snooze(875 + Math.random() * 250) // its handler was not called: no attempt is spent
      }
      return 'settled'
    }
  }
}

/** beginning tells when transactions of jobs cannot begin, and when they can again. */
const beginning = (queue: string, logger: Logger) => new Backoff(new Outage(queue, logger))

/** all makes rows of all values before the first is sent, and says which one is invalid. */
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
