import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { redisUrl } from '../support/run/redis.ts'
import { type Split, startSplit } from '../support/deployment/split.ts'

/** 0.3 USD per call, at 3000 USD for one ETH. */
const priceWei = 100_000_000_000_000

let split: Split
beforeAll(async () => {
  split = await startSplit({ redisUrl: redisUrl() })
})
afterAll(() => split?.stop())

let users = 0
async function newUser() {
  const { rest, app } = split
  const authorization = app.basic
  const externalUserId = `user-${++users}`
  const path = `${app.path}/users/${externalUserId}`
  await rest('POST', `${app.path}/users`, { authorization, json: { externalUserId } })
  const { body } = await rest('POST', `${path}/keys`, { authorization })
  return { path, key: String(body['apiKey']), keyId: String(body['keyId']) }
}

const set = async (path: string, json: object) =>
  expect(
    (await split.rest('PUT', `${path}/limits`, { authorization: split.app.basic, json })).status,
  ).toBe(200)

const call = (key: string, more: object = {}) =>
  split.decide(key, { InitialPricePerUnit: priceWei, ...more })

/** Repeats the decision until its status differs from `status`, for a second at most. */
async function untilOther(status: number, decide: () => ReturnType<typeof call>) {
  const until = performance.now() + 1_000
  for (;;) {
    const body = await decide()
    if (body['status'] !== status || performance.now() > until) return body
    await sleep(20)
  }
}

describe('a limit', () => {
  it('refuses calls within a second, with its reason, until it is removed', async () => {
    const user = await newUser()
    expect((await call(user.key))['status']).toBe(200)
    await set(user.path, { usdMicrosPerDay: '700000' })
    const midnight = new Date()
    midnight.setUTCHours(24, 0, 0, 0)
    expect(await untilOther(200, () => call(user.key))).toMatchObject({
      status: 429,
      code: 'limit_exceeded',
      reason: `limit usd_per_day: the USD of this day are used up, until ${midnight.toISOString()}`,
    })
    await split.rest('DELETE', `${user.path}/limits`, { authorization: split.app.basic })
    expect(await untilOther(429, () => call(user.key))).toMatchObject({ status: 200 })
  })

  it('counts calls per minute and sessions', async () => {
    const user = await newUser()
    await set(user.path, { concurrentSessions: 1 })
    expect(await call(user.key, { StateID: 'abcd0001' })).toMatchObject({ status: 200 })
    expect(await call(user.key, { StateID: 'abcd0002' })).toMatchObject({
      status: 429,
      reason: expect.stringContaining('limit concurrent_sessions: '),
    })
    await set(user.path, { callsPerMinute: 1 })
    expect(await untilOther(200, () => call(user.key))).toMatchObject({
      reason: expect.stringContaining('limit calls_per_minute: '),
    })
  })

  it("on prices reaches the signer with its key's calls, and refuses more expensive ones", async () => {
    const user = await newUser()
    const ceiling = String(priceWei)
    const path = `${user.path}/keys/${user.keyId}`
    await set(path, { maxPrices: [{ type: 'fixed', app: 'acme/echo', maxWei: ceiling }] })
    const { body } = await split.rest('POST', `${user.path}/keys`, {
      authorization: split.app.basic,
    })
    const otherKey = String(body['apiKey'])
    expect(await call(user.key)).toMatchObject({
      status: 200,
      maxPrice: { price: priceWei, currency: 'wei', unit: 'fixed' },
    })
    expect(await call(otherKey)).not.toHaveProperty('maxPrice')
    const dearer = { InitialPricePerUnit: priceWei + 1 }
    expect(await call(user.key, dearer)).toMatchObject({ status: 403, code: 'limit_exceeded' })
    expect(await call(user.key, { ...dearer, App: 'acme/other' })).toMatchObject({ status: 200 })
    expect(await call(otherKey, dearer)).toMatchObject({ status: 200 })
  })
})
