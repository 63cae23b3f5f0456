// A module for NestJS. It is a separate entry point, so that only programs that import it need Nest.
import { ConfigurableModuleBuilder, Logger, Module, type OnApplicationBootstrap, type OnModuleDestroy } from '@nestjs/common'
import { DiscoveryModule, DiscoveryService, MetadataScanner } from '@nestjs/core'
import { executor, type Queryable } from './database.js'
import { FieldError } from './errors.js'
import type { Job } from './job.js'
import { checked } from './options.js'
import { Penstock } from './penstock.js'
import type { Task } from './task.js'
import { sleep } from './waits.js'
import type { Handler, TxHandler, Verdict, WorkOptions } from './work.js'

/** PenstockModuleOptions are what PenstockModule.forRoot takes, and what the factory of forRootAsync returns. */
export interface PenstockModuleOptions {
  /** A pool of any of the drivers. The module does not close it. */
  pool: Queryable
  /** The schema in the database. Default penstock. */
  schema?: string
  /** false in an application that only produces. Default true. */
  work?: boolean
  /** Options of workers, by queue. */
  workers?: Readonly<Record<string, WorkOptions>>
  /** Whether the application's start fails if a worker's start does. Otherwise a worker that fails starts again later. Default false. */
  failFast?: boolean
}

const { ConfigurableModuleClass, MODULE_OPTIONS_TOKEN } = new ConfigurableModuleBuilder<PenstockModuleOptions>({ moduleName: 'Penstock' })
  .setClassMethodName('forRoot')
  .setExtras({ isGlobal: true }, (definition, { isGlobal }) => ({ ...definition, global: isGlobal }))
  .build()

/** PenstockModule provides Penstock, and runs a worker for each queue that has handlers until the application closes. */
export class PenstockModule extends ConfigurableModuleClass {}

/** Where a job comes from that is not a task's. */
export interface QueueAndKind { queue: string, kind?: string }

type Method<F> = <M extends F>(target: object, key: string | symbol, descriptor: TypedPropertyDescriptor<M>) => void
type Marked = { queue: string, handler: (call: (...args: any[]) => any) => Handler | TxHandler<any>, tx: boolean, kind: string }
const marks = Symbol.for('penstock.handler')

const mark = (mark: Marked): Method<any> => (_, key, descriptor) => {
  const method: { [marks]?: Marked[] } | undefined = descriptor?.value
  if (!method) throw new TypeError(`${String(key)} is not a method`)
  ;(method[marks] ??= []).push(mark)
}
function isTask(of: Task<any, any> | QueueAndKind): of is Task<any, any> {
  if ('handle' in of) return true
  checked('handler', of)
  return false
}

/** PenstockHandler makes a method the handler of a task, or of a queue's jobs of a kind. */
export function PenstockHandler<Out>(task: Task<any, Out>): Method<(value: Out, job: Job, signal: AbortSignal) => Verdict | Promise<Verdict>>
export function PenstockHandler(jobs: QueueAndKind): Method<Handler>
export function PenstockHandler(of: Task<any, any> | QueueAndKind): Method<any> {
  return isTask(of) ? mark({ queue: of.queue, kind: of.name, tx: false, handler: call => of.handle(call) })
    : mark({ queue: of.queue, kind: of.kind ?? '', tx: false, handler: call => call })
}
/** PenstockTxHandler does so for a method whose first argument is a transaction that also ends the job, as in workTx. */
export function PenstockTxHandler<Out>(task: Task<any, Out>): Method<(tx: any, value: Out, job: Job, signal: AbortSignal) => Verdict | Promise<Verdict>>
export function PenstockTxHandler(jobs: QueueAndKind): Method<TxHandler<any>>
export function PenstockTxHandler(of: Task<any, any> | QueueAndKind): Method<any> {
  return isTask(of) ? mark({ queue: of.queue, kind: of.name, tx: true, handler: call => of.handleTx(call) })
    : mark({ queue: of.queue, kind: of.kind ?? '', tx: true, handler: call => call })
}

