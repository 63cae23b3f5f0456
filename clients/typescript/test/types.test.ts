// Checked by tsc: Penstock accepts the drivers' objects, and handlers get their driver's transaction.
import type { NodePgDatabase } from 'drizzle-orm/node-postgres'
import type { PostgresJsDatabase } from 'drizzle-orm/postgres-js'
import { expectTypeOf } from 'expect-type'
import type { Knex } from 'knex'
import type { Kysely, Transaction } from 'kysely'
import type { Client, Pool, PoolClient } from 'pg'
import type { Sql, TransactionSql, ReservedSql } from 'postgres'
import { expect, test } from 'vitest'
import { Penstock, retry, type Enqueued, type GroupLimits, type Handler, type Job, type Limits, type Message, type NewJob, type Queryable, type Queue, type TaskDefinition, type Tx, type WorkOptions, type WriterOptions } from '../src/index.js'
import type { PenstockModuleOptions } from '../src/nestjs.js'
import type { table } from '../src/options.js'
import type { requireEnqueued, requirePublished, runAll, runOne } from '../src/testing.js'

interface Tables { orders: { id: number } }

test('types', () => {
  expectTypeOf<Client | Pool | PoolClient>().toExtend<Queryable>()
  expectTypeOf<Sql | TransactionSql | ReservedSql>().toExtend<Queryable>()
  expectTypeOf<Knex | Knex.Transaction>().toExtend<Queryable>()
  expectTypeOf<Kysely<Tables> | Transaction<Tables>>().toExtend<Queryable>()
  expectTypeOf<NodePgDatabase | PostgresJsDatabase>().toExtend<Queryable>()
  expectTypeOf<string>().not.toExtend<Queryable>()
  expectTypeOf<{}>().not.toExtend<Queryable>()

  expectTypeOf<Tx<Pool>>().toEqualTypeOf<PoolClient>()
  expectTypeOf<Tx<Sql<{}>>>().toEqualTypeOf<TransactionSql<{}>>()
  expectTypeOf<Tx<Kysely<Tables>>>().toEqualTypeOf<Transaction<Tables>>()
  expectTypeOf<Tx<Knex>>().toExtend<Knex.Transaction>()
  expectTypeOf<Tx<NodePgDatabase>>().toHaveProperty('rollback')

  const penstock = new Penstock()
  expectTypeOf(penstock.enqueue).returns.resolves.toEqualTypeOf<Enqueued>()
  expectTypeOf<Enqueued['id']>().toEqualTypeOf<bigint>()
  expectTypeOf<Job['id']>().toEqualTypeOf<bigint>()
  expectTypeOf<Job['lease']>().toEqualTypeOf<bigint>()
  expectTypeOf((_: Job) => retry(1)).toExtend<Handler>()
  expectTypeOf(async () => {}).toExtend<Handler>()
  expectTypeOf(() => 'retry').not.toExtend<Handler>()
  const uses = (pool: Pool, knex: Knex) => [
    penstock.workTx(pool, 'emails', async (tx, job) => {
      expectTypeOf(tx).toEqualTypeOf<PoolClient>()
      expectTypeOf(job).toEqualTypeOf<Job>()
    }),
    penstock.workTx(knex, 'emails', async tx => { await tx('orders').insert({ id: 1 }) }),
    // @ts-expect-error a number is not a queue
    penstock.enqueue(pool, 1, { payload: '' }),
    // @ts-expect-error ids in arguments are bigint
    penstock.queue(pool, 'emails').ack([1]),
  ]
  expect(uses).toBeTypeOf('function')
})

test('the table of options has those of the types', () => {
  type Names<C extends keyof typeof table> = keyof (typeof table)[C]['types']
  type Last<F extends (...args: any[]) => any, N extends number> = keyof NonNullable<Parameters<F>[N]>
  expectTypeOf<Names<'message'>>().toEqualTypeOf<keyof Message>()
  expectTypeOf<Names<'job'>>().toEqualTypeOf<keyof NewJob>()
  expectTypeOf<Names<'worker'>>().toEqualTypeOf<keyof WorkOptions>()
  expectTypeOf<Names<'penstock'>>().toEqualTypeOf<keyof NonNullable<ConstructorParameters<typeof Penstock>[0]>>()
  expectTypeOf<Names<'writer'>>().toEqualTypeOf<keyof WriterOptions>()
  expectTypeOf<Names<'limits'>>().toEqualTypeOf<keyof Limits>()
  expectTypeOf<Names<'task'>>().toEqualTypeOf<keyof TaskDefinition | 'schema'>()
  expectTypeOf<Names<'claim'>>().toEqualTypeOf<Last<Queue['claim'], 0>>()
  expectTypeOf<Names<'claimGroups'>>().toEqualTypeOf<Last<Queue['claimGroups'], 1>>()
  expectTypeOf<Names<'scheduled'>>().toEqualTypeOf<Last<Queue['schedule'], 2>>()
  expectTypeOf<Names<'schedule'>>().toEqualTypeOf<Last<Queue['schedule'], 3>>()
  expectTypeOf<Names<'create'>>().toEqualTypeOf<Last<Queue['create'], 0>>()
  expectTypeOf<Names<'deadJobs'>>().toEqualTypeOf<Last<Queue['deadJobs'], 0>>()
  expectTypeOf<Names<'group'>>().toEqualTypeOf<keyof GroupLimits>()
  expectTypeOf<Names<'groupPolicies'>>().toEqualTypeOf<Last<Queue['groupPolicies'], 0>>()
  expectTypeOf<Names<'module'>>().toEqualTypeOf<keyof PenstockModuleOptions>()
  expectTypeOf<Names<'published'>>().toEqualTypeOf<Last<typeof requirePublished, 2>>()
  expectTypeOf<Names<'enqueued'>>().toEqualTypeOf<Last<typeof requireEnqueued, 2>>()
  expectTypeOf<Names<'runOne'>>().toEqualTypeOf<Last<typeof runOne, 3>>()
  expectTypeOf<Names<'runAll'>>().toEqualTypeOf<Last<typeof runAll, 3>>()
})
