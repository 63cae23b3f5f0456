import 'reflect-metadata'
import { randomBytes } from 'node:crypto'
import { Inject, Injectable, Logger, Module, Scope, type DynamicModule, type Type } from '@nestjs/common'
import { NestFactory } from '@nestjs/core'
import { Penstock, defineTask, type Job } from '@penstock/client'
import { PenstockHandler, PenstockModule, PenstockTxHandler, type PenstockModuleOptions } from '@penstock/client/nestjs'
import pg from 'pg'
import { afterAll, afterEach, beforeEach, expect, inject, test, vi } from 'vitest'

declare module 'vitest' {
  export interface ProvidedContext { url: string }
}

process.env['PENSTOCK_DATABASE_URL'] = inject('url')
const pool = new pg.Pool({ connectionString: inject('url') })
const penstock = new Penstock()
const seen: unknown[] = []
const apps: { close(): Promise<void> }[] = []
beforeEach(() => { seen.length = 0 })
afterEach(() => Promise.all(apps.splice(0).map(app => app.close())))
afterAll(() => pool.end())

const queueName = () => `queue_${randomBytes(5).toString('hex')}`
const create = (queue: string) => pool.query('select penstock.create_queue($1)', [queue])
const created = async () => {
  const queue = queueName()
  await create(queue)
  return queue
}
const started = async (module: Type | DynamicModule) => {
  const app = await NestFactory.createApplicationContext(module, { logger: false, abortOnError: false })
  apps.push(app)
  return app
}
const withWorkers = (providers: Type[], options: Partial<PenstockModuleOptions> = {}): DynamicModule => {
  @Module({})
  class App {}
  return { module: App, imports: [PenstockModule.forRoot({ pool, ...options })], providers }
}
async function until(what: string, is: () => boolean) {
  const end = Date.now() + 50_000
  while (!is()) {
    if (Date.now() > end) throw new Error(`did not happen in time: ${what}`)
    await new Promise(resolve => setTimeout(resolve, 5))
  }
}

test('the module of the README', async () => {
  await create('emails')
  const { AppModule, Emails, Users } = await import('./readme.js')
  const app = await started(AppModule)
  app.get(Emails).send = async to => { seen.push(to) }
  await app.get(Users).signUp(pool, 'ann')
  await until('both are sent', () => seen.length === 2)
  expect(seen).toEqual(['ann', 'ann'])
})

test('handlers are methods, with what their class was given, and closing waits for them', async () => {
  const queue = await created()
  const welcome = defineTask<{ to: string }>({ name: 'welcome', queue })
  @Injectable()
  class Directory {
    domain = 'example.org'
  }
  let go: () => void = () => {}
  @Injectable()
  class Emails {
    constructor(readonly directory: Directory, readonly penstock: Penstock) {}

    @PenstockHandler(welcome)
    async welcome(mail: { to: string }, job: Job) {
      seen.push(`${mail.to}@${this.directory.domain} ${job.kind}`)
      await this.penstock.enqueue(pool, queue, { payload: 'held' })
    }

    @PenstockHandler({ queue })
    async other(job: Job) {
      seen.push(job.text())
      await new Promise<void>(resolve => { go = resolve })
      seen.push('done')
    }
  }
  const app = await started(withWorkers([Directory, Emails, { provide: 'same', useExisting: Emails } as never]))
  await welcome.enqueue(pool, { to: 'ann' })
  await until('it holds', () => seen.includes('held'))
  const closed = app.close().then(() => seen.push('closed'))
  await new Promise(resolve => setImmediate(resolve))
  go()
  await closed
  expect(seen).toEqual(['ann@example.org welcome', 'held', 'done', 'closed'])
  const { rows } = await pool.query('select ready::int, running::int from penstock.queue_status($1)', [queue])
  expect(rows).toEqual([{ ready: 0, running: 0 }])
})

