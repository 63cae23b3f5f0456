import { expect, test } from 'vitest'
import { explained } from '../src/errors.js'
import { defineTask, holdGroup, limited, retry, type End } from '../src/index.js'
import { runOne } from '../src/testing.js'
import { newInbox, newQueue, penstock, pool, sql, status, until } from './database.js'

test('schedules are made, paused, run and listed', async () => {
  const queue = penstock.queue(pool, await newQueue())
  const next = await queue.schedule('nightly', '@yearly', { payload: { days: 1 }, kind: 'digest', key: 'k', groupKey: 'g', priority: -3, dedupKey: 'd', headers: { h: '1' } }, { skipOverlap: true })
  expect(next.getTime()).toBeGreaterThan(Date.now())
  expect(await queue.schedules()).toEqual([{
    name: 'nightly', cron: '@yearly', next, paused: false, skipOverlap: true, lastJob: undefined, kind: 'digest', key: 'k', groupKey: 'g', priority: -3, dedupKey: 'd',
    headers: { h: '1', 'penstock-kind': 'digest' }, payload: Buffer.from('{"days":1}'),
  }])
  await queue.pauseSchedule('nightly')
  const made = await queue.runSchedule('nightly')
  expect(made.deduplicated).toBe(false)
  expect(await queue.runSchedule('nightly')).toEqual({ id: made.id, deduplicated: true })
  expect((await queue.schedules())[0]).toMatchObject({ paused: true, lastJob: made.id })
  expect(await queue.resumeSchedule('nightly')).toEqual(next)
  await queue.schedule('other', '@hourly', { payload: 'x' })
  expect((await queue.schedules()).map(s => [s.name, s.paused, s.skipOverlap, s.kind])).toEqual([['nightly', false, true, 'digest'], ['other', false, false, '']])
  await queue.unschedule('nightly')
  await expect(queue.pauseSchedule('nightly')).rejects.toMatchObject({ name: 'NotFoundError', message: expect.stringContaining('penstock schedule list') })
  await expect(queue.schedule('bad', '99 * * * *', { payload: '' })).rejects.toMatchObject({ code: '22023' })
  await expect(queue.schedule('bad', '@daily', { payload: '', priority: 99 })).rejects.toMatchObject({ field: 'priority' })
})

test('a queue is made, and its jobs are counted', async () => {
  const made = penstock.queue(pool, `made_by_${await newQueue()}`)
  await made.create({ ordering: 'lifo' })
  await expect(made.create()).rejects.toMatchObject({ code: '42P07', message: expect.stringContaining('exists already') })
  await expect(penstock.queue(pool, 'other').create({ ordering: 'random' as 'fifo' })).rejects.toMatchObject({ code: '22023' })
  expect(await made.status()).toEqual({ ready: 0, running: 0, delayed: 0, waiting: 0, dead: 0, oldest: 0, expired: 0 })
  await penstock.enqueueMany(pool, made.name, [{ payload: 'a' }, { payload: 'b' }, { payload: 'c', delay: 3_600_000 }, { payload: 'd', key: 'k' }, { payload: 'e', key: 'k' }])
  const [first, second] = (await made.claim({ n: 2 })).jobs
  await made.deadLetter(second!.lease, 'no')
  expect(first).toMatchObject({ key: 'k' }) // the last in is the first out
  const counted = await made.status()
  expect(counted).toEqual({ ready: 1, running: 1, delayed: 1, waiting: 1, dead: 1, oldest: expect.any(Number), expired: 0 })
  expect(counted.oldest).toBeGreaterThan(0)
  await expect(penstock.queue(pool, 'missing').status()).rejects.toMatchObject({ name: 'NotFoundError' })
})

