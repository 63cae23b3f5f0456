// Shared by the tests: a pool on the run's database, and separate names for each test.
import pg from 'pg'
import { randomBytes } from 'node:crypto'
import { afterAll, inject } from 'vitest'
import { Penstock } from '../src/index.js'

export const url = inject('url')
export const pool = new pg.Pool({ connectionString: url, max: 20 })
export const penstock = new Penstock()
afterAll(() => pool.end())

const name = (kind: string) => `${kind}_${randomBytes(5).toString('hex')}`

/** sql runs a statement and returns the first column of its rows. */
export const sql = async (text: string, ...values: unknown[]): Promise<any[]> => (await pool.query({ text, values, rowMode: 'array' })).rows.map(([first]) => first)

export async function newQueue(): Promise<string> {
  const queue = name('queue')
  await sql('select penstock.create_queue($1)', queue)
  return queue
}

export async function newOutbox(): Promise<string> {
  const outbox = name('outbox')
  await sql('select penstock.create_outbox($1)', outbox)
  return outbox
}

export async function newInbox(): Promise<string> {
  const inbox = name('inbox')
  await sql('select penstock.create_inbox($1)', inbox)
  return inbox
}

/** until waits for a condition. */
export async function until(what: string, is: () => boolean | Promise<boolean>): Promise<void> {
  const end = Date.now() + 50_000
  while (!await is()) {
    if (Date.now() > end) throw new Error(`did not happen in time: ${what}`)
    await new Promise(resolve => setTimeout(resolve, 5))
  }
}

/** status counts a queue's jobs. */
export async function status(queue: string): Promise<Record<'ready' | 'running' | 'delayed' | 'waiting' | 'dead', number>> {
  const { rows } = await pool.query('select ready::int, running::int, delayed::int, waiting::int, dead::int from penstock.queue_status($1)', [queue])
  return rows[0]
}

/** messages are what an outbox has, by their payload's text. */
export const messages = (outbox: string) => sql(`select convert_from(payload, 'UTF8') from penstock."${outbox}" order by seq`)
