import { randomBytes } from 'node:crypto'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type OtlpReceiver, type ReceivedSpan, startOtlpReceiver } from '../fakes/otlp-receiver.ts'
import { secret } from '../support/deployment/parts.ts'
import { type Split, startSplit } from '../support/deployment/split.ts'
import { registerSecret } from '../support/run/secrecy.ts'
import { until } from '../support/waiting.ts'
import { firstCall } from '../sidecar/signer-bodies.ts'

const collectorKey = registerSecret(secret())
const webhookSecret = registerSecret(secret())
const userName = 'ada-of-the-traces'
const client = 3
const server = 2

let receiver: OtlpReceiver
let split: Split
let user: { readonly key: string; readonly path: string }

beforeAll(async () => {
  receiver = await startOtlpReceiver()
  split = await startSplit({
    redisUrl: null,
    settings: {
      WEBHOOK_SECRET: webhookSecret,
      OTEL_EXPORTER_OTLP_ENDPOINT: receiver.url,
      OTEL_EXPORTER_OTLP_HEADERS: `x-api-key=${collectorKey}`,
      OTEL_RESOURCE_ATTRIBUTES: 'deployment.environment.name=test',
      OTEL_METRIC_EXPORT_INTERVAL: '1000',
      OTEL_TRACES_SAMPLER: 'parentbased_always_on',
    },
  })
  const { rest, app } = split
  const authorization = app.basic
  const path = `${app.path}/users/${userName}`
  await rest('POST', `${app.path}/users`, { authorization, json: { externalUserId: userName } })
  const created = await rest('POST', `${path}/keys`, { authorization })
  user = { key: String(created.body['apiKey']), path }
}, 120_000)
afterAll(async () => {
  await split.stop()
  await receiver.stop()
})

interface Trace {
  readonly traceId: string
  readonly spanId: string
  readonly traceparent: string
}

function newTrace(flags = '01'): Trace {
  const traceId = randomBytes(16).toString('hex')
  const spanId = randomBytes(8).toString('hex')
  return { traceId, spanId, traceparent: `00-${traceId}-${spanId}-${flags}` }
}

const spansOf = ({ traceId }: Pick<Trace, 'traceId'>): ReceivedSpan[] =>
  receiver.spans.filter((span) => span.traceId === traceId)

const childrenOf = (trace: Pick<Trace, 'traceId'>, parent: string | undefined): ReceivedSpan[] =>
  spansOf(trace).filter(({ parentSpanId }) => parentSpanId === parent)

/** Waits for the gateway's span with a link to the stranger's trace. Returns it as a trace. */
async function findLinked(stranger: Trace): Promise<Pick<Trace, 'traceId'>> {
  const find = () =>
    receiver.spans.find(({ service, links = [] }) => {
      const isLinked = links.some(({ spanId }) => spanId === stranger.spanId)
      return isLinked && service === 'tollgate-gateway'
    })
  await until(() => find() !== undefined)
  return { traceId: find()?.traceId ?? '' }
}

/** Waits for the span by its name and the process that sent it. */
async function findSpan(
  trace: Pick<Trace, 'traceId'>,
  service: string,
  name: string,
): Promise<ReceivedSpan> {
  const find = () => spansOf(trace).find((span) => span.service === service && span.name === name)
  await until(() => find() !== undefined).catch((error: unknown) => {
    const names = spansOf(trace).map((span) => `${span.service} ${span.name}`)
    throw new Error(`no span ${service} ${name} among ${names.join(', ')}`, { cause: error })
  })
  const span = find()
  if (!span) throw new Error('the span is gone')
  return span
}

const authorize = ({ traceparent }: Trace): Promise<Response> =>
  fetch(`${split.sidecarUrl}/authorize`, {
    method: 'POST',
    headers: { authorization: `Bearer ${webhookSecret}`, traceparent },
    body: JSON.stringify(
      firstCall({
        key: user.key,
        state: {
          StateID: randomBytes(4).toString('hex'),
          LastUpdate: new Date().toISOString(),
          InitialPricePerUnit: 1,
          Type: 'fixed',
        },
      }),
    ),
  })

const verify = 'tollgate.signer.v1.SignerService/VerifyApiKeys'

