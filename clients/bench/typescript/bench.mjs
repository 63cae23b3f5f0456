// Measures what each queue does with the same jobs: enqueued in batches, drained by four processes, at a steady rate, and
// in rounds while a snapshot is pinned. Prints one JSON line.
import { execFileSync, fork } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import pg from 'pg'

// For each queue, library loads its client, prepare makes its tables, producer enqueues payloads, and worker runs the handler until the function
// that it returns is called.
const queues = {
  penstock: {
    library: () => import('@penstock/client'),
    async prepare(url) {
      const penstock = fileURLToPath(new URL('../../../bin/penstock', import.meta.url))
      for (const args of [['migrate'], ['queue', 'create', 'bench']]) execFileSync(penstock, args, { env: { ...process.env, PENSTOCK_DATABASE_URL: url } })
    },
    async producer(url) {
      const { Penstock } = await this.library()
      const [pool, penstock] = [new pg.Pool({ connectionString: url }), new Penstock()]
      return { enqueue: payloads => penstock.enqueueMany(pool, 'bench', payloads.map(payload => ({ payload }))), end: () => pool.end() }
    },
    async worker(url, handler, concurrency) {
      const { Penstock } = await this.library()
      const [pool, stop] = [new pg.Pool({ connectionString: url }), new AbortController()]
      const running = new Penstock().work(pool, 'bench', job => handler(job.json()), { concurrency, signal: stop.signal })
      return async () => (stop.abort(), await running, pool.end())
    },
  },
  'graphile-worker': {
    library: () => import('graphile-worker'),
    async prepare(url) {
      const { runMigrations } = await this.library()
      await runMigrations({ connectionString: url })
    },
    async producer(url) {
      const { makeWorkerUtils } = await this.library()
      const utils = await makeWorkerUtils({ connectionString: url })
      return { enqueue: payloads => utils.addJobs(payloads.map(payload => ({ identifier: 'bench', payload }))), end: () => utils.release() }
    },
    async worker(url, handler, concurrency) {
      const { Logger, run } = await this.library()
      // The local queue and the batches of its authors' page on performance, with the pool size that they advise.
      const worker = { connectionString: url, concurrentJobs: concurrency, maxPoolSize: concurrency + 2, localQueue: { size: 500 }, completeJobBatchDelay: 0, failJobBatchDelay: 0,
        logger: new Logger(() => () => {}) }
      const runner = await run({ preset: { worker }, noHandleSignals: true, taskList: { bench: payload => handler(payload) } })
      return () => runner.stop()
    },
  },
  'pg-boss': {
    library: () => import('pg-boss'),
    async prepare(url) {
      const boss = await this.started(url)
      await boss.createQueue('bench', { notify: true })
      await boss.stop()
    },
    async started(url) {
      const { PgBoss } = await this.library()
      const boss = new PgBoss({ connectionString: url, useListenNotify: true })
      boss.on('error', err => console.error(err))
      return boss.start()
    },
    async producer(url) {
      const boss = await this.started(url)
      return { enqueue: payloads => boss.insert('bench', payloads.map(data => ({ data }))), end: () => boss.stop() }
    },
    async worker(url, handler, concurrency) {
      const boss = await this.started(url)
      // As fast as possible: notified by NOTIFY, polling again at once after a full batch, and with larger batches than
      // the others take.
      await boss.work('bench', { batchSize: concurrency * 100, burstWhenBatchFull: true }, async jobs => { for (const job of jobs) await handler(job.data) })
      return () => boss.stop({ graceful: true })
    },
  },
}

if (process.argv[2] === 'worker') {
  // A worker's process reports in batches how long each job waited, by the clock that all processes
  // share.
  const waits = []
  await queues[process.argv[3]].library()
  process.once('disconnect', () => process.exit())
  process.send('ready')
  await once(process, 'message')
  const stop = await queues[process.argv[3]].worker(process.argv[4], ({ at }) => void waits.push(Date.now() - at), 10)
  const timer = setInterval(() => waits.length && process.send(waits.splice(0)), 20)
  await once(process, 'message')
  await stop()
  clearInterval(timer)
  process.disconnect()
} else {
  const { values: { quick, part, only, most } } = parseArgs({ options: { quick: { type: 'boolean' }, part: { type: 'string', default: 'all' }, only: { type: 'string' }, most: { type: 'string', default: 'Infinity' } } })
  if (!['all', 'drain', 'steady', 'pinned'].includes(part) || !(only === undefined || only in queues)) throw new Error('usage: bench.sh [--quick] [--part all|drain|steady|pinned] [--only QUEUE] [--most SECONDS]')
  const load = { part, most: Number(most) * 1000, jobs: quick ? 5_000 : 100_000, rate: 500, seconds: quick ? 5 : 30, pinned: quick ? 5 : 300, round: 2_000 }
  const of = {}
  for (const [name, queue] of Object.entries(queues)) if (only === undefined || only === name) of[name] = await measure(name, queue, load)
  const ratios = figure => Object.fromEntries(Object.keys(of).slice(1).map(other => [other, Number((of.penstock[figure] / of[other][figure]).toFixed(2))]))
  console.log(JSON.stringify({ language: 'typescript', part, jobs: load.jobs, workers: 4, rate: load.rate, pinned_seconds: load.pinned, ...of,
    ...!only && ['all', 'drain'].includes(part) && Object.fromEntries(['enqueue', 'drain', 'both'].map(what => [`${what}_ratio`, ratios(`${what}_per_second`)])) }))
}

