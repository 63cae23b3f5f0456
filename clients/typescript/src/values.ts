// Messages and jobs, and how they become parameters.
import type { Value } from './database.js'
import { FieldError } from './errors.js'
import { checked, typed } from './options.js'

/** Payload: text and bytes as they are, anything else as JSON. */
export type Payload = string | Uint8Array | object | number | boolean | null

/** Message is a message to publish. */
export interface Message {
  payload: Payload
  /** Messages of a key stay in order. */
  key?: string | null
  /** Sinks route by it. */
  topic?: string | null
  headers?: Readonly<Record<string, string>> | null
  /** Your own id. Without one the message gets one. */
  id?: string | null
}

/** NewJob is a job to enqueue. */
export interface NewJob {
  payload: Payload
  /** Says which handler takes it: 1 to 100 bytes, or '', the default. */
  kind?: string | null
  /** At most one job of a key runs at a time, in order. */
  key?: string | null
  /** A tenant, for example. Each group has its own order. */
  groupKey?: string | null
  /** -16 (first) to 15 (last). Default 0. */
  priority?: number | null
  /** When it may run: a Date, or RFC 3339 for a finer resolution than milliseconds. */
  notBefore?: Date | string | null
  /** In how many milliseconds it may run, by the clock of this process. It takes the place of notBefore. */
  delay?: number | null
  /** Within the queue's window, a second job with the same dedupKey is not enqueued. */
  dedupKey?: string | null
  headers?: Readonly<Record<string, string>> | null
  /** The queue has at most one job with it that has not ended. It is the job's key as well. */
  uniqueKey?: string | null
  /** What happens to a job that has it: 'ignore', the default, 'replace' or 'debounce'. */
  onConflict?: 'ignore' | 'replace' | 'debounce' | null
  /** How many milliseconds 'debounce' puts a job off at most, from its first enqueue. */
  debounceMax?: number | null
  /** After how many attempts it becomes a dead letter, instead of the queue's. */
  maxAttempts?: number | null
  /** How many milliseconds an attempt may take. Then the signal of its handler aborts. If the handler then throws, the attempt has failed. */
  timeout?: number | null
  /** From then on no attempt begins, and the job ends as expired. */
  deadline?: Date | string | null
  /** The barrier that it holds: see Penstock.barrier. */
  holds?: bigint | null
  /** The barriers, up to 100, that it waits for: it runs once all are open. */
  waitsFor?: readonly bigint[] | null
  /** What it does while a job that holds one of these is dead: 'wait', the default, 'run', or 'cancel', which makes it a dead letter too. */
  onDead?: 'wait' | 'run' | 'cancel' | null
}

const maxPayload = 64 << 20
const maxHeaders = 64 << 10
const maxKind = 100

/** The header that carries the kind of a job. */
export const headerKind = 'penstock-kind'
/** The header that carries the unique key of a job. Each of its options has such a header. */
export const headerUniqueKey = 'penstock-unique-key'
/** The header that carries the timeout of a job, in seconds. */
export const headerTimeout = 'penstock-timeout'
/** The header that carries the report of an earlier attempt. */
export const headerReport = 'penstock-report'
/** The member of a report that holds the results of steps. */
export const memberSteps = 'penstock-steps'

export function bytesOf(payload: Payload): Buffer {
  let bytes: Buffer
  if (payload === undefined) throw new FieldError('payload', "is missing; '' is an empty one")
  if (payload instanceof Uint8Array || payload instanceof DataView) bytes = Buffer.from(payload.buffer, payload.byteOffset, payload.byteLength)
  else if (payload instanceof ArrayBuffer) bytes = Buffer.from(payload)
  else if (payload instanceof Promise || payload instanceof Map || payload instanceof Set) { // JSON has {} for each
    throw new FieldError('payload', `is a ${payload.constructor.name}: ${payload instanceof Promise ? 'await it' : 'give an array or an object of what it holds'}`)
  } else {
    const text = typeof payload === 'string' ? payload : jsonOf(payload)
    if (typeof text !== 'string') throw new FieldError('payload', 'has no form in JSON')
    if (!text.isWellFormed()) throw new FieldError('payload', 'has half of a surrogate pair; give bytes')
    bytes = Buffer.from(text)
  }
  if (bytes.length > maxPayload) throw new FieldError('payload', `has ${bytes.length} bytes, the limit is ${maxPayload}: store it elsewhere and refer to it`)
  return bytes
}

/** jsonOf is JSON.stringify with our own errors for a bigint or a cycle. */
export function jsonOf(payload: unknown): string | undefined {
  try {
    return JSON.stringify(payload)
  } catch (err) {
    let at = ''
    try {
      JSON.stringify(payload, (key, value) => {
        if (typeof value === 'bigint') at = ` at ${JSON.stringify(key)}; give String(it)`
        return value
      })
    } catch {}
    throw new FieldError('payload', `has no form in JSON: ${String(err instanceof Error ? err.message : err).replace(/\s+/g, ' ')}${at}`)
  }
}

