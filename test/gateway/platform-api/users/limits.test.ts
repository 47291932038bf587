import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type Real, type RealApp, startReal } from '../../real.ts'
import { asRecord } from '../../support.ts'

let real: Real
let app: RealApp
let keyId: string
beforeAll(async () => {
  real = await startReal()
  app = await real.newApp('acme')
  const created = await real.core.as(app.basic).createKey({
    clientId: app.clientId,
    externalUserId: 'ada',
  })
  keyId = created.keyId
})
afterAll(() => real.stop())

const nothing = {
  usdMicrosPerDay: null,
  usdMicrosPerSession: null,
  callsPerMinute: null,
  concurrentSessions: null,
  maxPrices: [],
}

async function ask(
  method: string,
  path: string,
  { json, authorization = app.basic }: { json?: unknown; authorization?: string } = {},
) {
  const response = await fetch(`${real.url}/api/v1/apps/${app.clientId}${path}`, {
    method,
    headers: {
      authorization,
      ...(json === undefined ? {} : { 'content-type': 'application/json' }),
    },
    ...(json === undefined ? {} : { body: JSON.stringify(json) }),
  })
  return { status: response.status, body: asRecord(JSON.parse(await response.text())) }
}

const ofUser = '/users/ada/limits'
const addresses = [
  ['a user', () => ofUser],
  ['a key', () => `/users/ada/keys/${keyId}/limits`],
] satisfies [string, () => string][]

describe.each(addresses)('limits of %s', (_, path) => {
  it('are empty at first', async () => {
    expect(await ask('GET', path())).toEqual({ status: 200, body: nothing })
  })

  it('are replaced as a whole, repeatedly', async () => {
    const first = {
      usdMicrosPerDay: '2000000',
      usdMicrosPerSession: '1',
      callsPerMinute: 60,
      concurrentSessions: 3,
      maxPrices: [
        { type: 'live', maxWei: '1300' },
        { type: 'fixed', app: 'acme/img2img', maxWei: '9223372036854775807' },
      ],
    }
    const answer = {
      ...first,
      maxPrices: [{ type: 'live', app: null, maxWei: '1300' }, first.maxPrices[1]],
    }
    for (let i = 0; i < 2; i++)
      expect(await ask('PUT', path(), { json: first })).toEqual({ status: 200, body: answer })
    expect(await ask('GET', path())).toEqual({ status: 200, body: answer })
    const second = { ...nothing, usdMicrosPerDay: '1000000000000000' }
    expect(await ask('PUT', path(), { json: { usdMicrosPerDay: '1000000000000000' } })).toEqual({
      status: 200,
      body: second,
    })
    expect(await ask('GET', path())).toEqual({ status: 200, body: second })
  })

  it('are removed, repeatedly', async () => {
    await ask('PUT', path(), { json: { callsPerMinute: 1 } })
    for (let i = 0; i < 2; i++) {
      const { status, body } = await ask('DELETE', path())
      expect([status, body['success']]).toEqual([200, true])
    }
    expect((await ask('GET', path())).body).toEqual(nothing)
  })
})

