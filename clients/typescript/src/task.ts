// Tasks: kinds of jobs with typed payloads.
import type { Queryable } from './database.js'
import { FieldError } from './errors.js'
import { deadLetter, type Job } from './job.js'
import { limited, type Limits } from './limits.js'
import { checked } from './options.js'
import { Penstock } from './penstock.js'
import type { StandardSchemaV1 } from './standard-schema.js'
import type { Enqueued } from './statements.js'
import { jsonOf, kindOf, textOf, type NewJob } from './values.js'
import type { TaskHandler, TxTaskHandler, Verdict } from './work.js'

/** TaskOptions are what else a job of a task has. */
export type TaskOptions = Omit<NewJob, 'payload' | 'kind'>

/** TaskDefinition is what defineTask takes. */
export interface TaskDefinition extends Limits {
  /** The kind of its jobs. */
  name: string
  queue: string
  /** Writes its jobs. Default new Penstock(). */
  penstock?: Penstock
}

/** Task is a kind of jobs. In is what a producer gives, Out what a handler gets. */
export interface Task<In, Out = In> {
  readonly name: string
  readonly queue: string
  /** Enqueues a job with tx. It can run once tx has committed. */
  enqueue(tx: Queryable, value: In, options?: TaskOptions): Promise<Enqueued>
  /** The job that enqueue writes, for enqueueMany and a Writer. Fails with a FieldError if value does not fit the schema. */
  job(value: In, options?: TaskOptions): Promise<NewJob>
  /** A handler of its jobs, for work. A payload that does not fit the schema makes the job a dead letter: another attempt would read the same. */
  handle(handler: (value: Out, job: Job, signal: AbortSignal) => Verdict | Promise<Verdict>): TaskHandler
  /** The same for workTx. */
  handleTx<T>(handler: (tx: T, value: Out, job: Job, signal: AbortSignal) => Verdict | Promise<Verdict>): TxTaskHandler<T>
}

/**
 * defineTask makes a task, whose payloads are JSON. schema is one of Zod, Valibot, ArkType or another library with Standard Schema. It checks what a
 * producer enqueues, in the form that JSON gives it, and makes of that what the handler gets. Without a schema types are not checked at run time.
 */
export function defineTask<S extends StandardSchemaV1>(definition: TaskDefinition & { schema: S }): Task<StandardSchemaV1.InferInput<S>, StandardSchemaV1.InferOutput<S>>
export function defineTask<T>(definition: TaskDefinition & { schema?: StandardSchemaV1<T, T> }): Task<T>
export function defineTask(definition: TaskDefinition & { schema?: StandardSchemaV1 }): Task<unknown> {
  const { name, queue, schema, penstock = new Penstock(), ...limits } = checked('task', definition)
  if (kindOf(name) === '') throw new FieldError('name', 'is empty: it is the kind of the jobs')
  textOf('queue', queue, 48)

  /** Reads JSON, and returns what is wrong with it in place of the value. */
  const read = async (text: string): Promise<{ value: unknown, wrong?: undefined } | { wrong: string }> => {
    let value: unknown
    try {
      value = JSON.parse(text)
    } catch (err) {
      return { wrong: String(err) }
    }
    if (!schema) return { value }
    const result = await schema['~standard'].validate(value)
    return result.issues ? { wrong: result.issues.map(told).join('; ') || 'the schema refuses it' } : { value: result.value }
  }
  const job = async (value: unknown, options: TaskOptions = {}): Promise<NewJob> => {
    if (value === undefined) throw new FieldError('payload', 'is missing; null is one without a value')
    const payload = jsonOf(value)
    if (payload === undefined) throw new FieldError('payload', 'has no form in JSON')
    const { wrong } = schema ? await read(payload) : {}
    if (wrong !== undefined) throw new FieldError('payload', `does not fit the schema of task ${name}: ${wrong}`)
    return { ...checked('job', options), kind: name, payload }
  }
  const reading = async (job: Job, handle: (value: unknown) => Verdict | Promise<Verdict>): Promise<Verdict> => {
    const found = await read(job.text())
    return found.wrong === undefined ? handle(found.value) : deadLetter(`reading the payload: ${found.wrong}`)
  }
  return {
    name, queue, job,
    enqueue: async (tx, value, options) => penstock.enqueue(tx, queue, await job(value, options)),
    handle: handler => Object.assign(limited((job: Job, signal: AbortSignal) => reading(job, value => handler(value, job, signal)), limits), { kind: name, queue }),
    handleTx: handler => Object.assign(limited((tx: Parameters<typeof handler>[0], job: Job, signal: AbortSignal) => reading(job, value => handler(tx, value, job, signal)), limits), { kind: name, queue }),
  }
}

/** told is an issue of a schema with the place in the value. */
function told({ message, path = [] }: StandardSchemaV1.Issue): string {
  const place = path.map(step => String(typeof step === 'object' ? step.key : step)).join('.')
  return place ? `${place}: ${message}` : message
}
