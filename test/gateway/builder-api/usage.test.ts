import { randomBytes } from 'node:crypto'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { envelope } from '../../core/metering/harness.ts'
import { registerSecret } from '../../support/run/secrecy.ts'
import { type Builder, type Tenant, startBuilder, verdictOf } from './support.ts'

let builder: Builder
let mine: Tenant
let theirs: Tenant
beforeAll(async () => {
  builder = await startBuilder()
  mine = await builder.newTenant('mine')
  theirs = await builder.newTenant('theirs')
  const at = builder.real.core.clock.now().getTime()
  const ticket = (data: object, minutes = 0) =>
    envelope({
      auth_id: `${mine.clientId}:ada`,
      current_time: new Date(at - minutes * 60_000).toISOString(),
      ...data,
    })
  await builder.real.core.as().ingestEvents({
    envelopes: [
      // 0.0003, 0.0003 and 0.0006 micros of a dollar, and a ticket of another user.
      ticket({ sequence_number: 0, computed_fee: '100000', pipeline: 'live', model_id: 'a' }, 60),
      ticket({ sequence_number: 1, computed_fee: '100000', pipeline: 'live', model_id: 'b' }),
      ticket({
        session_id: 'other',
        manifest_id: 'm-2',
        computed_fee: '2000000000000000001',
        pipeline: 'text',
        billable_secs: 1.5,
      }),
      ticket({ auth_id: `${mine.clientId}:bob`, session_id: 'bobs', computed_fee: '777' }),
    ],
  })
})
afterAll(() => builder.stop())

const usageOf = (clientId: string): string => `/api/v1/apps/${clientId}/usage`
const unknownApp = (): string => `app_${randomBytes(12).toString('hex')}`
const self = () => ({ client_id: mine.clientId, external_user_id: 'ada' })

async function newKey(externalUserId: string): Promise<string> {
  const { body } = await builder.ask('POST', `/api/v1/apps/${mine.clientId}/users`, {
    authorization: mine.tenantBasic,
    json: { externalUserId, issueApiKey: true },
  })
  return `Bearer ${registerSecret(String(body['apiKey']))}`
}

async function newJwt(externalUserId: string): Promise<string> {
  const m2m = builder.real.core.as(mine.basic)
  await m2m.upsertUser({ clientId: mine.clientId, externalUserId })
  const token = await m2m.mintUserToken({ clientId: mine.clientId, externalUserId })
  return `Bearer ${registerSecret(token.accessToken)}`
}

/** The same rules apply everywhere, except that only the builder port accepts keys. */
const doors = [
  { door: 'the builder port', at: 'ask', newCredential: newKey },
  { door: 'the edge', at: 'askEdge', newCredential: newJwt },
  { door: 'its MCP tool', at: 'askMcp', newCredential: newJwt },
] as const

/**
 * Each row has a fault, plus the faults of all later rows; the first one determines the refusal.
 */
const faults: { fault: string; query: string; detail: string }[] = [
  { fault: 'no meter', query: '', detail: 'meter is required' },
  {
    fault: 'a meter that is none',
    query: 'meter=network_fee_usd_by_manifest',
    detail: 'meter is not a catalog meter',
  },
  {
    fault: 'an id with a colon',
    query: 'meter=fee_wei&externalUserId=app:ada',
    detail: 'externalUserId must not contain ":"',
  },
  {
    fault: "another's id",
    query: 'meter=fee_wei&externalUserId=bob',
    detail: 'externalUserId must match the authenticated actor',
  },
  {
    fault: 'an empty id',
    query: 'meter=fee_wei&externalUserId=',
    detail: 'externalUserId must match the authenticated actor',
  },
  {
    fault: 'a dimension of no meter',
    query: 'meter=fee_wei&groupBy=pipeline&groupBy=gateway',
    detail: 'groupBy "gateway" is not a dimension of fee_wei',
  },
  {
    fault: 'a dimension of other meters',
    query: 'meter=signed_ticket_count&groupBy=manifest_id',
    detail: 'groupBy "manifest_id" is not a dimension of signed_ticket_count',
  },
  { fault: 'a day as from', query: 'meter=fee_wei&from=2026-03-10', detail: 'from must be' },
  {
    fault: 'a to that is no instant',
    query: 'meter=fee_wei&to=yesterday',
    detail: 'to must be an instant of RFC 3339',
  },
  {
    fault: 'no seconds',
    query: 'meter=fee_wei&from=2026-03-10T12:00Z',
    detail: 'from must be an instant of RFC 3339',
  },
  {
    fault: 'the hour 24',
    query: 'meter=fee_wei&from=2026-03-10T24:00:00Z',
    detail: 'from must be an instant of RFC 3339',
  },
  {
    fault: 'a plus that an address reads as a space',
    query: 'meter=fee_wei&from=2026-03-10T12:00:00+01:00',
    detail: 'a + is %2B in an address',
  },
  {
    fault: 'an end before the start',
    query: 'meter=fee_wei&from=2026-03-10T12:00:01Z&to=2026-03-10T12:00:00Z',
    detail: 'to must not be before from',
  },
]