describe('limits', () => {
  it.each<[string, object, [number, string]]>([
    ['no limits', {}, [400, 'set at least one limit']],
    ['an empty list of prices alone', { maxPrices: [] }, [400, 'set at least one limit']],
    ['an amount of zero', { usdMicrosPerDay: '0' }, [422, 'usdMicrosPerDay']],
    ['a negative amount', { usdMicrosPerSession: '-1' }, [422, 'usdMicrosPerSession']],
    ['an amount that is a number', { usdMicrosPerDay: 1 }, [422, 'usdMicrosPerDay']],
    ['an amount that is too large', { usdMicrosPerDay: '1000000000000001' }, [422, 'at most']],
    ['an amount with a fraction', { usdMicrosPerDay: '1.5' }, [422, 'usdMicrosPerDay']],
    [
      'zero calls',
      { callsPerMinute: 0 },
      [400, 'callsPerMinute must be an integer from 1 to 1000000'],
    ],
    ['too many calls', { callsPerMinute: 1_000_001 }, [400, 'callsPerMinute must be']],
    ['a fraction of a call', { callsPerMinute: 1.5 }, [400, 'callsPerMinute must be']],
    ['calls as text', { callsPerMinute: '1' }, [400, 'callsPerMinute must be']],
    ['too many sessions', { concurrentSessions: 10_001 }, [400, 'concurrentSessions must be']],
    ['null', { callsPerMinute: null }, [400, 'callsPerMinute must be']],
    ['an unknown member', { callsPerHour: 1 }, [400, 'unknown field callsPerHour']],
    [
      'an unknown type',
      { maxPrices: [{ type: 'odd', maxWei: '1' }] },
      [400, 'type must be one of'],
    ],
    ['no price', { maxPrices: [{ type: 'live' }] }, [400, 'maxWei is required']],
    ['a price of zero', { maxPrices: [{ type: 'live', maxWei: '0' }] }, [400, 'maxWei']],
    [
      'a price above 64 bits',
      { maxPrices: [{ type: 'live', maxWei: '9223372036854775808' }] },
      [400, 'maxWei'],
    ],
    [
      'an unknown member of a price',
      { maxPrices: [{ type: 'live', maxWei: '1', model: 'x' }] },
      [400, 'unknown field model'],
    ],
    [
      'a long application',
      { maxPrices: [{ type: 'live', maxWei: '1', app: 'a'.repeat(201) }] },
      [400, 'at most 200'],
    ],
    [
      'an application with a control character',
      { maxPrices: [{ type: 'live', maxWei: '1', app: 'a\u0007' }] },
      [400, 'maxPrices/0/app contains a control character (U+0007)'],
    ],
    [
      'a price that is named twice',
      { maxPrices: ['1', '2'].map((maxWei) => ({ type: 'live', maxWei })) },
      [400, 'each type and app once'],
    ],
    [
      'too many prices',
      {
        maxPrices: Array.from({ length: 51 }, (_, i) => ({
          type: 'live',
          app: `a${i}`,
          maxWei: '1',
        })),
      },
      [400, 'at most 50'],
    ],
  ])('refuse %s', async (_, json, [status, words]) => {
    const answer = await ask('PUT', ofUser, { json })
    expect([answer.status, answer.body['code']]).toEqual([
      status,
      status === 422 ? 'amount_invalid' : 'request_invalid',
    ])
    expect(answer.body['detail']).toContain(words)
    expect((await ask('GET', ofUser)).body).toEqual(nothing)
  })

  it('exist only for users and keys of the app', async () => {
    const other = await real.newApp('other')
    const theirs = await real.core.as(other.basic).createKey({
      clientId: other.clientId,
      externalUserId: 'ada',
    })
    await real.core.as(app.basic).upsertUser({ clientId: app.clientId, externalUserId: 'bob' })
    const paths = [
      '/users/nobody/limits',
      `/users/nobody/keys/${keyId}/limits`,
      `/users/bob/keys/${keyId}/limits`,
      `/users/ada/keys/${theirs.keyId}/limits`,
      '/users/ada/keys/k/limits',
    ]
    for (const path of paths) {
      for (const [method, json] of [['GET'], ['PUT', { callsPerMinute: 1 }], ['DELETE']] as const)
        expect([path, method, (await ask(method, path, { json })).status]).toEqual([
          path,
          method,
          404,
        ])
    }
    for (const [method, json] of [['GET'], ['PUT', { callsPerMinute: 1 }], ['DELETE']] as const)
      expect((await ask(method, ofUser, { json, authorization: other.basic })).status).toBe(404)
  })

  it('are audited when set and removed', async () => {
    const path = `/users/ada/keys/${keyId}/limits`
    const since = real.core.clock.now()
    real.core.clock.advance(1)
    const json = { callsPerMinute: 5, maxPrices: [{ type: 'live', maxWei: '1300' }] }
    await ask('PUT', path, { json })
    real.core.clock.advance(1)
    for (let i = 0; i < 2; i++) await ask('DELETE', path)
    const { rows } = await real.core.sql.query(
      'select actor, action, details from audit_log where created_at > $1 order by created_at',
      [since],
    )
    const details = { keyId, callsPerMinute: 5, usdMicrosPerDay: null, maxPrices: 'live:=1300' }
    expect(rows).toMatchObject([
      { actor: app.m2mClientId, action: 'limits_set', details },
      { actor: app.m2mClientId, action: 'limits_cleared', details: { keyId } },
    ])
  })
})
