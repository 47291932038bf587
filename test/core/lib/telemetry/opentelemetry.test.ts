import { setTimeout as sleep } from 'node:timers/promises'
import { Counter, Gauge, Histogram } from 'prom-client'
import { afterEach, describe, expect, it, onTestFinished } from 'vitest'
import { createEnvReader } from '../../../../core/lib/env.ts'
import { type Log, createLog } from '../../../../core/lib/log.ts'
import { createMetrics } from '../../../../core/lib/metrics.ts'
import { type TelemetryConfig, readTelemetry } from '../../../../core/lib/telemetry/config.ts'
import { openTelemetry } from '../../../../core/lib/telemetry/open.ts'
import { statementName } from '../../../../core/lib/telemetry/traced-client.ts'
import {
  type Tracing,
  activeTracing,
  setTracing,
  traceHandler,
} from '../../../../core/lib/telemetry/tracing.ts'
import { startOtlpReceiver, toRecord } from '../../../fakes/otlp-receiver.ts'
import { readSources } from '../../../support/source/source.ts'
import { until } from '../../../support/waiting.ts'
import { freePorts } from '../../../support/deployment/processes.ts'

afterEach(() => setTracing(null))

function readConfig(env: Readonly<Record<string, string>>) {
  const reader = createEnvReader(env)
  return { config: readTelemetry(reader, 'test'), problems: reader.problems }
}

const createTestLog = (): { readonly log: Log; readonly lines: string[] } => {
  const lines: string[] = []
  const write = (line: string): void => void lines.push(line)
  return { log: createLog({ level: 'info', name: 'test', isTraced: true }, { write }), lines }
}

async function start(env: Readonly<Record<string, string>>) {
  const receiver = await startOtlpReceiver()
  onTestFinished(receiver.stop)
  const metrics = createMetrics('test')
  const { log, lines } = createTestLog()
  const settings = { OTEL_EXPORTER_OTLP_ENDPOINT: receiver.url, ...env }
  const stop = await openTelemetry(readConfig(settings).config, { metrics, log })
  return { receiver, metrics, log, lines, stop, tracing: requireTracing() }
}

function requireTracing(): Tracing {
  const tracing = activeTracing()
  if (!tracing) throw new Error('traces are off')
  return tracing
}

const request = { name: 'GET /', kind: 'server' } as const

describe('settings', () => {
  it('turn telemetry off without a collector', async () => {
    const { config, problems } = readConfig({ OTEL_TRACES_SAMPLER: 'always_on' })
    expect([config, problems]).toEqual([undefined, []])
    const handler = (): void => {}
    expect(traceHandler('/authorize', handler)).toBe(handler)
  })

  it('are those of OpenTelemetry', () => {
    const { config, problems } = readConfig({
      OTEL_EXPORTER_OTLP_ENDPOINT: 'http://collector:4318/',
      OTEL_EXPORTER_OTLP_HEADERS: 'x-key=a%20b,x-other=c=d',
      OTEL_SERVICE_NAME: 'signer-core',
      OTEL_RESOURCE_ATTRIBUTES: 'deployment.environment.name=prod',
      OTEL_TRACES_SAMPLER: 'parentbased_traceidratio',
      OTEL_TRACES_SAMPLER_ARG: '0.25',
    })
    expect(problems).toEqual([])
    expect(config).toEqual({
      endpoint: 'http://collector:4318',
      headers: { 'x-key': 'a b', 'x-other': 'c=d' },
      serviceName: 'signer-core',
      resource: { 'deployment.environment.name': 'prod' },
      sampler: 'parentbased_traceidratio',
      ratio: 0.25,
      metricsIntervalMs: 60_000,
    } satisfies TelemetryConfig)
  })

  it.each([
    [{ OTEL_EXPORTER_OTLP_ENDPOINT: 'collector:4318' }, 'OTEL_EXPORTER_OTLP_ENDPOINT must be'],
    [{ OTEL_TRACES_SAMPLER: 'some' }, 'OTEL_TRACES_SAMPLER must be one of always_on'],
    [{ OTEL_TRACES_SAMPLER_ARG: '1.5' }, 'OTEL_TRACES_SAMPLER_ARG must be a number from 0 to 1'],
    [{ OTEL_TRACES_SAMPLER_ARG: 'many' }, 'OTEL_TRACES_SAMPLER_ARG must be a number from 0 to 1'],
    [{ OTEL_EXPORTER_OTLP_HEADERS: 'key' }, 'OTEL_EXPORTER_OTLP_HEADERS must hold at most 64'],
    [{ OTEL_EXPORTER_OTLP_HEADERS: 'a=%0d%0a' }, 'OTEL_EXPORTER_OTLP_HEADERS must hold'],
    [{ OTEL_RESOURCE_ATTRIBUTES: 'a=%zz' }, 'OTEL_RESOURCE_ATTRIBUTES must hold'],
  ])('%j are refused', (env, problem) => {
    expect(readConfig(env).problems).toEqual([expect.stringContaining(problem)])
  })
})

