// Checked by tsc: Penstock accepts the drivers' objects, and handlers get their driver's transaction.
import type { NodePgDatabase } from 'drizzle-orm/node-postgres'
import type { PostgresJsDatabase } from 'drizzle-orm/postgres-js'
import { expectTypeOf } from 'expect-type'
import type { Knex } from 'knex'
import type { Kysely, Transaction } from 'kysely'
import type { Client, Pool, PoolClient } from 'pg'
import type { Sql, TransactionSql, ReservedSql } from 'postgres'
import { expect, test } from 'vitest'
import { Penstock, retry, type Enqueued, type Handler, type Job, type Queryable, type Tx } from '../src/index.js'

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