test('dead letters are listed, retried and discarded', async () => {
  const name = await newQueue()
  const queue = penstock.queue(pool, name)
  await penstock.enqueueMany(pool, name, [1, 2, 3].map(n => ({ payload: `job ${n}`, kind: 'welcome', headers: { n: String(n) } })))
  for (const { lease, payload } of (await queue.claim({ n: 3 })).jobs) await queue.deadLetter(lease, `no ${payload}`)
  const first = await queue.deadJobs({ most: 2 })
  expect(first.map(d => [d.payload.toString(), d.kind, d.headers['n'], d.attempt, d.error, d.failures.length])).toEqual([
    ['job 1', 'welcome', '1', 1, 'no job 1', 1], ['job 2', 'welcome', '2', 1, 'no job 2', 1]])
  expect(first[0]!.text()).toBe('job 1')
  expect(first[0]!.failures[0]).toMatchObject({ attempt: 1, error: 'no job 1' })
  expect(first[0]!.diedAt.getTime()).toBeGreaterThanOrEqual(first[0]!.createdAt.getTime())
  const rest = await queue.deadJobs({ after: first[1]!.id })
  expect(rest.map(d => d.error)).toEqual(['no job 3'])
  expect(await queue.retryDeadJobs([first[0]!.id])).toBe(1)
  expect(await queue.discardDeadJobs(first.map(d => d.id))).toBe(1)
  expect(await status(name)).toMatchObject({ ready: 1, dead: 1 })
})

test('a job is found where it is', async () => {
  const name = await newQueue()
  const queue = penstock.queue(pool, name)
  const { id } = await penstock.enqueue(pool, name, { payload: 'secret', kind: 'export', key: 'k' })
  expect(await queue.findJob(id)).toMatchObject({ id, state: 'ready', kind: 'export', key: 'k', groupKey: '', attempt: 0, claimedAt: undefined, until: undefined, endedAt: undefined, worker: '', error: '', report: undefined })
  const [job] = (await queue.claim({ worker: 'w' })).jobs
  await queue.report(job!.lease, { rows: 7 })
  const running = await queue.findJob(id)
  expect(running).toMatchObject({ state: 'running', attempt: 1, worker: 'w', report: { rows: 7 } })
  expect(running!.until!.getTime()).toBeGreaterThan(running!.claimedAt!.getTime())
  await queue.deadLetter(job!.lease, 'no more')
  const dead = await queue.findJob(id)
  expect(dead).toMatchObject({ state: 'dead', error: 'no more', report: { rows: 7 } })
  expect(dead!.endedAt!.getTime()).toBeGreaterThanOrEqual(dead!.createdAt.getTime())
  expect(await queue.discardDeadJobs([id])).toBe(1)
  expect(await queue.findJob(id)).toBeUndefined()
})

test('jobs are cancelled, and the queue is paused', async () => {
  const name = await newQueue()
  const queue = penstock.queue(pool, name)
  const made = await penstock.enqueueMany(pool, name, [1, 2, 3].map(n => ({ payload: `${n}` })))
  await queue.pause()
  expect((await queue.claim({ n: 3 })).jobs).toEqual([])
  await queue.resume()
  expect(await queue.cancel([made[0]!.id, 4711n])).toBe(1)
  expect((await queue.claim({ n: 3 })).jobs.map(job => job.id)).toEqual([made[1]!.id, made[2]!.id])
  expect(await queue.cancel(made.map(job => job.id))).toBe(2)
  expect(await status(name)).toMatchObject({ ready: 0, running: 0, delayed: 0 })
  await expect(penstock.queue(pool, 'missing').pause()).rejects.toMatchObject({ name: 'NotFoundError' })
})

