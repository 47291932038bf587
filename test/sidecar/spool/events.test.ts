import { randomUUID } from 'node:crypto'
import { describe, expect, it } from 'vitest'
import { directSink } from '../../../deploy/signer-double/events/direct-sink.ts'
import { newFolder, until } from './support.ts'
import { type Harness, post, secret, send, startHarness } from '../support.ts'

const push = ({ sidecar }: Harness, body: string) =>
  post(`${sidecar.url}/events`, body, { authorization: `Bearer ${secret}` })
const envelopes = ({ core }: Harness): string[] =>
  core.script.ingested.map((bytes) => Buffer.from(bytes).toString())
const startSpooling = async (env: Record<string, string> = {}) =>
  startHarness({ env: { SPOOL_DIR: await newFolder(), ...env } })

describe('POST /events with a spool', () => {
  it('is answered with 202 while core is unavailable, and delivered later', async () => {
    const harness = await startSpooling()
    harness.core.script.failing = true
    const reply = await push(harness, '{"id":"1"}\n{"id":"2"}\nnot json')
    expect([reply.transport, reply.json]).toEqual([202, { accepted: 3 }])
    expect((await push(harness, '[]')).json).toEqual({ accepted: 0 })
    harness.core.script.failing = false
    await until(() => envelopes(harness).length === 3)
    expect(envelopes(harness)).toEqual(['{"id":"1"}', '{"id":"2"}', 'not json'])
  })

  it('is refused with 503 when the spool is full, and /readyz reports it until there is space', async () => {
    const harness = await startSpooling({ SPOOL_MAX_BYTES: String(8 * 1024 * 1024) })
    const readyz = async () => (await send(`${harness.sidecar.url}/readyz`, { method: 'GET' })).json
    expect(await readyz()).toEqual({
      status: 'ok',
      parts: { core: 'ok', escrow: 'ok', spool: 'ok' },
    })
    harness.core.script.failing = true
    const large = JSON.stringify({ id: '1', fill: 'x'.repeat(1_000_000) })
    const replies = []
    for (let n = 0; n < 9; n++) replies.push(await push(harness, large))
    expect(replies.map(({ transport }) => transport)).toEqual([...Array<number>(8).fill(202), 503])
    expect(replies[8]?.json).toMatchObject({
      status: 503,
      code: 'spool_unavailable',
      error: 'spool_unavailable',
      title: 'Spool unavailable',
      detail: 'the spool is full: core has not accepted its events yet; send these again later',
    })
    expect(replies[8]?.headers['retry-after']).toBe('5')
    expect(await readyz()).toEqual({
      status: 'degraded',
      parts: { core: 'ok', escrow: 'ok', spool: 'degraded' },
    })
    // Payments are still decided.
    expect((await harness.authorize({ headers: {}, state: {} })).transport).toBe(200)
    harness.core.script.failing = false
    await until(() => envelopes(harness).length === 8)
    await until(async () => (await readyz())['status'] === 'ok')
    expect((await push(harness, large)).transport).toBe(202)
  })

  it('is refused as a whole with too many events', async () => {
    const harness = await startSpooling()
    const reply = await push(harness, '1\n'.repeat(10_001))
    expect([reply.transport, reply.json['detail']]).toEqual([413, expect.stringMatching(/10000/)])
    expect((await push(harness, '1\n'.repeat(10_000))).json).toEqual({ accepted: 10_000 })
  })

  it('counts acknowledged and waiting events', async () => {
    const harness = await startSpooling()
    harness.core.script.failing = true
    await push(harness, '{"id":"1"}\n{"id":"2"}')
    expect(await harness.metrics.metrics()).toMatch(/^tollgate_sidecar_spool_events(\{.*\})? 2$/m)
    harness.core.script.failing = false
    await until(async () =>
      /^tollgate_sidecar_events_total(\{.*\})? 2$/m.test(await harness.metrics.metrics()),
    )
    expect(await harness.metrics.metrics()).toMatch(/^tollgate_sidecar_spool_events(\{.*\})? 0$/m)
  })
})

describe('the signer in direct mode', () => {
  it('is acknowledged at once, even during an outage of core', async () => {
    const harness = await startSpooling()
    const sink = directSink({ url: harness.sidecar.url, secret })
    const events = Array.from({ length: 2_500 }, () => {
      const id = randomUUID()
      return { id, type: 'create_signed_ticket', bytes: `{"id":"${id}"}` }
    })
    harness.core.script.failing = true
    for (let n = 0; n < events.length; n += 500) await sink.send(events.slice(n, n + 500))
    await sink.flush()
    expect(sink.backlog?.()).toBe(0)
    await sink.close()
    harness.core.script.failing = false
    await until(() => envelopes(harness).length === events.length)
    expect(envelopes(harness)).toEqual(events.map(({ bytes }) => bytes))
  })
})