describe('a trace', () => {
  it("leads from the signer's call through the sidecar and core to each statement", async () => {
    const trace = newTrace()
    expect((await authorize(trace)).status).toBe(200)
    const call = await findSpan(trace, 'tollgate-sidecar', 'POST /authorize')
    expect(call).toMatchObject({ parentSpanId: trace.spanId, kind: server })
    expect(call.attributes).toMatchObject({
      'http.route': '/authorize',
      'http.response.status_code': '200',
      'tollgate.decision': 'ok',
    })
    const sent = await findSpan(trace, 'tollgate-sidecar', verify)
    expect(sent).toMatchObject({ parentSpanId: call.spanId, kind: client })
    const received = await findSpan(trace, 'tollgate-core', verify)
    expect(received).toMatchObject({ parentSpanId: sent.spanId, kind: server })
    const statements = childrenOf(trace, received.spanId)
    expect(statements.length).toBeGreaterThan(0)
    for (const statement of statements) {
      expect(statement).toMatchObject({ service: 'tollgate-core', kind: client })
      expect(statement.attributes['db.system.name']).toBe('postgresql')
    }
  }, 30_000)

  it('begins at a REST request, whose caller does not decide, and leads through core to each statement', async () => {
    const stranger = newTrace('00')
    const answer = await split.rest('GET', `${user.path}/limits`, {
      authorization: split.app.basic,
      headers: { traceparent: stranger.traceparent },
    })
    expect(answer.status).toBe(200)
    const trace = await findLinked(stranger)
    expect(trace.traceId).not.toBe(stranger.traceId)
    expect(spansOf(stranger)).toEqual([])
    const route = 'GET /api/v1/apps/:clientId/users/:externalUserId/limits'
    const call = await findSpan(trace, 'tollgate-gateway', route)
    expect(call.kind).toBe(server)
    const rpc = 'tollgate.balances.v1.LimitService/GetLimits'
    const sent = await findSpan(trace, 'tollgate-gateway', rpc)
    expect(sent).toMatchObject({ parentSpanId: call.spanId, kind: client })
    const received = await findSpan(trace, 'tollgate-core', rpc)
    expect(received).toMatchObject({ parentSpanId: sent.spanId, kind: server })
    expect(childrenOf(trace, received.spanId).length).toBeGreaterThan(0)
  }, 30_000)

  it('goes on after a body was read', async () => {
    const stranger = newTrace()
    const answer = await split.rest('POST', `${split.app.path}/users`, {
      authorization: split.app.basic,
      headers: { traceparent: stranger.traceparent },
      json: { externalUserId: 'grace', email: 'grace@secret.example' },
    })
    expect(answer.status).toBe(201)
    await findSpan(
      await findLinked(stranger),
      'tollgate-core',
      'tollgate.identity.v1.UserService/UpsertUsers',
    )
  }, 30_000)

  it('is not sent if the signer decided against it', async () => {
    const ignored = newTrace('00')
    const kept = newTrace()
    await authorize(ignored)
    await authorize(kept)
    await findSpan(kept, 'tollgate-sidecar', 'POST /authorize')
    expect(spansOf(ignored)).toEqual([])
  }, 30_000)
})

describe('the collector', () => {
  it('receives the metrics that Prometheus reads', async () => {
    const find = (name: string) => receiver.metrics.findLast((metric) => metric.name === name)
    await until(() => find('tollgate_core_rpc_duration_seconds') !== undefined)
    await until(() => find('tollgate_sidecar_decisions_total')?.sum !== undefined)
    expect(find('tollgate_core_rpc_duration_seconds')).toMatchObject({ unit: 's' })
    expect(find('tollgate_core_rpc_duration_seconds')?.histogram).toBeDefined()
    expect(find('tollgate_sidecar_decisions_total')?.sum?.isMonotonic).toBe(true)
    expect(find('process_resident_memory_bytes')?.gauge?.dataPoints[0]?.asDouble).toBeGreaterThan(0)
  }, 30_000)

  it('gets the headers and the attributes of the settings', () => {
    expect(receiver.headers.every((each) => each['x-api-key'] === collectorKey)).toBe(true)
    expect(receiver.texts.every((text) => text.includes('deployment.environment.name'))).toBe(true)
  })

  it('receives no secret, no address and no id of a user', () => {
    const all = receiver.texts.join('\n')
    expect(all).toContain('tollgate-core')
    const hidden = [
      user.key,
      webhookSecret,
      collectorKey,
      split.serviceToken,
      split.app.m2mClientSecret,
      split.app.basic.replace('Basic ', ''),
      'grace@secret.example',
      userName,
    ]
    expect(hidden.filter((text) => all.includes(text)).length).toBe(0)
  })
})
