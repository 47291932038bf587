import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterEach, describe, expect, it, onTestFinished } from 'vitest'
import { createHttpClient } from '../../../../core/billing/processor/stripe/http.ts'
import { createEnvReader } from '../../../../core/lib/env.ts'
import { silentLog } from '../../../../core/lib/log.ts'
import { createMetrics } from '../../../../core/lib/metrics.ts'
import { parseAllowance } from '../../../../core/lib/outbound/addresses.ts'
import { createOutbound } from '../../../../core/lib/outbound/outbound.ts'
import { readTelemetry } from '../../../../core/lib/telemetry/config.ts'
import { openTelemetry } from '../../../../core/lib/telemetry/open.ts'
import { activeTracing, setTracing } from '../../../../core/lib/telemetry/tracing.ts'
import { attempt } from '../../../../core/webhooks/attempts.ts'
import { startOtlpReceiver } from '../../../fakes/otlp-receiver.ts'

afterEach(() => setTracing(null))

async function startTracing() {
  const receiver = await startOtlpReceiver()
  onTestFinished(receiver.stop)
  const env = createEnvReader({ OTEL_EXPORTER_OTLP_ENDPOINT: receiver.url })
  const parts = { metrics: createMetrics('test'), log: silentLog() }
  const stop = await openTelemetry(readTelemetry(env, 'test'), parts)
  return { receiver, stop }
}

/** Starts a server that keeps the `traceparent` of each request. */
async function startTarget() {
  const traceparents: (string | undefined)[] = []
  const server = createServer((request, response) => {
    traceparents.push(request.headers['traceparent']?.toString())
    request.resume()
    response.writeHead(200).end('{}')
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  onTestFinished(() => {
    server.closeAllConnections()
    server.close()
  })
  const { port } = server.address() as AddressInfo
  return { port, traceparents }
}

const allow = parseAllowance(['127.0.0.1'])
if (!allow) throw new Error('the allowance is not valid')
const outbound = createOutbound({ allow })

const deliver = (port: number) =>
  attempt(
    { outbound, now: () => new Date() },
    { url: `http://127.0.0.1:${port}/`, secrets: [], signal: new AbortController().signal },
    {
      id: 'a',
      eventId: 'evt_a',
      body: '{}',
      attempts: 1,
      eventType: 'invoice.issued',
      startedAt: new Date(),
    },
  )

async function callStripe(port: number): Promise<void> {
  const client = createHttpClient('http')
  const headers = { 'content-length': '0' }
  const request = ['127.0.0.1', String(port), '/v1/x', 'POST', headers, '', 'http', 5_000] as const
  await (await client.makeRequest(...request)).toJSON()
}

const requests = { 'a webhook': deliver, 'a request to Stripe': callStripe }

describe.each(Object.entries(requests))('%s', (_, send) => {
  it('carries no traceparent without a collector', async () => {
    const { port, traceparents } = await startTarget()
    await send(port)
    expect(traceparents).toEqual([undefined])
  })

  it('carries a traceparent of its own trace, and of the trace in which it is sent', async () => {
    const { port, traceparents } = await startTarget()
    const { receiver, stop } = await startTracing()
    await send(port)
    const span = activeTracing()?.serve({ name: 'GET /', kind: 'server' })
    await span?.run(() => send(port))
    span?.end()
    await stop()
    const sent = receiver.spans.filter(({ kind }) => kind === 3)
    expect(traceparents).toEqual(sent.map(({ traceId, spanId }) => `00-${traceId}-${spanId}-01`))
    const [alone, inside] = sent
    const served = receiver.spans.find(({ name }) => name === 'GET /')
    expect(alone?.parentSpanId ?? '').toBe('')
    expect(inside).toMatchObject({ traceId: served?.traceId, parentSpanId: served?.spanId })
    expect(receiver.texts.join('\n')).not.toContain('127.0.0.1')
  })
})