test('a handler with a transaction: what it writes and the end of its job are one', async () => {
  const queue = await created()
  const welcome = defineTask<{ to: string }>({ name: 'welcome', queue })
  await pool.query(`create table ${queue}_sent (name text)`)
  @Injectable()
  class Emails {
    @PenstockTxHandler(welcome)
    async welcome(tx: pg.PoolClient, mail: { to: string }, job: Job) {
      await tx.query(`insert into ${queue}_sent values ($1)`, [`${mail.to} ${job.attempt}`])
      if (job.attempt === 1) throw new Error('no')
    }

    @PenstockTxHandler({ queue, kind: 'other' })
    async other(tx: pg.PoolClient, job: Job) {
      await tx.query(`insert into ${queue}_sent values ($1)`, [job.text()])
    }
  }
  const ends: string[] = []
  await pool.query('select penstock.set_queue($1, max_attempts => 2)', [queue])
  await started(withWorkers([Emails], { workers: { [queue]: { onEnd: (_, end) => ends.push(end) } } }))
  await welcome.enqueue(pool, { to: 'ann' })
  await penstock.enqueue(pool, queue, { payload: 'bob', kind: 'other' })
  await until('two have ended', () => ends.length === 2)
  await pool.query(`select penstock.advance_queue($1, '1 hour')`, [queue])
  await until('the second attempt has ended', () => ends.length === 3)
  expect(ends.sort()).toEqual(['failed', 'settled', 'settled'])
  const { rows } = await pool.query(`select name from ${queue}_sent order by 1`)
  expect(rows.map(row => row.name)).toEqual(['ann 2', 'bob'])
})

test('an application that only produces has no worker', async () => {
  const queue = queueName() // which does not exist
  @Injectable()
  class Emails {
    @PenstockHandler({ queue })
    any() {}
  }
  await started(withWorkers([Emails], { work: false, failFast: true }))
})

test('a worker whose queue is not there starts again, or fails the start', async () => {
  const queue = queueName()
  @Injectable()
  class Emails {
    @PenstockHandler({ queue })
    any(job: Job) { seen.push(job.text()) }
  }
  await expect(started(withWorkers([Emails], { failFast: true }))).rejects.toThrow('there is no queue')
  await expect(started(withWorkers([Emails], { failFast: true, schema: 'none' }))).rejects.toThrow('penstock migrate')
  await started(withWorkers([Emails]))
  await create(queue)
  await penstock.enqueue(pool, queue, { payload: 'late' })
  await until('it works', () => seen.length === 1)
  await started(withWorkers([Emails], { failFast: true }))
})

test('options can come from a factory, and Penstock is for all modules', async () => {
  const queue = await created()
  @Injectable()
  class Emails {
    constructor(@Inject(Penstock) readonly penstock: Penstock) {}
    @PenstockHandler({ queue })
    any(job: Job) { seen.push(job.text()) }
  }
  @Module({ providers: [{ provide: 'POOL', useValue: pool }], exports: ['POOL'] })
  class Database {}
  @Module({ providers: [Emails] })
  class Feature {}
  @Module({ imports: [PenstockModule.forRootAsync({ imports: [Database], inject: ['POOL'], useFactory: (pool: pg.Pool) => ({ pool }) }), Feature] })
  class App {}
  const app = await started(App)
  await app.get(Emails).penstock.enqueue(pool, queue, { payload: 'made' })
  await until('it works', () => seen.length === 1)
})

test('handlers that make no sense fail the start', async () => {
  const queue = await created()
  const task = defineTask<string>({ name: 'a', queue })
  @Injectable()
  class Twice {
    @PenstockHandler(task)
    one() {}
    @PenstockTxHandler({ queue, kind: 'a' })
    two() {}
  }
  await expect(started(withWorkers([Twice]))).rejects.toThrow('Twice.two')
  @Injectable({ scope: Scope.REQUEST })
  class Requested {
    @PenstockHandler(task)
    one() {}
  }
  await expect(started(withWorkers([Requested]))).rejects.toThrow('Requested.one')
  class Listed {
    @PenstockHandler(task)
    one() {}
  }
  Injectable()(Listed)
  await expect(started(withWorkers([Listed], { pool: undefined as never }))).rejects.toThrow('expected a connection, pool')
  expect(() => PenstockHandler({ queue, name: 'a' } as never)).toThrow('name is not a field of a handler; use kind')
  const warned = vi.spyOn(Logger.prototype, 'warn').mockImplementation(() => {})
  await started(withWorkers([Listed], { workers: { emials: { concurrency: 2 } } }))
  expect(warned).toHaveBeenCalledWith('workers has options of the queue emials, which has no handler here')
  warned.mockRestore()
  expect(() => PenstockHandler(task)({}, 'x', {} as never)).toThrow('x is not a method')
  class Typed {
    // @ts-expect-error the task's payload is a string
    @PenstockHandler(task)
    wrong(_: number) {}
  }
  expect(Typed).toBeDefined()
})
