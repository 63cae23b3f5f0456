// The README's examples of metrics and traces, with prom-client and OpenTelemetry.
import { trace } from '@opentelemetry/api'
import { InMemorySpanExporter, NodeTracerProvider, SimpleSpanProcessor } from '@opentelemetry/sdk-trace-node'
import { register } from 'prom-client'
import { expect, test } from 'vitest'
import type { Handler, Handlers, Job, NewJob, WorkOptions } from '../src/index.js'
import { newQueue, penstock, pool, until } from './database.js'

const generated = './readme.generated.ts' // test.sh makes it after it has checked the types of this file

/** Runs the example that has a text, on a queue of the test, until what it waits for is there. */
async function runs(text: string, queue: string, names: object, what: () => boolean | Promise<boolean>) {
  const stop = new AbortController()
  Object.assign(globalThis, { pool, tx: pool, ...names, penstock: {
    enqueue: (tx: never, _: string, job: NewJob) => penstock.enqueue(tx, queue, job),
    work: (db: never, _: string, handlers: Handlers, options: WorkOptions) => penstock.work(db, queue, handlers, { logger: { warn() {} }, ...options, signal: stop.signal }),
  } })
  const { examples } = await import(generated) as { examples: (() => Promise<void>)[] }
  const running = examples.find(example => example.toString().includes(text))!()
  await Promise.race([running, until('the example has done its work', what)])
  stop.abort()
  await running
}

test('onEnd counts attempts under the names of the Go workers', async () => {
  const queue = await newQueue()
  await penstock.enqueueMany(pool, queue, ['welcome', 'welcome', 'digest', 'made-up'].map(kind => ({ kind, payload: '' })))
  const names = { sendWelcome: () => {}, sendDigest: () => { throw new Error('no') } }
  const lines = async () => (await register.metrics()).split('\n').filter(line => line.startsWith('penstock_worker_'))
  await runs('penstock_worker_ended_jobs_total', queue, names, async () => {
    const all = await lines()
    return all.includes('penstock_worker_ended_jobs_total{queue="emails",kind="welcome",result="done"} 2') && all.some(line => line.includes('failed')) && all.some(line => line.includes('released'))
  })
  const all = await lines()
  expect(all).toContain('penstock_worker_ended_jobs_total{queue="emails",kind="digest",result="failed"} 1')
  expect(all).toContain('penstock_worker_ended_jobs_total{queue="emails",kind="other",result="released"} 1')
  expect(all).toContain('penstock_worker_job_duration_seconds_count{queue="emails",kind="welcome"} 2')
  expect(all.join()).not.toContain('made-up')
})

test('a job runs in the trace of its producer', async () => {
  const queue = await newQueue()
  const exporter = new InMemorySpanExporter()
  const provider = new NodeTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] })
  provider.register()
  const seen: Job[] = []
  let inside: string | undefined
  const handler: Handler = job => {
    seen.push(job)
    inside = trace.getActiveSpan()?.spanContext().spanId
  }
  const spans = () => exporter.getFinishedSpans().filter(span => span.name === 'run emails')
  const producer = await trace.getTracer('test').startActiveSpan('order', async span => {
    await runs('propagation.inject', queue, { handler }, () => spans().length === 1)
    span.end()
    return span.spanContext()
  })
  const [span] = spans()
  expect(seen.map(job => job.headers['traceparent'])).toEqual([`00-${producer.traceId}-${producer.spanId}-01`])
  expect(span!.spanContext()).toMatchObject({ traceId: producer.traceId, spanId: inside })
  expect(span!.parentSpanContext?.spanId).toBe(producer.spanId)
  await provider.shutdown()
})
