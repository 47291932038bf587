import { randomUUID } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import { credentials } from '@grpc/grpc-js'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { unary } from '../../../../core/lib/grpc.ts'
import { serviceTokenHeader } from '../../../../proto/headers.ts'
import { MeteringServiceClient } from '../../../../proto/gen/ts-proto/tollgate/metering/v1/metering.ts'
import { begin, serviceToken, until } from '../../../core/support.ts'
import { eventData } from '../../../core/metering/harness.ts'
import { type ServerSent, readEvents } from '../../../support/web/sse.ts'
import { type Real, type RealApp, startReal } from '../../real.ts'
import { answerValidators, asRecord } from '../../support.ts'

let real: Real
let app: RealApp
let other: RealApp
let metering: MeteringServiceClient
let validatorOf: ReturnType<typeof answerValidators>
beforeAll(async () => {
  real = await startReal()
  const document = await fetch(`${real.url}/api/v1/openapi.json`)
  validatorOf = answerValidators(asRecord(await document.json()))
  app = await real.newApp('streams')
  other = await real.newApp('others')
  metering = new MeteringServiceClient(real.core.core.target, credentials.createInsecure())
})
afterAll(async () => {
  metering.close()
  await real.stop()
})

const path = (of: RealApp = app): string => `/api/v1/builder/apps/${of.clientId}/usage/stream`
const own = '/api/v1/user/usage/stream'

let tickets = 0
async function ingest(of: RealApp, users: readonly string[]): Promise<void> {
  const envelopes = users.map((user) =>
    Buffer.from(
      JSON.stringify({
        id: randomUUID(),
        type: 'create_signed_ticket',
        timestamp: '1',
        gateway: '',
        data: {
          ...eventData,
          auth_id: `${of.clientId}:${user}`,
          current_time: begin.toISOString(),
          computed_fee: '1000000007',
          sequence_number: tickets++,
        },
      }),
    ),
  )
  await unary(metering.ingestEvents.bind(metering))(
    { envelopes },
    { deadlineMs: 10_000, headers: { [serviceTokenHeader]: serviceToken } },
  )
}

interface Open {
  readonly events: ServerSent[]
  readonly ended: Promise<void>
  close(): void
}

const charges = (events: readonly ServerSent[]) =>
  events.flatMap(({ event, data }) => (event === 'charge' && data ? [data] : []))
const keyOf = (data: Record<string, unknown>): string =>
  `${String(data['chargeId'])} ${String(data['endUserId'])}`

/** Checks every event of every stream of these tests against the document. */
function expectTyped(url: string, { id, event, data }: ServerSent): void {
  const path = url.replace(/app_[0-9a-f]+/, '{clientId}').replace(/\?.*/, '')
  const validate = validatorOf(`GET ${path} 200 text/event-stream`)
  const typed = { ...(id && { id }), ...(event && { event }), ...(data && { data }) }
  expect([typed, validate?.(typed)]).toEqual([typed, true])
}

async function open(url: string, headers: Record<string, string>): Promise<Open> {
  const stop = new AbortController()
  const response = await fetch(real.url + url, { headers, signal: stop.signal })
  expect([response.status, response.headers.get('content-type')]).toEqual([
    200,
    'text/event-stream; charset=utf-8',
  ])
  expect(response.headers.get('cache-control')).toBe('no-store')
  const events: ServerSent[] = []
  const ended = (async () => {
    for await (const event of readEvents(response, stop.signal)) {
      expectTyped(url, event)
      events.push(event)
    }
  })()
  await until(() => events.length > 0)
  return { events, ended, close: () => stop.abort() }
}