test('policies and holds of groups are set and listed', async () => {
  const name = await newQueue()
  const queue = penstock.queue(pool, name)
  const none = { maxRunning: undefined, rate: undefined, per: undefined, burst: undefined, weight: undefined, tokens: undefined, heldUntil: undefined, reason: '' }
  await queue.setGroup('a', { maxRunning: 1, weight: 3 })
  await queue.setGroup('b', { rate: 60, per: 60_000, burst: 10 })
  await queue.setGroup('*', { maxRunning: 2 })
  await queue.holdGroup('a', 3_600_000, '429')
  const policies = await queue.groupPolicies()
  expect(policies).toEqual([{ ...none, groupKey: '*', maxRunning: 2 },
    { ...none, groupKey: 'a', maxRunning: 1, weight: 3, heldUntil: expect.any(Date), reason: '429' }, { ...none, groupKey: 'b', rate: 60, per: 60_000, burst: 10, tokens: 10 }])
  expect(Math.abs(policies[1]!.heldUntil!.getTime() - Date.now() - 3_600_000)).toBeLessThan(600_000)
  expect((await queue.groupPolicies({ after: 'a', most: 1 })).map(p => p.groupKey)).toEqual(['b'])
  await penstock.enqueueMany(pool, name, [1, 2].map(n => ({ payload: `${n}`, groupKey: 'a' })))
  expect((await queue.claim({ n: 2, groupKey: 'a' })).jobs).toEqual([])
  await queue.holdGroup('a', 0)
  expect((await queue.claim({ n: 2, groupKey: 'a' })).jobs).toHaveLength(1)
  await queue.setGroup('a')
  expect((await queue.claim({ n: 2, groupKey: 'a' })).jobs).toHaveLength(1)
  await expect(queue.setGroup('b', { maxRunning: 0 })).rejects.toMatchObject({ field: 'maxRunning' })
  await expect(queue.setGroup('b', { rate: 1, per: 0 })).rejects.toMatchObject({ field: 'per' })
  await expect(queue.setGroup('b', { rate: 1 })).rejects.toMatchObject({ field: 'per' })
  await expect(queue.holdGroup('b', -1)).rejects.toMatchObject({ field: 'ms' })
  await expect(queue.holdGroup('b', 1, 'x'.repeat(1025))).rejects.toMatchObject({ field: 'reason' })
  await expect(queue.holdGroup('*', 1)).rejects.toMatchObject({ code: '22023' })
  expect(() => holdGroup(-1)).toThrow(/after is -1/)
})

test('a handler holds the group of its job, and spends no attempt', async () => {
  const name = await newQueue()
  const queue = penstock.queue(pool, name)
  const ran: string[] = []
  const lines: string[] = []
  const ends: End[] = []
  const stop = new AbortController()
  await penstock.enqueueMany(pool, name, Array.from({ length: 50 }, (_, n) => ({ payload: `${n}`, groupKey: 'a' })))
  let refused = false
  const worker = penstock.work(pool, name, job => {
    if (job.attempt !== 1) throw new Error(`attempt ${job.attempt}`)
    if (!refused && ran.length === 10) { // by now some are claimed ahead
      refused = true
      throw holdGroup(3_600_000, `429 ${'ä'.repeat(1024)}`)
    }
    ran.push(job.text())
  }, { signal: stop.signal, groupKey: 'a', concurrency: 1, logger: { warn: line => lines.push(line) }, onEnd: (_, end) => ends.push(end) })
  await until('it is held, and its jobs are back', async () => ends.includes('snoozed') && (await queue.groupPolicies()).length === 1 && (await status(name)).running === 0)
  const [held] = await queue.groupPolicies()
  expect([held!.groupKey, held!.reason]).toEqual(['a', `429 ${'ä'.repeat(510)}`])
  expect(ran).toHaveLength(10)
  expect(lines.filter(line => line.includes('its group "a" is held for 3600000 ms: 429'))).toHaveLength(1)
  await queue.holdGroup('a', 0)
  await until('all have run', () => ran.length === 50)
  stop.abort()
  await worker
  expect(new Set(ran).size).toBe(50)
  expect(ends.filter(end => end === 'done' || end === 'snoozed')).toHaveLength(51)
  expect(ends.filter(end => end !== 'done' && end !== 'snoozed' && end !== 'released')).toEqual([])
})

test('where no group can be held, only the job waits', async () => {
  const name = await newQueue()
  await penstock.enqueueMany(pool, name, [{ payload: 'alone', groupKey: '*' }])
  expect(await runOne(pool, name, () => holdGroup(3_600_000), { groupKey: '*' })).toMatchObject({ end: 'snoozed' })
  expect(await status(name)).toMatchObject({ delayed: 1 })
  expect(await penstock.queue(pool, name).groupPolicies()).toEqual([])
})

