// Errors, by what the database returns.
import { sqlState } from './database.js'

/** The version of this package. */
export const clientVersion = '0.1.0'
/** The version of the schema that this client was written for. An older one lacks functions that it calls. */
export const schemaVersion = 300

/** FieldError is input that the database could not store. Nothing was sent, and the transaction can continue. */
export class FieldError extends Error {
  override name = 'FieldError'
  constructor(readonly field: string, problem: string) {
    super(`${field} ${problem}`)
  }
}

/** VersionError: the database is not migrated, or this client does not support its version. */
export class VersionError extends Error {
  override name = 'VersionError'
}

/** NotFoundError: no such queue, outbox, inbox or schedule. */
export class NotFoundError extends Error {
  override name = 'NotFoundError'
}

/** isMissing reports whether the schema, a table or a function is not there, or was dropped while the statement ran. */
export function isMissing(err: any): boolean {
  const state = sqlState(err) ?? ''
  return ['42P01', '42883', '3F000'].includes(state)
    || state === 'XX000' && /^(could not open relation with OID|cache lookup failed for function)/.test(told(err).message)
}

/** isForbidden reports whether the role lacks a right. */
export const isForbidden = (err: unknown) => sqlState(err) === '42501'

const awayCodes = /^(08...|53300|57P0[123]|E(CONN(REFUSED|RESET|ABORTED)|NOTFOUND|AI_AGAIN|TIMEDOUT|HOSTUNREACH|NETUNREACH|PIPE|NOENT)|CONNECT_TIMEOUT|CONNECTION_CLOSED|P1001|P1002|P1008|P1017)$/
const awayMessages = /^(Connection terminated|timeout exceeded when trying to connect|timeout expired|the database did not answer|Knex: Timeout acquiring)/

/** isAway reports whether the database cannot be reached for now, as the server, Node.js or one of the drivers says it. A wrong password is another thing. */
export function isAway(err: any): boolean {
  for (let depth = 0; err && typeof err === 'object' && depth < 6; err = err.cause ?? err.meta?.driverAdapterError, depth++) {
    if ([err.code, err.errorCode].some(code => awayCodes.test(String(code))) || awayMessages.test(String(err.message))) return true
  }
  return false
}

/** lineOf is an error for one line of the log: the database's message, its code and its hint. */
export function lineOf(err: unknown): string {
  const state = sqlState(err)
  if (state === undefined || err instanceof VersionError || err instanceof NotFoundError) return err instanceof Error ? err.message || err.name : String(err)
  const { message, hint } = told(err)
  return `${message} (${state})${hint ? `: ${hint}` : ''}`
}

// Who calls the functions and reads the sequences of a queue or an inbox, as the schema's grant_enqueuer, grant_worker and grant_consumer say. Operators call the others.
const produces = ['enqueue', 'enqueue_many', 'barrier', 'flags', 'find', 'seq', 'ring']
const works = ['take', 'claim', 'ack', 'ready', 'extend', 'report', 'release', 'fail', 'maintain', 'hold_group', 'maintained']
const consumes = ['first', 'first_of', 'in_order', 'due', 'maintain']

const schedulesNeed = 'schedules need the role that owns the schema; it can run: penstock schedule set QUEUE NAME --cron TEXT'

/** grantOf says which right is missing, by what the database refuses in its message, such as the function _emails.claim of the queue emails. */
function grantOf(message: string): string {
  const [, dequeued, of = dequeued, own = 'take'] = /(?:^|[\s"'«„“])(?:dequeue_(.+?)|_(.+)\.(\w+))\W*$/m.exec(message) ?? []
  let grant = 'queue grant QUEUE ROLE with --enqueue, --work or --operate, penstock outbox grant OUTBOX ROLE --publish or penstock inbox grant CONSUMER ROLE --consume'
  if (of?.startsWith('_inbox.')) grant = `inbox grant CONSUMER ROLE --${consumes.includes(own) ? 'consume' : 'operate'}`
  else if (of) grant = `queue grant ${/^[\w.:-]+$/.test(of) ? of : `'${of.replaceAll("'", "'\\''")}'`} ROLE --${produces.includes(own) ? 'enqueue' : works.includes(own) ? 'work' : 'operate'}`
  else if (message.includes('schedule')) return schedulesNeed
  else if (message.includes('create_queue')) return 'a queue is made by the role that owns the schema; it can run: penstock queue create NAME'
  else if (/\b_(queue|dead_job|sample)\b/.test(message)) grant = 'queue grant QUEUE ROLE --operate'
  return `the role that owns the schema can run: penstock ${grant}`
}

/** explained adds what to do to an error about something that is missing. */
export async function explained<T>(call: Promise<T>): Promise<T> {
  try {
    return await call
  } catch (err: any) {
    const { message, hint } = told(err)
    switch (sqlState(err)) {
      case 'PS002':
        throw new VersionError([message, hint].filter(Boolean).join(': '), { cause: err })
      case '3F000': case '42883':
        throw new VersionError(`the database has no Penstock schema of version ${schemaVersion} or later: run penstock migrate`, { cause: err })
      case '42501':
        throw Object.assign(new Error(`${message} (${hint ?? grantOf(message)})`, { cause: err }), { code: '42501' })
      case '22023': case '23514': // an argument, a barrier or a limit, with the schema's own hint
        if (!hint) break
        throw Object.assign(new Error(`${message} (${hint})`, { cause: err }), { code: sqlState(err) })
      case '42704':
        throw new NotFoundError([message, hint].filter(Boolean).join(': '), { cause: err })
      case '42P01': case 'XX000':
        if (!isMissing(err)) break
        throw new NotFoundError(`${message} (${hint ?? `create it with: penstock queue create NAME, penstock outbox create NAME or penstock inbox create CONSUMER; penstock migrate comes first`})`, { cause: err })
    }
    throw err
  }
}

/** told is the database's message, without what its driver adds. */
function told(err: any): { message: string, hint?: string } {
  for (let e = err, depth = 0; e && typeof e === 'object' && depth < 6; e = e.cause ?? e.meta?.driverAdapterError, depth++) {
    if (typeof e.code === 'string' && e.code === sqlState(err) && typeof e.message === 'string') return e
  }
  return err
}
