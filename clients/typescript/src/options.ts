// The options of each call, with their types: what a program without types misspells, or gives in another form, is an error that says what to do.
import { FieldError } from './errors.js'

/** What a value may be: how an error says it, and whether one is. */
const types = {
  text: ['a string', (v: unknown) => typeof v === 'string'],
  number: ['a number', (v: unknown) => typeof v === 'number'],
  ms: ['a number of milliseconds', (v: unknown) => typeof v === 'number'],
  boolean: ['true or false', (v: unknown) => typeof v === 'boolean'],
  bigint: ['a bigint, as in 42n', (v: unknown) => typeof v === 'bigint'],
  ids: ['an array of ids, as in [42n]', (v: unknown) => Array.isArray(v) && v.every(id => /^\d+$/.test(String(id)))],
  bigints: ['an array of bigint, as in [42n]', (v: unknown) => Array.isArray(v) && v.every(one => typeof one === 'bigint')],
  texts: ['an array of strings', (v: unknown) => Array.isArray(v) && v.every(one => typeof one === 'string')],
  array: ['an array', Array.isArray],
  time: ["a Date, or a string as in '2026-03-29T01:00:00Z'", (v: unknown) => typeof v === 'string' || Object.prototype.toString.call(v) === '[object Date]'],
  object: ['an object', (v: unknown) => typeof v === 'object' && v !== null && !Array.isArray(v)],
  handlers: ['a function, or an object with one for each kind', (v: unknown) => typeof v === 'object' && v !== null],
  function: ['a function', (v: unknown) => typeof v === 'function'],
  backoff: ['a number of milliseconds, or a function of the attempt', (v: unknown) => typeof v === 'number' || typeof v === 'function'],
  signal: ['an AbortSignal', (v: any) => typeof v?.addEventListener === 'function' && typeof v.aborted === 'boolean'],
  logger: ['an object with a function warn, as console is', (v: any) => typeof v?.warn === 'function'],
  any: ['anything', () => true],
} satisfies Record<string, [expected: string, is: (v: any) => boolean]>

type Type = keyof typeof types
/** The options of one call. */
interface Options { readonly types: Readonly<Record<string, Type>>, readonly what: string, readonly nulls?: boolean, readonly others?: Readonly<Record<string, string>> }

/** What other queues call the fields of a job. */
const elsewhere = {
  runAt: 'notBefore', startAfter: 'notBefore', attempts: 'maxAttempts', retryLimit: 'maxAttempts', jobId: 'uniqueKey', singletonKey: 'uniqueKey', group: 'groupKey', name: 'kind', data: 'payload',
  backoff: 'limited(handler, { backoff }) in the worker', retryDelay: 'limited(handler, { backoff }) in the worker', jobKey: 'uniqueKey', queueName: 'key', expireInSeconds: 'timeout', repeat: 'schedule of a queue', cron: 'schedule of a queue', lifo: "the ordering 'lifo' of a queue",
}
const claimed = { lease: 'ms', worker: 'text', acks: 'array' } as const
const scheduled = {
  payload: 'any', kind: 'text', key: 'text', groupKey: 'text', priority: 'number', dedupKey: 'text', headers: 'object', uniqueKey: 'text', onConflict: 'text', debounceMax: 'ms', maxAttempts: 'number',
  timeout: 'ms', deadline: 'time', holds: 'bigint', waitsFor: 'bigints', onDead: 'text',
} as const
const limits = { maxAttempts: 'number', timeout: 'ms', backoff: 'backoff' } as const