/** Workers are those of an application. */
class Workers implements OnApplicationBootstrap, OnModuleDestroy {
  readonly #stop = new AbortController()
  readonly #log = new Logger('Penstock')
  #running: Promise<void>[] = []
  constructor(readonly options: PenstockModuleOptions, readonly penstock: Penstock, readonly discovery: DiscoveryService, readonly scanner: MetadataScanner) {}

  async onApplicationBootstrap() {
    const { pool, work = true, failFast = false, workers = {} } = checked('module', this.options)
    for (const options of Object.values(workers)) checked('worker', options)
    if (!work) return
    executor(pool) // refuses what is none
    const queues = this.#handlers()
    for (const queue of Object.keys(workers)) if (!queues.has(queue)) this.#log.warn(`workers has options of the queue ${queue}, which has no handler here`)
    if (failFast) {
      await this.penstock.check(pool)
      for (const queue of queues.keys()) await this.penstock.queue(pool, queue).maintain()
    }
    this.#running = [...queues].map(([queue, handlers]) => this.#work(queue, handlers))
  }

  async onModuleDestroy() {
    this.#stop.abort()
    await Promise.all(this.#running)
  }

  /** Returns the handlers of each queue by kind. */
  #handlers(): Map<string, Record<string, Handler>> {
    const queues = new Map<string, Record<string, Handler>>()
    const seen = new Set<unknown>()
    for (const wrapper of [...this.discovery.getProviders(), ...this.discovery.getControllers()]) {
      const { instance } = wrapper
      if (!instance || typeof instance !== 'object' || seen.has(instance)) continue
      seen.add(instance)
      const prototype = Object.getPrototypeOf(instance)
      for (const name of this.scanner.getAllMethodNames(prototype)) {
        for (const { queue, kind, handler, tx } of (prototype[name][marks] ?? []) as Marked[]) {
          const where = `${wrapper.name}.${name}`
          if (!wrapper.isDependencyTreeStatic()) throw new FieldError('handlers', `have ${where}, whose class is made for each request: a worker has no request`)
          const handlers = queues.get(queue) ?? {}
          if (kind in handlers) throw new FieldError('handlers', `have two for kind ${JSON.stringify(kind)} of queue ${queue}, the second is ${where}`)
          const made = handler((...args) => instance[name](...args))
          handlers[kind] = tx ? this.penstock.inTx(this.options.pool, queue, made as TxHandler<any>) : made as Handler
          queues.set(queue, handlers)
        }
      }
    }
    return queues
  }

  /** Works until the application closes. A worker ends if its database is not migrated, lacks the queue or refuses the role: it starts again later. */
  async #work(queue: string, handlers: Record<string, Handler>) {
    const log = this.#log
    const { signal } = this.#stop
    let pause = 500
    while (!signal.aborted) {
      try {
        await this.penstock.work(this.options.pool, queue, handlers, {
          logger: { warn: line => log.warn(line), info: line => log.log(line) }, ...this.options.workers?.[queue], signal })
      } catch (err) {
        pause = Math.min(pause * 2, 30_000)
        log.error(`the worker of queue ${queue} has ended, and starts again in ${pause / 1000} s: ${err instanceof Error ? err.message : err}`)
        await sleep(pause, signal)
      }
    }
  }
}

Module({
  imports: [DiscoveryModule],
  providers: [
    { provide: Penstock, inject: [MODULE_OPTIONS_TOKEN], useFactory: ({ schema }: PenstockModuleOptions) => new Penstock({ schema }) },
    { provide: Workers, inject: [MODULE_OPTIONS_TOKEN, Penstock, DiscoveryService, MetadataScanner],
      useFactory: (options: PenstockModuleOptions, penstock: Penstock, discovery: DiscoveryService, scanner: MetadataScanner) => new Workers(options, penstock, discovery, scanner) },
  ],
  exports: [Penstock],
})(PenstockModule)