/** One fault of each kind after the meter, in the order of the checks. */
const allFaults = [
  'externalUserId=bob',
  'groupBy=gateway',
  'from=yesterday',
  'to=tomorrow',
] as const

describe.each(doors)('usage at $door', ({ at, newCredential }) => {
  let credential: string
  beforeAll(async () => {
    credential = await newCredential('ada')
  })

  const ask = (
    query: string,
    authorization: string | null = credential,
    clientId = mine.clientId,
  ) => builder[at]('GET', `${usageOf(clientId)}${query}`, { authorization })

  const rowsOf = async (query: string) => {
    const { status, body } = await ask(query)
    expect(status).toBe(200)
    return Array.isArray(body['rows']) ? body['rows'] : []
  }

  describe('meter', () => {
    it.each([
      ['network_fee_usd_micros', '6000000001'],
      ['network_fee_usd_micros_by_manifest', '6000000001'],
      ['billable_usd_micros', '6000000001'],
      ['signed_ticket_count', '3'],
      ['fee_wei', '2000000000000200001'],
      ['billable_secs', '21.5'],
    ])('%s has one sum for the calling user', async (meter, valueExact) => {
      const { body } = await ask(`?meter=${meter}`, mine.userToken)
      const subject = `${mine.clientId}:ada`
      expect(body).toEqual({
        clientId: mine.clientId,
        meter,
        actor: 'ada',
        subjects: [subject],
        rows: [
          {
            subject,
            windowStart: expect.any(String),
            windowEnd: builder.real.core.clock.now().toISOString(),
            value: Number(valueExact),
            valueExact,
            groupBy: self(),
          },
        ],
      })
    })

    it('groups by each named dimension, ignoring empty ones and subject', async () => {
      const rows = await rowsOf(
        '?meter=signed_ticket_count&groupBy=pipeline&groupBy=model_id&groupBy=&groupBy=subject',
      )
      expect(
        rows.map(({ groupBy, valueExact }) => [
          groupBy['pipeline'],
          groupBy['model_id'],
          valueExact,
        ]),
      ).toEqual([
        ['text', 'unknown', '1'],
        ['live', 'a', '1'],
        ['live', 'b', '1'],
      ])
      const one = await rowsOf('?meter=signed_ticket_count&groupBy=pipeline')
      expect(one.map(({ groupBy }) => groupBy)).toEqual([
        { ...self(), pipeline: 'text' },
        { ...self(), pipeline: 'live' },
      ])
    })

    it('groups by manifest where the catalogue allows it', async () => {
      const rows = await rowsOf('?meter=fee_wei&groupBy=manifest_id')
      expect(rows.map(({ groupBy, valueExact }) => [groupBy['manifest_id'], valueExact])).toEqual([
        ['m-2', '2000000000000000001'],
        ['sess-01J7', '200000'],
      ])
    })

    it('returns the same total in micros for any grouping', async () => {
      const rows = await rowsOf('?meter=network_fee_usd_micros&groupBy=model_id&groupBy=pipeline')
      expect(rows.reduce((sum, { value }) => sum + Number(value), 0)).toBe(6_000_000_001)
    })

    it('includes the start of its window and excludes its end', async () => {
      const now = builder.real.core.clock.now()
      const at = (ms: number) => encodeURIComponent(new Date(now.getTime() + ms).toISOString())
      const count = async (from: number, to: number) =>
        (await rowsOf(`?meter=signed_ticket_count&from=${at(from)}&to=${at(to)}`))[0]?.valueExact
      expect(await count(0, 1)).toBe('2')
      expect(await count(-1, 0)).toBeUndefined()
      expect(await count(-3_600_000, 0)).toBe('1')
      expect(await count(-3_600_000, 1)).toBe('3')
      const [row] = await rowsOf(`?meter=fee_wei&from=${at(-9_000_000)}&to=${at(1)}`)
      expect([row?.windowStart, row?.windowEnd]).toEqual(
        [-9_000_000, 1].map((ms) => new Date(now.getTime() + ms).toISOString()),
      )
      const offset = await ask(`?meter=fee_wei&from=2026-03-10T14:00:00%2B02:00`)
      expect(offset.status).toBe(200)
      expect((await ask('?meter=fee_wei&from=2026-03-10t14:00:00.5z')).status).toBe(200)
    })

    it('returns no rows without usage', async () => {
      expect(await rowsOf('?meter=fee_wei&to=2020-01-01T00:00:00Z')).toEqual([])
    })

    it("accepts the calling user's own id", async () => {
      expect(await rowsOf('?meter=fee_wei&externalUserId=ada')).toHaveLength(1)
    })
  })

  describe('order of refusals', () => {
    it('starts with a missing client id in the path', async () => {
      const answer = await builder[at]('GET', '/api/v1/apps//usage', { authorization: null })
      expect(verdictOf(answer)).toBe('400 request_invalid')
    })

    it.each([
      ['nobody', () => null],
      ['a tenant', () => mine.tenantBasic],
      ['an M2M client', () => mine.basic],
      ['a machine token', () => mine.machineToken],
      ['a key of the platform API', () => mine.apiKey],
      ['a malformed token', () => 'Bearer a.b.c'],
      ['a malformed sk_ key', () => `Bearer sk_${'x'.repeat(49)}`],
    ])('returns 401 for any app and query: %s', async (_who, authorization) => {
      for (const clientId of [mine.clientId, theirs.clientId, unknownApp(), mine.m2mClientId])
        for (const query of ['', '?meter=fee_wei', '?x=1&from=yesterday']) {
          const answer = await ask(query, authorization(), clientId)
          expect(answer.status).toBe(401)
          expect(answer.headers.get('www-authenticate')).toMatch(/^Bearer /)
        }
    })

    it('then returns 404 for another app, as for an unknown one', async () => {
      for (const authorization of [credential, mine.userToken])
        for (const clientId of [theirs.clientId, unknownApp(), mine.m2mClientId])
          for (const query of ['?meter=fee_wei', '?x=1', '?from=yesterday'])
            expect(verdictOf(await ask(query, authorization, clientId))).toBe('404 not_found')
    })

    it.each(faults)('then returns 400 for $fault', async ({ query, detail }) => {
      const answer = await ask(`?${query}`)
      expect(verdictOf(answer)).toBe('400 request_invalid')
      expect(answer.body['detail']).toContain(detail)
    })

    it.each([
      { name: 'meter', first: 'meter=x', detail: 'meter is not a catalog meter', from: 0 },
      { name: 'externalUserId', first: 'meter=fee_wei', detail: 'externalUserId must', from: 0 },
      { name: 'groupBy', first: 'meter=fee_wei', detail: 'groupBy "gateway"', from: 1 },
      { name: 'from', first: 'meter=fee_wei', detail: 'from must be', from: 2 },
      { name: 'to', first: 'meter=fee_wei', detail: 'to must be', from: 3 },
    ])('checks $name before later faults', async ({ first, detail, from }) => {
      const query = [first, ...allFaults.slice(from)].join('&')
      expect((await ask(`?${query}`)).body['detail']).toContain(detail)
    })

    it('returns 400 for unknown and for repeated parameters', async () => {
      const unknown = await ask('?meter=fee_wei&user=bob')
      expect(verdictOf(unknown)).toBe('400 request_invalid')
      expect(unknown.body['detail']).toContain(
        'this route accepts: externalUserId, from, groupBy, meter, to',
      )
      expect(verdictOf(await ask('?meter=fee_wei&meter=fee_wei'))).toBe('400 request_invalid')
      const many = '&groupBy=pipeline'.repeat(101)
      expect(verdictOf(await ask(`?meter=fee_wei${many}`))).toBe('400 request_invalid')
      expect(verdictOf(await ask(`?meter=fee_wei${many}`, null))).toBe('401 token_invalid')
    })
  })

  describe('user with a colon in the id', () => {
    it('may pass its own id', async () => {
      const authorization = await newCredential('org:7')
      const answer = await ask('?meter=fee_wei&externalUserId=org:7', authorization)
      expect([answer.status, answer.body['actor']]).toEqual([200, 'org:7'])
    })
  })
})

