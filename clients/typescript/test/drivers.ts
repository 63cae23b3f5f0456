// Every driver, with its kinds of transactions.
import { drizzle as drizzlePg } from 'drizzle-orm/node-postgres'
import { drizzle as drizzlePostgres } from 'drizzle-orm/postgres-js'
import knex from 'knex'
import { CamelCasePlugin, Kysely, PostgresDialect } from 'kysely'
import pg from 'pg'
import postgres from 'postgres'
import type { Queryable } from '../src/index.js'

export interface Driver {
  name: string
  db: Queryable
  /** Runs fn in a transaction of the driver's own, which commits unless fn throws. */
  begin(fn: (tx: Queryable) => Promise<void>): Promise<unknown>
  end(): Promise<unknown>
}

export function drivers(url: string): Driver[] {
  const pool = new pg.Pool({ connectionString: url, max: 8 })
  const sql = postgres(url, { max: 8, onnotice: () => {}, transform: postgres.camel })
  const own = postgres(url, { max: 8, onnotice: () => {} })
  const kn = knex({ client: 'pg', connection: url, pool: { min: 0, max: 8 } })
  const ky = new Kysely<any>({ dialect: new PostgresDialect({ pool: new pg.Pool({ connectionString: url, max: 8 }) }), plugins: [new CamelCasePlugin()] })
  const dp = drizzlePg(pool)
  const dj = drizzlePostgres(own)
  return [
    {
      name: 'pg', db: pool, end: () => pool.end(),
      async begin(fn) {
        const client = await pool.connect()
        try {
          await client.query('begin')
          await fn(client)
          await client.query('commit')
        } catch (err) {
          await client.query('rollback')
          throw err
        } finally {
          client.release()
        }
      },
    },
    { name: 'postgres.js', db: sql, begin: fn => sql.begin(fn), end: () => sql.end() },
    { name: 'knex', db: kn, begin: fn => kn.transaction(fn), end: () => kn.destroy() },
    { name: 'kysely', db: ky, begin: fn => ky.transaction().execute(fn), end: () => ky.destroy() },
    { name: 'drizzle over pg', db: dp, begin: fn => dp.transaction(fn), end: async () => {} },
    { name: 'drizzle over postgres.js', db: dj, begin: fn => dj.transaction(fn), end: () => own.end() },
  ]
}