describe('the modules of OpenTelemetry', () => {
  it('are loaded only with a collector: one dynamic import leads to them', () => {
    const own = 'core/lib/telemetry/'
    const sources = readSources('core', 'gateway', 'sidecar', 'deploy')
    const users = sources.filter(({ text }) => text.includes("from '@opentelemetry/"))
    expect(users.map(({ path }) => path).toSorted()).toEqual([
      `${own}opentelemetry.ts`,
      `${own}prometheus-producer.ts`,
    ])
    const importers = sources.flatMap(({ path, imports }) =>
      imports
        .filter(({ target, typeOnly }) => !typeOnly && users.some((user) => user.path === target))
        .map(({ target }) => `${path} -> ${target}`),
    )
    expect(importers.toSorted()).toEqual([
      `${own}open.ts -> ${own}opentelemetry.ts`,
      `${own}opentelemetry.ts -> ${own}prometheus-producer.ts`,
    ])
    const text = sources.find(({ path }) => path === `${own}open.ts`)?.text ?? ''
    expect(text).toContain("await import('./opentelemetry.ts')")
    expect(text).toContain('import type { TelemetryDeps }')
  })
})

describe('log lines', () => {
  it('carry the ids of the span in which they are written', async () => {
    const { tracing, log, lines, stop } = await start({})
    const traceparent = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01'
    const span = tracing.serve({ ...request, headers: { traceparent } })
    await span.run(async () => {
      await sleep(1)
      log.info('inside')
    })
    span.end()
    log.info('outside')
    const [inside, outside] = lines.map((line) => JSON.parse(line))
    expect(inside).toMatchObject({ trace_id: '0af7651916cd43dd8448eb211c80319c' })
    expect(inside.span_id).toMatch(/^[0-9a-f]{16}$/)
    expect(outside).not.toHaveProperty('trace_id')
    await stop()
  })
})

describe('sampling', () => {
  it('keeps the share of traces that a ratio sampler is given', async () => {
    const { tracing, receiver, stop } = await start({
      OTEL_TRACES_SAMPLER: 'traceidratio',
      OTEL_TRACES_SAMPLER_ARG: '0.2',
    })
    for (let n = 0; n < 1_000; n++) tracing.serve(request).end()
    await stop()
    expect(receiver.spans.length).toBeGreaterThan(100)
    expect(receiver.spans.length).toBeLessThan(320)
  })

  it('is not decided by a stranger, to whose trace the span only has a link', async () => {
    const { tracing, receiver, stop } = await start({
      OTEL_TRACES_SAMPLER: 'parentbased_always_on',
    })
    const traceId = '0af7651916cd43dd8448eb211c80319c'
    const spanId = 'b7ad6b7169203331'
    const headers = { traceparent: `00-${traceId}-${spanId}-00` }
    tracing.serve({ ...request, headers }).end()
    tracing.serve({ ...request, headers, isPublic: true }).end()
    tracing.serve({ ...request, headers: { traceparent: 'none' }, isPublic: true }).end()
    await stop()
    expect(receiver.spans.map(({ links = [] }) => links)).toMatchObject([[{ traceId, spanId }], []])
    const traces = new Set([traceId, ...receiver.spans.map((span) => span.traceId)])
    expect(traces.size).toBe(3)
  })

  it('of a stranger is off if the root sampler is off', async () => {
    const { tracing, receiver, stop } = await start({
      OTEL_TRACES_SAMPLER: 'parentbased_always_off',
    })
    const headers = { traceparent: '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01' }
    tracing.serve({ ...request, headers, isPublic: true }).end()
    await stop()
    expect(receiver.spans).toEqual([])
  })

  it('starts no child outside of a trace', async () => {
    const { tracing, stop } = await start({})
    expect(tracing.startChild({ name: 'select users', kind: 'client' })).toBeNull()
    await stop()
  })
})