async function measure(name, queue, { part, most, jobs, rate, seconds, pinned, round }) {
  const [drains, steady, pins] = ['drain', 'steady', 'pinned'].map(p => part === 'all' || part === p)
  if (!drains) jobs = round // to begin with
  const server = process.env.PENSTOCK_TEST_POSTGRES
  const admin = new pg.Client(server)
  await admin.connect()
  const database = `bench_${process.pid}_${name.replace('-', '_')}`
  await admin.query(`create database ${database}`)
  const url = Object.assign(new URL(server), { pathname: database }).href
  const told = {}
  try {
    await queue.prepare(url)
    const producer = await queue.producer(url)
    const enqueue = async n => {
      for (let done = 0; done < n; done += 1000) await producer.enqueue(Array.from({ length: Math.min(1000, n - done) }, () => ({ at: Date.now() })))
    }
    const start = performance.now()
    await enqueue(jobs)
    const enqueueing = performance.now() - start

    let waits = []
    let arrived = () => {}
    const come = n => new Promise(resolve => {
      arrived = () => waits.length >= n && resolve()
      arrived()
    })
    const workers = Array.from({ length: 4 }, () => fork(fileURLToPath(import.meta.url), ['worker', name, url]))
    const started = workers.map(worker => Promise.race([once(worker, 'message'), once(worker, 'exit').then(() => { throw new Error(`a worker of ${name} did not start`) })]))
    await Promise.all(started)
    for (const worker of workers) worker.on('message', m => {
      waits.push(...m)
      arrived()
    })
    const begin = performance.now()
    for (const worker of workers) worker.send('go')
    await Promise.race([come(jobs), ...most < Infinity ? [new Promise(resolve => setTimeout(resolve, most))] : []])
    const draining = (performance.now() - begin) * jobs / waits.length // of all jobs, if it takes longer than most
    const perSecond = ms => Math.round(jobs / ms * 1000)
    if (drains) Object.assign(told, { enqueue_per_second: perSecond(enqueueing), drain_per_second: perSecond(draining), both_per_second: perSecond(enqueueing + draining) })

    waits = []
    if (steady) {
      const n = Math.round(rate * seconds)
      const first = Date.now()
      const sent = []
      for (let i = 0; i < n; i++) {
        const due = first + i * 1000 / rate
        if (due > Date.now()) await new Promise(resolve => setTimeout(resolve, due - Date.now()))
        sent.push(producer.enqueue([{ at: Date.now() }])) // one per call, as services do
      }
      await Promise.all(sent)
      await come(n)
      waits.sort((a, b) => a - b)
      Object.assign(told, { p50_ms: waits[Math.floor(n * 0.5)], p99_ms: waits[Math.floor(n * 0.99)] })
    }

    if (pins) {
      const pin = new pg.Client(url)
      await pin.connect()
      await pin.query('begin isolation level repeatable read')
      await pin.query('select count(*) from pg_class')
      const rounds = []
      for (const end = performance.now() + pinned * 1000; performance.now() < end;) {
        waits = []
        const start = performance.now()
        await enqueue(round)
        await come(round)
        rounds.push(performance.now() - start)
      }
      await pin.end()
      const median = values => values.sort((a, b) => a - b)[values.length >> 1]
      const fifth = Math.max(Math.floor(rounds.length / 5), 1)
      const [early, late] = [median(rounds.slice(0, fifth)), median(rounds.slice(-fifth))]
      told.flat = Number((late / early).toFixed(2))
    }

    for (const worker of workers) worker.send('stop')
    await Promise.all(workers.map(worker => worker.exitCode ?? once(worker, 'exit')))
    await producer.end()
    return told
  } finally {
    // Some clients close their connections in the background.
    const connected = async () => (await admin.query('select from pg_stat_activity where datname = $1', [database])).rowCount > 0
    for (let n = 0; n < 100 && await connected(); n++) await new Promise(resolve => setTimeout(resolve, 100))
    await admin.query(`drop database ${database} with (force)`)
    await admin.end()
  }
}