describe('live spend', () => {
  it('reports every charge with the balance after it, to the app and to the user', async () => {
    const all = await open(path(), { authorization: app.basic })
    const ada = await open(own, { authorization: app.userToken })
    await ingest(app, ['ada', 'ada', 'bob'])
    await ingest(other, ['ada'])
    await until(() => charges(all.events).length === 2 && charges(ada.events).length === 1)
    const expected = {
      externalUserId: 'ada',
      costUsdMicros: '7',
      costUsdExact: '0.000006000000042',
      balanceUsdMicros: '4999993',
      balanceUsdExact: '4.999993999999958',
      overageUsdExact: '0',
      ticketCount: 2,
      time: begin.toISOString(),
    }
    expect(charges(ada.events)).toMatchObject([expected])
    expect(charges(all.events)).toEqual(
      expect.arrayContaining([
        expect.objectContaining(expected),
        expect.objectContaining({ externalUserId: 'bob', ticketCount: 1 }),
      ]),
    )
    all.close()
    ada.close()
  })

  it('misses nothing when a client reconnects repeatedly during ingest', async () => {
    const users = Array.from({ length: 7 }, (_, i) => `user-${i}`)
    const seen: string[] = []
    let id = ''
    const done = new AbortController()
    const client = (async () => {
      while (!done.signal.aborted) {
        const stream = await open(path(), {
          authorization: app.basic,
          ...(id && { 'last-event-id': id }),
        })
        await sleep(100 + Math.random() * 900)
        stream.close()
        await stream.ended
        seen.push(...charges(stream.events).map(keyOf))
        id = stream.events.at(-1)?.id ?? id
      }
    })()
    // The hard case is a transaction that commits long after later ones, while others commit.
    await sleep(300)
    for (let i = 0; i < 30; i++) {
      await Promise.all([
        ingest(
          app,
          users.filter((_, n) => (i + n) % 3 !== 0),
        ),
        ingest(app, users.slice(0, 3)),
        ingest(other, users),
      ])
      await sleep(100)
    }
    await sleep(1_500)
    done.abort()
    await client
    const last = await open(path(), { authorization: app.basic, 'last-event-id': id })
    await sleep(1_500)
    last.close()
    seen.push(...charges(last.events).map(keyOf))
    const { rows } = await real.core.sql.query<{ key: string }>(
      `
      select e.cause_id || ' ' || e.user_id as key
      from ledger_entries e
      join clients c using (app_id)
      join end_users u on u.app_id = e.app_id and u.id = e.user_id
      where c.client_id = $1 and e.kind = 'charge' and u.external_user_id like 'user-%'`,
      [app.clientId],
    )
    expect(rows.length).toBeGreaterThan(200)
    expect([...new Set(seen)].toSorted()).toEqual(rows.map(({ key }) => key).toSorted())
    // Each id is an exact position, so nothing arrives twice.
    expect(seen.length).toBe(rows.length)
  }, 60_000)

  it('starts at the present, with a note, when the id is more than a day old', async () => {
    const first = await open(path(), { authorization: app.basic })
    first.close()
    const id = first.events[0]?.id ?? ''
    real.core.clock.advance(25 * 3_600_000)
    const again = await open(path(), { authorization: app.basic, 'last-event-id': id })
    expect(again.events[0]).toMatchObject({ event: 'reset', data: {} })
    again.close()
    real.core.clock.set(begin)
  })

  it('is refused like any other route, before it starts', async () => {
    const first = await open(path(other), { authorization: other.basic })
    first.close()
    const foreign = first.events[0]?.id ?? ''
    const status = async (url: string, headers: Record<string, string>) =>
      (await fetch(real.url + url, { headers })).status
    expect(await status(path(), {})).toBe(404)
    expect(await status(path(), { authorization: app.machineToken })).toBe(404)
    expect(await status(path(), { authorization: other.basic })).toBe(404)
    expect(await status(path(), { authorization: app.basic, 'last-event-id': 'nonsense' })).toBe(
      400,
    )
    expect(await status(path(), { authorization: app.basic, 'last-event-id': foreign })).toBe(400)
    expect(await status(`${path()}?userId=nobody`, { authorization: app.basic })).toBe(404)
    expect(await status(own, { authorization: app.basic })).toBe(401)
    expect(await status(`${own}?userId=a`, { authorization: app.userToken })).toBe(400)
    expect(
      (await fetch(real.url + path(), { method: 'HEAD', headers: { authorization: app.basic } }))
        .status,
    ).toBe(405)
  })

  it('is limited per user and per app', async () => {
    const streams = await Promise.all(
      Array.from({ length: 5 }, () => open(own, { authorization: other.userToken })),
    )
    const sixth = await fetch(real.url + own, { headers: { authorization: other.userToken } })
    expect([sixth.status, sixth.headers.get('retry-after')]).toEqual([429, '10'])
    for (const stream of streams) stream.close()
    await until(async () => {
      const response = await fetch(real.url + own, { headers: { authorization: other.userToken } })
      await response.body?.cancel()
      return response.status === 200
    })
  })

  it('filters by user, and ends for a deactivated user', async () => {
    const narrowed = await open(`${path()}?userId=ada`, { authorization: app.basic })
    const stream = await open(own, { authorization: app.userToken })
    await ingest(app, ['bob', 'ada'])
    await until(() => charges(narrowed.events).length > 0)
    expect(charges(narrowed.events).map((data) => data['externalUserId'])).toEqual(['ada'])
    await real.core.as(app.basic).deactivateUser({ clientId: app.clientId, externalUserId: 'ada' })
    await stream.ended
    expect(stream.events.at(-1)).toMatchObject({ event: 'end', data: { code: 'token_invalid' } })
    narrowed.close()
  })
})

describe('stopping gateway', () => {
  it('ends its streams immediately', async () => {
    const leaving = await startReal()
    const created = await leaving.newApp('leaving')
    const response = await fetch(leaving.url + path(created), {
      headers: { authorization: created.basic },
    })
    const events: ServerSent[] = []
    const ended = (async () => {
      for await (const event of readEvents(response)) events.push(event)
    })()
    await until(() => events.length > 0)
    const began = Date.now()
    await leaving.stop()
    await ended
    expect(Date.now() - began).toBeLessThan(5_000)
    expect(events[0]).toMatchObject({ event: null, data: null })
  })
})
