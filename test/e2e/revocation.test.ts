import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { basic } from '../../deploy/cli/client.ts'
import { type RedisProxy, startRedisProxy } from '../fakes/redis-proxy.ts'
import { redisUrl } from '../support/run/redis.ts'
import { type Split, startSplit } from '../support/deployment/split.ts'

let split: Split
let users = 0

interface User {
  readonly name: string
  readonly path: string
  readonly key: string
  readonly keyId: string
  readonly token: string
}

/** Creates a user with a key and a token that work everywhere; the sidecar has both in memory. */
async function newUser(): Promise<User> {
  const { rest, app, authorize } = split
  const authorization = app.basic
  const name = `user-${++users}`
  const path = `${app.path}/users/${name}`
  expect(
    (await rest('POST', `${app.path}/users`, { authorization, json: { externalUserId: name } }))
      .status,
  ).toBe(201)
  const created = (await rest('POST', `${path}/keys`, { authorization })).body
  const minted = (await rest('POST', `${path}/token`, { authorization })).body
  const user = {
    name,
    path,
    key: String(created['apiKey']),
    keyId: String(created['keyId']),
    token: String(minted['access_token']),
  }
  for (const credential of [user.key, user.token]) {
    expect([await authorize(credential), await authorize(credential)]).toEqual([200, 200])
  }
  expect(await atRest(user)).toEqual({ key: 200, token: 200 })
  return user
}

/** Returns the REST statuses for the key and the token. */
async function atRest({ key, token }: User): Promise<{ key: number; token: number }> {
  const { rest, app } = split
  const exchanged = await rest('POST', `${app.path}/auth/api-key/token`, {
    authorization: `Bearer ${key}`,
  })
  const read = await rest('GET', '/api/v1/user/usage/balance', { authorization: `Bearer ${token}` })
  return { key: exchanged.status, token: read.status }
}

/**
 * Returns the milliseconds until the sidecar refuses the credential. The sidecar must answer
 * throughout.
 */
async function refusedAfter(credential: string, atMostMs: number): Promise<number> {
  const began = performance.now()
  for (;;) {
    const status = await split.authorize(credential)
    const passed = performance.now() - began
    if (status === 401) return passed
    expect([200, 403]).toContain(status)
    if (status === 403 || passed > atMostMs) return status === 403 ? passed : Infinity
    await sleep(20)
  }
}

const revokeKey = ({ path, keyId }: User) =>
  split.rest('DELETE', `${path}/keys?keyId=${keyId}`, { authorization: split.app.basic })
const deactivate = ({ name }: User) =>
  split.rest('DELETE', `${split.app.path}/users?externalUserId=${name}`, {
    authorization: split.app.basic,
  })
const revokeToken = ({ token }: User) =>
  split.rest('POST', '/api/v1/oidc/token/revocation', {
    authorization: split.app.basic,
    form: { token },
  })

function endsEverythingInASecond(): void {
  it('ends a key: on REST at once, at the sidecar within a second', async () => {
    const user = await newUser()
    expect((await revokeKey(user)).status).toBe(200)
    expect(await atRest(user)).toEqual({ key: 401, token: 200 })
    expect(await refusedAfter(user.key, 1_000)).toBeLessThan(1_000)
    expect(await split.authorize(user.token)).toBe(200)
  })

  it('ends a user with all credentials', async () => {
    const user = await newUser()
    expect((await deactivate(user)).status).toBe(200)
    expect(await atRest(user)).toEqual({ key: 401, token: 401 })
    const minted = await split.rest('POST', `${user.path}/token`, {
      authorization: split.app.basic,
    })
    expect(minted.status).toBe(404)
    const [key, token] = await Promise.all(
      [user.key, user.token].map((one) => refusedAfter(one, 1_000)),
    )
    expect([key, token].every((passed) => Number(passed) < 1_000)).toBe(true)
  })

  it('ends a token', async () => {
    const user = await newUser()
    expect((await revokeToken(user)).status).toBe(200)
    expect(await atRest(user)).toEqual({ key: 200, token: 401 })
    expect(await refusedAfter(user.token, 1_000)).toBeLessThan(1_000)
    expect(await split.authorize(user.key)).toBe(200)
  })

  it('ends a rotated client secret at every core', async () => {
    const { rest, app, far } = split
    const old = app.basic
    const caller = { clientId: app.clientId, kind: 'm2m', scope: 'users:read' }
    await far.callers.checkCaller(caller, { authorization: old })
    const rotated = await rest('POST', `${app.path}/credentials?target=m2m`, { headers: app.owner })
    expect(rotated.status).toBe(200)
    expect((await rest('GET', `${app.path}/users`, { authorization: old })).status).toBe(401)
    await expect(far.callers.checkCaller(caller, { authorization: old })).rejects.toMatchObject({
      reason: 'CREDENTIAL_INVALID',
    })
    app.basic = basic(app.m2mClientId, String(rotated.body['clientSecret']))
    expect((await rest('GET', `${app.path}/users`, { authorization: app.basic })).status).toBe(200)
  })
}

describe('revocation with one core and no Redis', () => {
  beforeAll(async () => {
    split = await startSplit({ redisUrl: null, settings: { M2M_SECRET_OVERLAP_SECONDS: '0' } })
  })
  afterAll(() => split?.stop())
  endsEverythingInASecond()
})

const boundSeconds = 12
const settings = {
  M2M_SECRET_OVERLAP_SECONDS: '0',
  REVOCATION_BOUND_SECONDS: String(boundSeconds),
  IDENTITY_TTL_SECONDS: '5',
  ACCESS_TTL_SECONDS: '3',
  SIGNING_TTL_SECONDS: '2',
}

describe.each([redisUrl() ?? []].flat())(
  'revocation at one core, for a sidecar of another, with Redis at %s',
  (url) => {
    let redis: RedisProxy
    beforeAll(async () => {
      redis = await startRedisProxy(url)
      split = await startSplit({ redisUrl: redis.url, settings })
    })
    afterAll(async () => {
      await split?.stop()
      redis?.stop()
    })
    endsEverythingInASecond()

    /**
     * Returns whether a revocation again takes effect within a second. Connections recover
     * gradually.
     */
    async function isHeardAgain(): Promise<boolean> {
      for (const end = Date.now() + 15_000; Date.now() < end;) {
        const user = await newUser()
        await revokeKey(user)
        if ((await refusedAfter(user.key, 1_000)) < 1_000) return true
      }
      return false
    }

    it.each([
      ['a key', revokeKey],
      ['a user', deactivate],
    ])('ends %s within a second while Redis is down, and after it is back', async (_what, end) => {
      const [ended, other] = [await newUser(), await newUser()]
      redis.cut()
      const { body } = await end(ended)
      const effectiveBy = Date.parse(String(body['effectiveBy']))
      expect(effectiveBy - Date.now()).toBeLessThanOrEqual(boundSeconds * 1000)
      expect((await atRest(ended)).key).toBe(401)
      // The sidecar's core learns of it from the database.
      expect(await refusedAfter(ended.key, 1_000)).toBeLessThan(1_000)
      expect(Date.now()).toBeLessThan(effectiveBy)
      expect(await split.authorize(other.key)).toBe(200)
      redis.restore()
      expect(await isHeardAgain()).toBe(true)
    })
  },
)
