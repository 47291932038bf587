import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { parseEvent } from '../../../core/metering/events/parse.ts'
import { createUsagePushes } from '../../../sidecar/events/usage-push.ts'
import { post, secret, startHarness, until } from '../support.ts'

const at = Date.parse('2026-11-21T23:59:58.500Z')
const clientId = 'app_0123456789abcdef01234567'
const data = {
  client_id: clientId,
  usage_subject: 'alice',
  request_id: '1a2b3c4d',
  computed_fee: '9007199254740993',
  pixels: '141653333',
  pipeline: 'live-video-to-video:flux',
}
const bodyOf = (more: object = {}): string =>
  JSON.stringify({ type: 'create_signed_ticket', data: { ...data, ...more } })

function pushes(startMs = at) {
  const clock = { ms: startMs }
  const complete = createUsagePushes({ now: () => new Date(clock.ms) })
  return { clock, complete: (body: string): string => complete(Buffer.from(body)).toString() }
}

const idOf = (event: string): string => {
  const { id }: { id: string } = JSON.parse(event)
  return id
}

describe('a usage push', () => {
  it('becomes a ticket with its arrival time, and keeps every digit', () => {
    const event = pushes().complete(bodyOf())
    const parsed = parseEvent(Buffer.from(event), new Date(at))
    expect(parsed).toMatchObject({
      kind: 'ticket',
      ticket: {
        eventId: expect.stringMatching(/^usage-push-[0-9a-f]{40}$/),
        clientId,
        externalUserId: 'alice',
        fee: 9_007_199_254_740_993n,
        pixels: '141653333',
        pipeline: 'live-video-to-video',
        modelId: 'flux',
        requestId: '1a2b3c4d',
        sessionId: '1a2b3c4d',
        sequenceNumber: '0',
        signedAt: '2026-11-21T23:59:58.500000Z',
        emittedAtMs: at,
      },
    })
    expect(
      pushes().complete(
        '{"type":"create_signed_ticket","data":{"pixels":9007199254740993,"auth_id":"a:b","request_id":"r","computed_fee":"1"}}',
      ),
    ).toContain('"pixels":9007199254740993')
  })

  it('is the same event when it is sent again, even after midnight', () => {
    const { clock, complete } = pushes()
    const first = complete(bodyOf())
    clock.ms += 5_900
    expect(complete(bodyOf())).toBe(first)
  })

  it('is another event when any part differs, and on another day', () => {
    const day = 86_400_000
    const ids = [
      bodyOf(),
      bodyOf({ request_id: '1a2b3c4e' }),
      bodyOf({ computed_fee: '9007199254740994' }),
      bodyOf({ usage_subject: 'bob' }),
    ].map((body) => idOf(pushes().complete(body)))
    expect(new Set([...ids, idOf(pushes(at + day).complete(bodyOf()))]).size).toBe(5)
    // Another sidecar creates the same id on the same day.
    expect(idOf(pushes(at - 1_000).complete(bodyOf()))).toBe(ids[0])
  })

  it('keeps its own time, session and sequence number', () => {
    const told = { current_time: '2026-11-21T10:00:00.5Z', session_id: 's1', sequence_number: 4 }
    const { complete } = pushes()
    expect(parseEvent(Buffer.from(complete(bodyOf(told))), new Date(at))).toMatchObject({
      kind: 'ticket',
      ticket: { signedAt: '2026-11-21T10:00:00.500000Z', sessionId: 's1', sequenceNumber: '4' },
    })
    // The day of arrival then has no effect.
    expect(pushes(at + 86_400_000).complete(bodyOf(told))).toBe(complete(bodyOf(told)))
  })

  it.each([
    ['an event with an id', bodyOf().replace('{', '{"id":"1",')],
    ['an event with an empty id', bodyOf().replace('{', '{ "id" : "",')],
    ['another type', bodyOf().replace('create_signed_ticket', 'usage')],
    ['an event without a client', bodyOf({ client_id: '' })],
    ['an event without a request', bodyOf({ request_id: undefined })],
    ['an event without a fee', bodyOf({ computed_fee: undefined })],
    ['two data members', bodyOf().replace('{', '{"data":{},')],
    ['JSON that is not an object', '[1]'],
    ['text that is not JSON', bodyOf().slice(1)],
    ['an event that is too large', bodyOf({ note: 'x'.repeat(65_536) })],
  ])('is not made from %s, which goes to core unchanged', (_what, body) => {
    expect(pushes().complete(body)).toBe(body)
  })

  it('adds an id to any such object and does not change other input', () => {
    const json = fc.json({ maxDepth: 3 })
    const { complete } = pushes()
    fc.assert(
      fc.property(fc.oneof(json, fc.string(), fc.uint8Array().map(String)), (text) => {
        expect(complete(text)).toBe(text)
      }),
    )
    fc.assert(
      fc.property(
        fc.dictionary(fc.string(), fc.jsonValue()),
        fc.dictionary(fc.string(), fc.jsonValue()),
        (outer, inner) => {
          const { id: _, ...others } = outer
          const given = { ...others, type: 'create_signed_ticket', data: { ...inner, ...data } }
          const made: unknown = JSON.parse(complete(JSON.stringify(given, null, 1)))
          expect(made).toMatchObject(JSON.parse(JSON.stringify(given)))
          expect(made).toMatchObject({ id: expect.stringMatching(/^usage-push-/) })
        },
      ),
    )
  })
})

describe('POST /events with usage pushes', () => {
  const caller = { authorization: `Bearer ${secret}`, 'content-type': 'application/json' }

  it('accepts a push and its retries as one event', async () => {
    const { sidecar, core } = await startHarness()
    for (let attempt = 0; attempt < 3; attempt++) {
      expect((await post(`${sidecar.url}/events`, bodyOf(), caller)).transport).toBe(202)
    }
    await until(() => core.script.ingested.length === 3)
    expect(new Set(core.script.ingested.map((bytes) => Buffer.from(bytes).toString())).size).toBe(1)
  })

  it('makes the sender retry after an outage only', async () => {
    const { sidecar, core } = await startHarness()
    const statuses = []
    statuses.push(
      (await post(`${sidecar.url}/events`, bodyOf(), { authorization: 'Bearer wrong' })).transport,
    )
    statuses.push((await post(`${sidecar.url}/events`, '', caller)).transport)
    core.script.failing = true
    statuses.push((await post(`${sidecar.url}/events`, bodyOf(), caller)).transport)
    expect(statuses).toEqual([401, 400, 503])
  })
})