/** The options of all calls. A null is as if a field of a message or a job was left out; others have none. */
export const table = {
  message: { what: 'a field of a message', nulls: true, types: { payload: 'any', key: 'text', topic: 'text', headers: 'object', id: 'text' } },
  job: { what: 'a field of a job', nulls: true, others: elsewhere, types: { ...scheduled, notBefore: 'time', delay: 'ms' } },
  scheduled: { what: 'a field of a job of a schedule', nulls: true, types: scheduled },
  worker: { what: 'an option of a worker', others: { lockDuration: 'lease', teamSize: 'concurrency', workers: 'concurrency', batchSize: 'batch', pollInterval: 'pollMax', group: 'groupKey' }, types: {
    concurrency: 'number', batch: 'number', lease: 'ms', groupKey: 'text', groups: 'texts', allGroups: 'boolean', worker: 'text', pollMin: 'ms', pollMax: 'ms', ackEvery: 'ms', drainTimeout: 'ms', giveUp: 'ms',
    signal: 'signal', onEnd: 'function', logger: 'logger',
  } },
  penstock: { what: 'an option of Penstock', types: { schema: 'text' } },
  writer: { what: 'an option of a writer', types: { flushAt: 'number' } },
  limits: { what: 'a limit of a handler', types: limits },
  task: { what: 'an option of a task', types: { name: 'text', queue: 'text', schema: 'any', penstock: 'object', ...limits } },
  claim: { what: 'an option of claim', types: { n: 'number', groupKey: 'text', ...claimed } },
  claimGroups: { what: 'an option of claimGroups', types: claimed },
  schedule: { what: 'an option of schedule', types: { skipOverlap: 'boolean' } },
  create: { what: 'an option of create', types: { ordering: 'text' } },
  deadJobs: { what: 'an option of deadJobs', types: { most: 'number', after: 'bigint' } },
  group: { what: 'a limit of a group', types: { maxRunning: 'number', rate: 'number', per: 'ms', burst: 'number', weight: 'number' } },
  groupPolicies: { what: 'an option of groupPolicies', types: { most: 'number', after: 'text' } },
  module: { what: 'an option of PenstockModule', types: { pool: 'any', schema: 'text', work: 'boolean', workers: 'object', failFast: 'boolean' } },
  handler: { what: 'a field of a handler', others: { name: 'kind' }, types: { queue: 'text', kind: 'text' } },
  published: { what: 'a field to find messages by', types: { topic: 'text', key: 'text' } },
  enqueued: { what: 'a field to find jobs by', types: { kind: 'text', key: 'text', payload: 'any' } },
  runAll: { what: 'an option of runAll', types: { schema: 'text' } },
  runOne: { what: 'an option of runOne', types: { schema: 'text', groupKey: 'text', kind: 'text' } },
} as const satisfies Record<string, Options>

/** checked returns the options of a call, or fails with a FieldError if there is none of such a name or one has another type. */
export function checked<T extends object>(call: keyof typeof table, given: T): T {
  const { types: fields, what, nulls = false, others = {} }: Options = table[call]
  if (typeof given !== 'object' || given === null || Array.isArray(given)) throw new FieldError(call, `is ${shown(given)}, expected an object with: ${Object.keys(fields).join(', ')}`)
  for (const field in given) {
    const value: unknown = given[field]
    if (value === undefined) continue
    const type = Object.hasOwn(fields, field) ? fields[field] : undefined
    if (type) {
      if (!(nulls && value === null)) typed(field, value, type)
    } else if (!nulls || !ofClaimed.has(field)) {
      const use = Object.hasOwn(others, field) ? `use ${others[field]}` : near(field, Object.keys(fields))
      throw new FieldError(field, `is not ${what}; ${use ?? `there are: ${Object.keys(fields).join(', ')}`}`)
    }
  }
  return given
}

/** What a claimed job has that a new one has not: it may be enqueued again, or published. */
const ofClaimed = new Set(['id', 'attempt', 'createdAt', 'report', 'lease', 'leaseUntil'])

/** typed returns an argument, or fails with a FieldError if it has another type. */
export function typed<T>(field: string, value: T, type: Type): T {
  const [expected, is] = types[type]
  if (!is(value)) throw new FieldError(field, `is ${shown(value)}, expected ${expected}`)
  return value
}

/** shown is a value for an error: its type, and the value if that is short. */
function shown(value: unknown): string {
  if (value === null || value === undefined) return String(value)
  if (typeof value === 'string') return value.length > 40 ? 'a string' : `the string ${JSON.stringify(value)}`
  if (typeof value === 'object') return Array.isArray(value) ? 'an array' : `an object (${value.constructor?.name ?? 'Object'})`
  return typeof value === 'function' ? 'a function' : `the ${typeof value} ${String(value)}`
}

/** near asks whether the option is meant whose name differs least: in case and underscores, or in two letters at most. */
function near(given: string, names: string[]): string | undefined {
  const plain = (name: string) => name.replaceAll('_', '').toLowerCase()
  const [name, steps] = names.map(name => [name, distance(plain(given), plain(name))] as const).sort((a, b) => a[1] - b[1])[0]!
  return steps <= Math.min(2, name.length / 3) ? `did you mean ${name}?` : undefined
}

/** distance is how many letters must be added, left out or replaced. */
function distance(a: string, b: string): number {
  let row = [...b, ''].map((_, j) => j)
  for (let i = 1; i <= a.length; i++) {
    const next = [i]
    for (let j = 1; j <= b.length; j++) next.push(Math.min(row[j]! + 1, next[j - 1]! + 1, row[j - 1]! + Number(a[i - 1] !== b[j - 1])))
    row = next
  }
  return row[b.length]!
}