describe('without a metering backend', () => {
  it('returns 503 after checking the app and before the query', async () => {
    const bare = await startBuilder({ METERING_BACKEND: 'none' })
    try {
      const { clientId, userToken } = await bare.newTenant('bare')
      for (const { at } of doors) {
        const get = async (id: string, query: string, authorization: string | null = userToken) =>
          verdictOf(await bare[at]('GET', `${usageOf(id)}${query}`, { authorization }))
        const refused = '503 metering_not_configured'
        for (const query of ['?meter=fee_wei', '', '?x=1', '?meter=x&from=y', '?meter=%ff'])
          expect([at, query, await get(clientId, query)]).toEqual([at, query, refused])
        expect(await get(unknownApp(), '?x=1')).toBe('404 not_found')
        expect(await get(clientId, '?x=1', null)).toBe('401 token_invalid')
      }
    } finally {
      await bare.stop()
    }
  }, 60_000)
})

describe('with a metering backend that does not answer', () => {
  it('returns 502 after checking the query, and is not called for an invalid one', async () => {
    // The port is closed, so a call would answer 502.
    const away = await startBuilder({ OPENMETER_URL: 'http://127.0.0.1:9' })
    try {
      const { clientId, userToken } = await away.newTenant('away')
      for (const { at } of doors) {
        const get = async (query: string, authorization: string | null = userToken) =>
          verdictOf(await away[at]('GET', `${usageOf(clientId)}${query}`, { authorization }))
        for (const query of ['', '?meter=x', '?meter=fee_wei&from=y', '?x=1'])
          expect([at, query, await get(query)]).toEqual([at, query, '400 request_invalid'])
        expect(await get('?meter=fee_wei', null)).toBe('401 token_invalid')
        expect(await get('?meter=fee_wei')).toBe('502 metering_failed')
      }
    } finally {
      await away.stop()
    }
  }, 60_000)
})