export function textOf(field: string, s: string, most: number): string {
  if (typeof s !== 'string') throw new FieldError(field, `is a ${typeof s}, expected a string`)
  if (Buffer.byteLength(s) > most) throw new FieldError(field, `has ${Buffer.byteLength(s)} bytes, the limit is ${most}`)
  if (s.includes('\0')) throw new FieldError(field, 'has a NUL, which text cannot hold')
  if (!s.isWellFormed()) throw new FieldError(field, 'has half of a surrogate pair')
  return s
}

const orNull = (field: string, s: string | null | undefined, most: number) => (s == null || s === '' ? null : textOf(field, s, most))

function headersOf(headers: NewJob['headers']): Value {
  const entries = Object.entries(headers ?? {})
  let bytes = 0
  for (const [name, value] of entries) {
    if (name === '') throw new FieldError('headers', 'have one without a name')
    bytes += Buffer.byteLength(textOf('headers', name, maxHeaders)) + Buffer.byteLength(textOf('headers', value, maxHeaders))
  }
  if (bytes > maxHeaders) throw new FieldError('headers', `have ${bytes} bytes together, the limit is ${maxHeaders}`)
  return entries.length ? JSON.stringify(headers) : null
}

const control = /[\x00-\x1f\x7f]/

/** kindOf is a kind that a job can have: '' is that of jobs without one. */
export function kindOf(kind: string): string {
  if (control.test(textOf('kind', kind, maxKind))) throw new FieldError('kind', 'has a control character: it becomes a label of metrics')
  return kind
}

/** headersWithKind are a job's headers, of which one carries its kind. */
function headersWithKind({ kind, headers }: NewJob): NewJob['headers'] {
  const carried = headers?.[headerKind]
  kindOf(kind || carried || '')
  if (!kind) return headers
  if (carried && carried !== kind) throw new FieldError('kind', `is ${JSON.stringify(kind)}, and the header ${headerKind} says ${JSON.stringify(carried)}: give one of them`)
  return { ...headers, [headerKind]: kind }
}

function secondsOf(field: string, ms: number | null | undefined): string | null {
  if (ms == null) return null
  if (!(ms >= 1 && ms <= 366 * 86_400_000)) throw new FieldError(field, `is ${ms}, expected 1 to ${366 * 86_400_000} milliseconds`)
  return String(Math.round(ms) / 1000)
}

function barriersOf(field: string, barriers: readonly bigint[]): string | null {
  if (barriers.length > 100 || barriers.some(b => typeof b !== 'bigint' || b < 1n || b >= 10n ** 18n)) throw new FieldError(field, `is ${barriers}, expected up to 100 numbers that barrier has returned`)
  return barriers.join() || null
}

/** waitsOf are the barriers that a message waits for, as PostgreSQL reads an array. */
export function waitsOf(barriers: readonly bigint[]): string {
  const text = barriersOf('waitsFor', typed('waitsFor', barriers, 'bigints'))
  if (text === null) throw new FieldError('waitsFor', 'is empty: give the barriers to wait for, or publish the message')
  return `{${text}}`
}

export function onDeadOf(onDead: NewJob['onDead']): string | null {
  if (!['wait', 'run', 'cancel'].includes(onDead ?? 'wait')) throw new FieldError('onDead', `is ${JSON.stringify(onDead)}, expected wait, run or cancel`)
  return onDead ?? null
}

/** headersWithOptions are a job's headers, some of which carry its kind and its options. */
function headersWithOptions(j: NewJob): NewJob['headers'] {
  const headers = headersWithKind(j)
  if (j.maxAttempts != null && !(Number.isInteger(j.maxAttempts) && j.maxAttempts >= 1 && j.maxAttempts <= 999_999_999)) throw new FieldError('maxAttempts', `is ${j.maxAttempts}, expected 1 to 999999999`)
  if (!['ignore', 'replace', 'debounce'].includes(j.onConflict ?? 'ignore')) throw new FieldError('onConflict', `is ${JSON.stringify(j.onConflict)}, expected ignore, replace or debounce`)
  const deadline = timeOf(j.deadline, 'deadline')
  const given: [string, string, string | null][] = [
    ['uniqueKey', headerUniqueKey, orNull('uniqueKey', j.uniqueKey, 1024)],
    ['onConflict', 'penstock-on-conflict', j.onConflict ?? null],
    ['debounceMax', 'penstock-debounce-max', secondsOf('debounceMax', j.debounceMax)],
    ['maxAttempts', 'penstock-max-attempts', j.maxAttempts == null ? null : String(j.maxAttempts)],
    ['timeout', headerTimeout, secondsOf('timeout', j.timeout)],
    ['deadline', 'penstock-deadline', deadline === null ? null : new Date(deadline).toISOString()],
    ['holds', 'penstock-holds', j.holds == null ? null : barriersOf('holds', [j.holds])],
    ['waitsFor', 'penstock-waits-for', barriersOf('waitsFor', j.waitsFor ?? [])],
    ['onDead', 'penstock-on-dead', onDeadOf(j.onDead)],
  ]
  const all: Record<string, string> = { ...headers }
  let any = false
  for (const [field, header, value] of given) {
    if (value === null) continue
    if (all[header] && all[header] !== value) throw new FieldError(field, `is ${JSON.stringify(value)}, and the header ${header} says ${JSON.stringify(all[header])}: give one of them`)
    all[header] = value
    any = true
  }
  const unique = all[headerUniqueKey]
  if (unique && j.key && j.key !== unique) throw new FieldError('uniqueKey', `is ${JSON.stringify(unique)}, and the key is ${JSON.stringify(j.key)}: leave the key out, a unique job has its unique key as key`)
  if (j.onConflict && !unique) throw new FieldError('onConflict', 'is given without a uniqueKey')
  if (j.debounceMax != null && all['penstock-on-conflict'] !== 'debounce') throw new FieldError('debounceMax', "is given and onConflict is not 'debounce'")
  return any ? all : headers
}