test('a worker is listed while it lives, and says that it has stopped', async () => {
  const queue = await newQueue()
  const ended: End[] = []
  const stop = new AbortController()
  await penstock.enqueueMany(pool, queue, [{ payload: '' }, { payload: 'bad' }])
  const worker = penstock.work(pool, queue, job => { if (job.text()) throw new Error('no') }, {
    signal: stop.signal, worker: 'w', concurrency: 3, logger: { warn() {} }, onEnd: (_, end) => ended.push(end) })
  const said = async () => (await sql(`select report || jsonb_build_object('worker', worker) from penstock._lease l join penstock._queue q on q.id = -l.queue where q.name = $1 order by l.lease_until desc`, queue))[0]
  await until('it has said so', async () => !!await said())
  expect(await said()).toMatchObject({ worker: 'w', version: expect.stringMatching(/^@penstock\/client \d/), concurrency: 3, groups: [''] })
  await until('both have ended', () => ended.length === 2)
  stop.abort()
  await worker
  expect(await said()).toMatchObject({ stopped: true, running: 0, done: 1, failed: 1, dead: 0, claimed_at: expect.any(String) })
})

test('a handler with limits fails for good after its attempts, and after its time', async () => {
  const queue = await newQueue()
  const lines: string[] = []
  const ends: End[] = []
  await penstock.enqueueMany(pool, queue, ['fails', 'asks', 'slow', 'quick'].map(kind => ({ payload: '', kind })))
  const attempts = new Map<string, number>()
  const counts = (kind: string) => attempts.set(kind, (attempts.get(kind) ?? 0) + 1)
  const never = (signal: AbortSignal) => new Promise<void>((_, reject) => signal.addEventListener('abort', () => reject(signal.reason as Error)))
  const stop = new AbortController()
  const slow = defineTask<string>({ name: 'slow', queue, maxAttempts: 1, timeout: 20 })
  await sql('update penstock._queue set max_attempts = 3 where name = $1', queue)
  const worker = penstock.work(pool, queue, [
    { fails: limited(job => { counts(job.kind); throw new Error('no') }, { maxAttempts: 2, backoff: n => n }) },
    { asks: limited(job => { counts(job.kind); return retry(1, 'again') }, { maxAttempts: 2, backoff: 1e9 }) },
    { slow: limited((job, signal) => (counts(job.kind), never(signal)), { maxAttempts: 1, timeout: 20 }), quick: limited(() => {}, { timeout: 60_000 }) },
  ], { signal: stop.signal, logger: { warn: line => lines.push(line) }, onEnd: (_, end) => ends.push(end) })
  await until('all have ended', () => ends.length === 6)
  stop.abort()
  await worker
  expect(Object.fromEntries(attempts)).toEqual({ fails: 2, asks: 2, slow: 1 })
  expect(ends.sort()).toEqual(['dead', 'dead', 'dead', 'done', 'failed', 'failed'])
  expect((await penstock.queue(pool, queue).deadJobs()).map(d => [d.kind, d.error.replace(/ \(.*/, '')])).toEqual([
    ['fails', 'Error: no'], ['asks', 'again'], ['slow', 'TimeoutError: the job ran longer than its timeout of 20 ms']])
  expect(lines.filter(line => line.includes(`queue ${queue}, job `) && /kind fails, attempt [12]: (failed|dead letter): Error: no/.test(line))).toHaveLength(2)
  await slow.enqueue(pool, '')
  await expect(runOne(pool, queue, [slow.handle((_, __, signal) => never(signal))])).rejects.toThrow('longer than its timeout of 20 ms')
  expect(await status(queue)).toMatchObject({ dead: 4 })
  for (const limits of [{ maxAttempts: 0 }, { timeout: 0 }, { timeout: 2 ** 31 }]) expect(() => limited(() => {}, limits)).toThrow(/expected 1/)
})

test('a missing right names the grant', async () => {
  const name = await newQueue()
  const role = `r_${name.replace(/\W/g, '_')}`
  await pool.query(`create role ${role}`)
  const client = await pool.connect()
  try {
    const queue = penstock.queue(client, name)
    for (const [call, says] of [
      [() => penstock.enqueue(client, name, { payload: '' }), ` ${name} ROLE --enqueue)`],
      [() => queue.findJob(1n), ` ${name} ROLE --enqueue)`],
      [() => queue.claim(), ` ${name} ROLE --work)`],
      [() => queue.holdGroup('g', 1), ` ${name} ROLE --work)`],
      [() => queue.maintain(), ` ${name} ROLE --work)`],
      [() => queue.cancel([1n]), ` ${name} ROLE --operate)`],
      [() => queue.setGroup('g'), ` ${name} ROLE --operate)`],
      [() => queue.deadJobs(), ` ROLE --operate)`],
      [() => queue.status(), ` ${name} ROLE --operate)`],
      [() => queue.create(), 'penstock queue create NAME'],
      [() => queue.discardDeadJobs([1n]), ` ${name} ROLE --operate)`],
      [() => queue.schedules(), 'penstock schedule set QUEUE NAME'],
    ] as const) {
      await client.query('begin')
      await client.query(`grant usage on schema penstock to ${role}`)
      await client.query(`set local role ${role}`)
      const err = await call().catch(err => err as Error & { code?: string })
      expect(err).toBeInstanceOf(Error)
      expect([(err as Error).message, (err as { code?: string }).code]).toEqual([expect.stringContaining(says), '42501'])
      await client.query('rollback')
    }
  } finally {
    client.release()
    await pool.query(`drop role ${role}`)
  }
})

test('of each function and sequence of a queue and an inbox that a right opens, an error names a right that does', async () => {
  const queue = await newQueue(), inbox = await newInbox()
  const client = await pool.connect()
  let all: any[][]
  try {
    await client.query('begin')
    for (const [right, grant, of] of [['enqueue', 'enqueuer', queue], ['work', 'worker', queue], ['operate', 'operator', queue], ['consume', 'consumer', inbox]]) {
      await client.query(`create role may_${right}`)
      await client.query(`select penstock.grant_${grant}('${of}', 'may_${right}')`)
    }
    await client.query(`select penstock.grant_inbox_operator('${inbox}', 'may_operate')`)
    all = (await client.query({ rowMode: 'array', values: [queue], text: String.raw`select own::text, array(select r from unnest(array['enqueue', 'work', 'operate', 'consume']) r
        where case kind when 'f' then has_function_privilege('may_' || r, oid, 'execute') else has_sequence_privilege('may_' || r, oid, 'usage, select') end)
      from (select 'f' as kind, oid, proname as own from pg_proc where pronamespace = 'penstock'::regnamespace and not has_function_privilege('public', oid, 'execute')
        union all select 'S', oid, relname from pg_class where relnamespace = 'penstock'::regnamespace and relkind = 'S') o
      where starts_with(own, '_' || $1::text || '.') or own like '\_\_inbox.%' or own = 'dequeue_' || $1::text` })).rows
  } finally {
    await client.query('rollback')
    client.release()
  }
  const opened = all.filter(([, rights]) => rights.length) // the others are the owner's alone
  expect(opened.length).toBeGreaterThan(30)
  for (const [own, rights] of opened) {
    const err = await explained(Promise.reject(Object.assign(new Error(`permission denied for function ${own}`), { code: '42501' }))).catch((err: Error) => err)
    expect([own, rights]).toEqual([own, expect.arrayContaining([/ --(\w+)\)$/.exec((err as Error).message)?.[1]])])
  }
})

test('a mistake in a cron text, a barrier or a rate says what to do', async () => {
  const name = await newQueue(), queue = penstock.queue(pool, name)
  await expect(queue.schedule('n', '99 * *', { payload: '' })).rejects.toThrow(/five fields are needed, and it has 3 \(give minute, hour/)
  await expect(penstock.seal(pool, name, 99n)).rejects.toMatchObject({ code: '23514', message: expect.stringContaining('no barrier 99 (a barrier belongs to one queue') })
  await expect(penstock.enqueue(pool, name, { payload: '', waitsFor: [99n] })).rejects.toThrow('no barrier 99 (a barrier belongs to one queue')
  for (const [limits, field] of [[{ rate: 60 }, 'per'], [{ per: 1000 }, 'rate'], [{ burst: 5 }, 'rate']] as const) {
    await expect(queue.setGroup('g', limits)).rejects.toMatchObject({ name: 'FieldError', field, message: expect.stringContaining('give both') })
  }
})
