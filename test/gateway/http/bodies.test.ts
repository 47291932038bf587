import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { clientId } from '../../fakes/gateway-core/identity.ts'
import { type Harness, refusal, startHarness } from '../support.ts'

let harness: Harness
beforeAll(async () => {
  harness = await startHarness()
})
afterAll(() => harness.stop())
beforeEach(() => harness.core.reset())

const app = `/api/v1/apps/${clientId}`

describe('JSON body', () => {
  const url = `${app}/users`
  const good = '{"externalUserId":"a"}'
  const post = (text: string | Uint8Array<ArrayBuffer>, type: string) =>
    harness.ask('POST', url, { text, headers: { 'content-type': type } })

  it.each(['application/json', 'application/json;charset=utf-8', 'Application/JSON ; x=y'])(
    'may be %s',
    async (type) => {
      expect((await post(good, type)).status).toBe(201)
    },
  )

  it.each(['text/plain', 'application/xml', 'application/x-www-form-urlencoded', 'nonsense'])(
    'may not be %s',
    async (type) => {
      expect(refusal(await post(good, type))).toEqual(['media_type_unsupported', 415])
      expect(harness.core.names()).toEqual(['checkCaller'])
    },
  )

  it.each([
    'null',
    '[]',
    '1',
    '"x"',
    'true',
    '{',
    '{"externalUserId":"a"',
    '{"a":1,}',
    '\u00a0',
    'NaN',
    '{"externalUserId":"\\ud800"}',
    '{"externalUserId":"a\\u0000"}',
    '['.repeat(200_000),
  ])('is refused when it is %j', async (text) => {
    expect(refusal(await post(text.slice(0, 400_000), 'application/json'))).toEqual([
      'request_invalid',
      400,
    ])
  })

  it('must be UTF-8', async () => {
    expect((await post(new Uint8Array([0x7b, 0xff, 0x7d]), 'application/json')).status).toBe(400)
  })

  it('has at most 1 MiB', async () => {
    const limit = 1_048_576
    const padded = (length: number) => good + ' '.repeat(length - good.length)
    expect((await post(padded(limit), 'application/json')).status).toBe(201)
    expect(refusal(await post(padded(limit + 1), 'application/json'))).toEqual([
      'body_too_large',
      413,
    ])
  })

  it.each([
    [{}, 'externalUserId is required'],
    [{ externalUserId: ' ' }, 'externalUserId is required'],
    [{ externalUserId: 5 }, 'externalUserId must be a string'],
    [{ externalUserId: 'a', email: 5 }, 'email must be a string'],
    [{ externalUserId: 'a', status: 'gone' }, 'status must be one of: active, inactive'],
    [{ externalUserId: 'a', status: null }, 'status must be a string'],
  ])('of a user %j is refused: %s', async (json, detail) => {
    expect((await harness.ask('POST', url, { json })).body['detail']).toBe(detail)
  })
})

describe('grant', () => {
  const post = (json: unknown, headers = {}) =>
    harness.ask('POST', `${app}/users/ada/allowances`, { json, headers })

  it.each([
    '0',
    '-1',
    '1.5',
    'abc',
    '',
    ' 5',
    '5 ',
    '+5',
    '05',
    '1e3',
    '9'.repeat(31),
    5,
    0,
    true,
    null,
    [],
    {},
  ])('returns 422 for %j', async (amountUsdMicros) => {
    expect(refusal(await post({ amountUsdMicros }))).toEqual(['amount_invalid', 422])
  })

  it('returns 422 without an amount', async () => {
    expect(refusal(await post({}))).toEqual(['amount_invalid', 422])
  })

  it.each([
    [{ source: 'gift' }, 'source must be one of: trial, manual, promo, plan_adjustment'],
    [{ source: '' }, /^source must be one of/],
    [{ source: null }, /^source must be/],
    [{ featureKey: 5 }, 'featureKey must be a string'],
    [{ amount: '5' }, 'unknown field amount'],
    [{ ['x'.repeat(300)]: 1 }, `unknown field ${'x'.repeat(64)}`],
  ])('returns 400 with %j', async (more, detail) => {
    const answer = await post({ amountUsdMicros: '1', ...more })
    expect(refusal(answer)).toEqual(['request_invalid', 400])
    expect(answer.body['detail']).toMatch(detail)
  })

  it.each(['', 'a b', 'x'.repeat(256), 'ä'])(
    'returns 400 with the idempotency key %j',
    async (key) => {
      const answer = await post({ amountUsdMicros: '1' }, { 'idempotency-key': key })
      expect([answer.status, answer.body['detail']]).toEqual([
        400,
        expect.stringMatching(/^idempotency-key must be 1 to 255 visible ASCII characters/),
      ])
    },
  )
})
