import { createHash } from 'node:crypto'

// The seam to every driver: execute(text, values). All parameters and all columns are text, which every driver
// sends and returns alike, however its types are configured. The casts are in the statements.

/** Value is a parameter or a column. */
export type Value = string | null
/** Execute runs one statement and returns its rows, each with its columns in order. */
export type Execute = (text: string, values: readonly Value[]) => Promise<Value[][]>

type Rows = { rows: any[] }
/** pg: a Client, a PoolClient or a Pool. */
export interface PgLike { query(text: string, values?: any[]): Promise<Rows> }
/** postgres.js: `sql`, or the argument of `sql.begin`, or the result of `sql.reserve`. */
export interface PostgresJsLike { unsafe(text: string, values?: any[], options?: any): PromiseLike<readonly any[]> }
/** Knex: the instance or a transaction. */
export interface KnexLike { raw(text: string, values: any): PromiseLike<any> }
/** Kysely: the instance or a Transaction. */
export interface KyselyLike { executeQuery(query: any): Promise<Rows> }
/** Drizzle, over pg or postgres.js: the database or a transaction. */
export interface DrizzleLike { execute(query: any): PromiseLike<any>; transaction(fn: any, ...rest: any[]): Promise<any> }
/** Prisma: the client or the transaction of `$transaction(async tx => …)`. */
export interface PrismaLike { $queryRawUnsafe(text: string, ...values: any[]): PromiseLike<any> }
/** Another driver needs one function. */
export interface CustomLike { penstock: Execute }

/** Queryable is a connection, a transaction or a pool of any of the drivers. Penstock never ends a transaction that it was given. */
export type Queryable = PgLike | PostgresJsLike | KnexLike | KyselyLike | DrizzleLike | PrismaLike | CustomLike

type Callback<T> = (tx: T) => any
/** Tx is the transaction that a pool of type D gives to the handler of workTx. */
export type Tx<D> =
  D extends { connect: { (): Promise<infer C>; (callback: any): void } } ? C
  : D extends { $transaction: { (fn: Callback<infer C>, ...rest: any[]): any } } ? C
  : D extends { begin: { (fn: Callback<infer C>): any; (options: string, fn: any): any } } ? C
  : D extends { transaction(): { execute(fn: Callback<infer C>): any } } ? C
  : D extends { transaction(fn: Callback<infer C>, ...rest: any[]): any } ? C
  : any

const kinds: [kind: string, is: (db: any) => boolean, execute: (db: any) => Execute, begin: (db: any, fn: Callback<any>) => Promise<any>][] = [
  ['custom', db => typeof db.penstock === 'function',
    db => db.penstock,
    (db, fn) => db.begin(fn)],
  ['prisma', db => typeof db.$queryRawUnsafe === 'function',
    db => async (text, values) => columns(await db.$queryRawUnsafe(text, ...values)),
    // Prisma ends transactions after five seconds unless it is told otherwise. A job has as long as its lease is
    // extended.
    (db, fn) => db.$transaction(fn, { maxWait: 60_000, timeout: 2_147_483_647 })],
  ['postgres.js', db => typeof db.unsafe === 'function',
    db => async (text, values) => columns(await db.unsafe(text, values, { prepare: true })),
    (db, fn) => db.begin(fn)],
  ['kysely', db => typeof db.executeQuery === 'function',
    db => async (text, values) => columns((await db.executeQuery(compiled(text, values))).rows),
    (db, fn) => db.transaction().execute(fn)],
  ['drizzle', db => typeof db.execute === 'function' && typeof db.transaction === 'function',
    db => async (text, values) => rowsOf(await db.execute({ getSQL: () => ({ toQuery: () => ({ sql: text, params: values }) }) })),
    (db, fn) => db.transaction(fn)],
  ['knex', db => typeof db.raw === 'function',
    db => async (text, values) => rowsOf(await db.raw(...questionMarks(text, values))),
    (db, fn) => db.transaction(fn)],
  ['pg', db => typeof db.query === 'function',
    db => typeof db.totalCount === 'number' ? prepared(db) : async (text, values) => rowsOf(await db.query(text, values)),
    beginPg],
]

function kindOf(db: unknown) {
  const kind = db && (typeof db === 'object' || typeof db === 'function') ? kinds.find(([, is]) => is(db)) : undefined
  if (!kind) throw new TypeError('expected a connection, pool or transaction of pg, postgres.js, Knex, Kysely, Drizzle or Prisma')
  return kind
}

/** executor is the seam to a driver. */
export function executor(db: Queryable): Execute {
  return kindOf(db)[2](db)
}

/** begin runs fn in a new transaction of a pool: committed when fn returns, rolled back when it throws. */
export async function begin<D extends Queryable, T>(db: D, fn: (tx: Tx<D>) => Promise<T>): Promise<T> {
  let result!: T
  await kindOf(db)[3](db, async (tx: Tx<D>) => { result = await fn(tx) })
  return result
}