describe('metrics', () => {
  it('have the values of the Prometheus registry', async () => {
    const { metrics, receiver, stop } = await start({})
    const registers = [metrics]
    const calls = new Counter({
      name: 'tollgate_test_calls_total',
      help: 'Calls',
      labelNames: ['kind'],
      registers,
    })
    const seconds = new Histogram({
      name: 'tollgate_test_duration_seconds',
      help: 'Time',
      labelNames: ['kind'],
      buckets: [0.1, 1],
      registers,
    })
    calls.inc({ kind: 'a' }, 3)
    for (const value of [0.05, 0.5, 0.6, 5]) seconds.observe({ kind: 'a' }, value)
    seconds.observe({ kind: 'b' }, 0.2)
    await stop()
    const find = (name: string) => receiver.metrics.find((metric) => metric.name === name)
    const [count] = find('tollgate_test_calls_total')?.sum?.dataPoints ?? []
    expect(count?.asDouble).toBe(3)
    expect(toRecord(count?.attributes ?? [])).toEqual({ kind: 'a', process: 'test' })
    const points = find('tollgate_test_duration_seconds')?.histogram?.dataPoints ?? []
    expect(points).toMatchObject([
      { count: 4, sum: 6.15, bucketCounts: [1, 2, 1], explicitBounds: [0.1, 1] },
      { count: 1, sum: 0.2, bucketCounts: [0, 1, 0] },
    ])
  })
})

describe('a value that JSON cannot hold', () => {
  it('is left out, and the others of its metric are sent', async () => {
    const { metrics, receiver, stop } = await start({})
    const lag = new Gauge({
      name: 'tollgate_test_lag_seconds',
      help: 'Lag',
      labelNames: ['of'],
      registers: [metrics],
    })
    lag.set({ of: 'unknown' }, Infinity)
    lag.set({ of: 'absent' }, Number.NaN)
    lag.set({ of: 'known' }, 2)
    await stop()
    const [metric] = receiver.metrics.filter(({ name }) => name === 'tollgate_test_lag_seconds')
    expect(metric?.gauge?.dataPoints.map(({ asDouble }) => asDouble)).toEqual([2])
  })
})

describe('the queue', () => {
  it('holds 2,048 spans, and drops later ones', async () => {
    const { tracing, receiver, stop } = await start({})
    for (let n = 0; n < 20_000; n++) tracing.serve(request).end()
    // Before the stop, which sends for a second only.
    await until(() => receiver.spans.length >= 2_048)
    await stop()
    expect(receiver.spans.length).toBeLessThan(3_000)
  })
})

describe('without a collector at its address', () => {
  it('logs one warning, and stops in time', async () => {
    const [port] = await freePorts(1)
    const { log, lines } = createTestLog()
    const { config } = readConfig({ OTEL_EXPORTER_OTLP_ENDPOINT: `http://127.0.0.1:${port}` })
    const stop = await openTelemetry(config, { metrics: createMetrics('test'), log })
    const tracing = requireTracing()
    for (let n = 0; n < 20_000; n++) tracing.serve(request).end()
    const warnings = (): string[] =>
      lines.filter((line) => line.includes('OTEL_EXPORTER_OTLP_ENDPOINT'))
    await until(() => warnings().length > 0)
    const began = performance.now()
    await stop()
    expect(performance.now() - began).toBeLessThan(2_000)
    expect(warnings()).toHaveLength(1)
    expect(JSON.parse(warnings()[0] ?? '{}')).toMatchObject({ level: 'warn' })
  }, 20_000)
})

describe('statementName', () => {
  it.each([
    ['begin', 'begin'],
    [{ text: 'select 1', name: 'active-keys', values: ['secret'] }, 'active-keys'],
    [{ text: '\n  select id\n  from users\n  where id = $1', values: [7] }, 'select users'],
    [{ text: "insert into api_keys (id) values ('x')" }, 'insert api_keys'],
    [{ text: 'update balances set a = 1' }, 'update balances'],
    [{ text: 'copy x from stdin', submit: () => {} }, undefined],
    [null, undefined],
  ])('of %j is %j', (statement, name) => {
    expect(statementName(statement)).toBe(name)
  })
})