/** messageRow is a message as columns: id, key, topic, headers, payload. */
export function messageRow(m: Message): Value[] {
  checked('message', m)
  const row = [orNull('id', m.id, 256), orNull('key', m.key, 1024), orNull('topic', m.topic, 1024) ?? '', headersOf(m.headers), hex(bytesOf(m.payload))]
  if (control.test(row[0] ?? '')) throw new FieldError('id', 'has a control character: it travels in protocol headers')
  return row
}

/** jobRow is a job as columns: payload, key, group_key, priority, not_before, dedup_key, headers. */
export function jobRow(j: NewJob): Value[] {
  checked('job', j)
  const priority = j.priority ?? 0
  if (!Number.isInteger(priority) || priority < -16 || priority > 15) throw new FieldError('priority', `is ${priority}, expected -16 (first) to 15 (last)`)
  return [hex(bytesOf(j.payload)), orNull('key', j.key, 1024), orNull('groupKey', j.groupKey, 256) ?? '', String(priority),
    timeOf(later(j)), orNull('dedupKey', j.dedupKey, 256), headersOf(headersWithOptions(j))]
}

/** later is when a job may run. */
function later({ notBefore, delay }: NewJob): NewJob['notBefore'] {
  if (delay == null) return notBefore
  if (!(delay >= 0 && delay <= 100 * 366 * 86_400_000)) throw new FieldError('delay', `is ${delay}, expected milliseconds`)
  if (notBefore != null) throw new FieldError('delay', 'is given with notBefore: give one of them')
  return new Date(Date.now() + delay)
}

function timeOf(at: NewJob['notBefore'], field = 'notBefore'): string | null {
  if (at == null) return null
  const time = new Date(at)
  if (Number.isNaN(time.getTime())) throw new FieldError(field, 'is not a time')
  if (typeof at === 'string' && !isTime(at)) throw new FieldError(field, `is ${JSON.stringify(at)}, expected RFC 3339 with a time zone, as in 2026-03-29T01:00:00Z`)
  if (time.getUTCFullYear() > 9999) throw new FieldError(field, `is in the year ${time.getUTCFullYear()}, the last one is 9999`)
  if (time.getUTCFullYear() < 1) return '0001-01-01T00:00:00Z'
  return typeof at === 'string' ? at : time.toISOString()
}

/** isTime is whether a text is a time that JavaScript and PostgreSQL read alike. Without a time zone each would take its own. */
function isTime(text: string): boolean {
  const [, year, month, day] = /^(\d{4})-(\d\d)-(\d\d)[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)$/i.exec(text)?.map(Number) ?? []
  return year !== undefined && day! <= new Date(Date.UTC(year, month!, 0)).getUTCDate()
}

const hex = (bytes: Buffer) => '\\x' + bytes.toString('hex')

/** array is the text form of an array. */
export function array(values: readonly (Value | bigint)[]): string {
  return `{${values.map(v => (typeof v === 'string' ? `"${v.replace(/["\\]/g, '\\$&')}"` : v === null ? 'NULL' : String(v))).join()}}`
}

/** arrays turns rows into an array per column. A column that has only nulls, or only default values, becomes null. */
export function arrays(rows: readonly Value[][], nothing: readonly Value[] = []): Value[] {
  return rows[0]!.map((_, i) => (rows.every(row => row[i] === null || row[i] === nothing[i]) ? null : array(rows.map(row => row[i]!))))
}

/** jobArrays is arrays of jobRows. */
export const jobArrays = (rows: readonly Value[][]) => arrays(rows, [null, null, '', '0'])

/** interval is a time in milliseconds as a PostgreSQL interval: above 0 if the time is, and about 95 years at most. */
export const interval = (ms: number) => `${Math.min(ms > 0 ? Math.ceil(ms * 1000) : Math.floor(ms * 1000), 3e15)} microseconds`

/** quoted is a name as an identifier. */
export const quoted = (name: string) => `"${name.replaceAll('"', '""')}"`