/**
 * listening adds a listener for the errors of a pg.Pool and of the clients it has given out, and returns a function that removes it.
 * Errors without a listener end the process, and each cut connection is one. The calls that need the connection fail, and say so.
 */
export function listening(db: any): () => void {
  const pool = [db, db.$client].find(p => typeof p?.totalCount === 'number' && typeof p.on === 'function')
  if (!pool) return () => {}
  const nothing = () => {}
  const given = (client: any) => { if (!client.listeners('error').includes(nothing)) client.on('error', nothing) }
  const back = (_: unknown, client: any) => client?.off('error', nothing)
  pool.on('error', nothing).on('acquire', given).on('release', back)
  return () => pool.off('error', nothing).off('acquire', given).off('release', back)
}

/** connectionsOf is how many connections a pool of pg or postgres.js, or Drizzle's on one, has at most; undefined if that is not known. */
export function connectionsOf(db: any): number | undefined {
  return [db, db.$client].map(p => p?.options?.max).find(max => typeof max === 'number')
}

/** refuseClient fails if db is a connection of pg: only a pool gives each transaction its own. */
export function refuseClient(db: any) {
  if (kindOf(db)[0] === 'pg' && (typeof db.connect !== 'function' || typeof db.release === 'function' || 'processID' in db)) throw new TypeError('expected a pg.Pool, to begin transactions with')
}

async function beginPg(pool: any, fn: Callback<any>) {
  const client = await pool.connect()
  try {
    await client.query('begin')
    await fn(client)
    await client.query('commit')
  } catch (err) {
    // A connection whose transaction cannot be ended is not returned to the pool.
    await client.query('rollback').then(() => client.release(), (e: Error) => client.release(e))
    throw err
  }
  client.release()
}

const unprepared = new WeakSet<object>() // pools behind a pooler that does not keep statements
const names = new Map<string, string>()

/**
 * nameOf returns the same name for the same text in every process. Under a pooler, a statement that exists by that name is the right one.
 * The number of names is limited, because there may be many outboxes.
 */
function nameOf(text: string): string | undefined {
  if (!names.has(text) && names.size < 200) names.set(text, `penstock_${createHash('sha256').update(text).digest('hex').slice(0, 32)}`)
  return names.get(text)
}

/**
 * prepared makes the connections of a pg.Pool keep the statements that they run. It does not do so in the caller's transaction, which
 * would be lost if a pooler does not keep statements.
 */
function prepared(pool: any): Execute {
  return async (text, values) => {
    const name = unprepared.has(pool) ? undefined : nameOf(text)
    if (!name) return rowsOf(await pool.query(text, values))
    try {
      return rowsOf(await pool.query({ name, text, values }))
    } catch (err) {
      if (!['26000', '42P05'].includes(sqlState(err) ?? '')) throw err
      unprepared.add(pool) // the statement does not exist, or already exists: nothing has run
      return rowsOf(await pool.query(text, values))
    }
  }
}

const rowsOf = (result: any) => columns(Array.isArray(result) ? result : result.rows)
// By position: plugins and options rename columns, and keep their order.
const columns = (rows: readonly object[]): Value[][] => rows.map(row => Object.values(row))

const compiled = (sql: string, parameters: readonly Value[]) =>
  ({ sql, parameters, query: { kind: 'RawNode', sqlFragments: [sql], parameters: [] }, queryId: { queryId: 'penstock' } })

/** questionMarks replaces $1, $2 … by Knex's placeholders, except in quotes. */
export function questionMarks(text: string, values: readonly Value[]): [string, Value[]] {
  const used: Value[] = []
  const sql = text.replace(/"(?:[^"]|"")*"|\$(\d+)/g, (found, n) => {
    if (n === undefined) return found.replaceAll('?', '\\?')
    used.push(values[n - 1] ?? null)
    return '?'
  })
  return [sql, used]
}

/** Codes that look like an SQLSTATE: Prisma's own, as P2010, and Node.js's, as EPIPE. An error of the database has a severity. */
const others = /^(P[1-6]\d{3}|E[A-Z2]{4})$/

/** sqlState returns the SQLSTATE in an error of any of the drivers, or undefined if the error does not come from the database. */
export function sqlState(err: any): string | undefined {
  for (let depth = 0; err && typeof err === 'object' && depth < 6; depth++) {
    for (const code of [err.originalCode, err.code, err.meta?.code]) {
      if (typeof code === 'string' && /^[0-9A-Z]{5}$/.test(code) && (typeof err.severity === 'string' || !others.test(code))) return code
    }
    err = err.cause ?? err.meta?.driverAdapterError
  }
  return undefined
}
