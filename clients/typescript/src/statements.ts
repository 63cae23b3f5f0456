import type { Value } from './database.js'
import { headerUniqueKey, quoted } from './values.js'

/** Enqueued is the result of enqueueing a job. */
export class Enqueued {
  /**
   * @param id stays the same for the job's life; for a duplicate it is the id of the first job
   * @param deduplicated true if no job was added, because the queue had one with its dedupKey or uniqueKey
   * @internal
   */
  constructor(readonly id: bigint, readonly deduplicated: boolean) {}

  /** A value for JSON: the id as text. */
  toJSON() {
    return { ...this, id: String(this.id) }
  }
}

/** insertInto is the statement that publishes arrays of columns; n is the number of its first parameter. */
export const insertInto = (schema: string, outbox: string, n: number) => {
  const columns = ['text', 'text', 'text', 'jsonb', 'bytea'].map((type, i) => `$${n + i}::text::${type}[]`)
  return `insert into ${schema}.${quoted(outbox)} (id, key, topic, headers, payload) select * from unnest(${columns.join()})`
}

/** callOf is the statement that enqueues arrays of columns. It returns one row: the ids, and which jobs were duplicates. */
export const callOf = (schema: string, n: number, arrays: readonly Value[]) => {
  const columns = ['bytea', 'text', 'text', 'int', 'timestamptz', 'text', 'jsonb'].map((type, i) => `$${n + 1 + i}::text::${type}[]`)
  return `select array_agg(e.id order by e.n)::text as ids, ${arrays[5] === null && !arrays[6]?.includes(headerUniqueKey) ? 'null' : `array_agg(coalesce(${schema}.deduplicated(e.n), false) order by e.n)::text`} as deduplicated
    from ${schema}.enqueue_many_bytes($${n}::text, ${columns.join()}) with ordinality e(id, n)`
}

/** enqueuedOf reads that row. */
export function enqueuedOf([ids, deduplicated]: readonly (Value | undefined)[]): Enqueued[] {
  const found = deduplicated?.slice(1, -1).split(',')
  return ids!.slice(1, -1).split(',').map((id, i) => new Enqueued(BigInt(id), found?.[i] === 't'))
}
