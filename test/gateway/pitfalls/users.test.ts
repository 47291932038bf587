import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import {
  accessToken,
  claimsOf,
  deviceGrant,
  exchangeGrant,
  sessionOf,
} from '../platform-api/oidc/support.ts'
import { type Pitfalls, startPitfalls } from './support.ts'

let p: Pitfalls
beforeAll(async () => {
  p = await startPitfalls()
})
afterAll(() => p.stop())

const bearer = (token: unknown) => ({ headers: { authorization: `Bearer ${String(token)}` } })
const exchange = { grant_type: exchangeGrant, subject_token_type: accessToken }

/** Numbered mistakes of a toy implementation. */
describe('users', () => {
  it('17: ends all credentials of a deactivated user, and does not revive a key on reactivation', async () => {
    const { name, at, key, token } = await p.newUser()
    const session = (await p.token({ ...exchange, subject_token: token }, p.app.basic)).body[
      'access_token'
    ]
    await p.ask('DELETE', `${p.path}/users?externalUserId=${name}`)
    const dead = async () => ({
      key: (await p.ask('POST', `${p.path}/auth/api-key/token`, bearer(key))).status,
      validate: (await p.ask('GET', '/api/v1/auth/validate', bearer(key))).status,
      token: (await p.ask('GET', '/api/v1/user/usage/balance', bearer(token))).status,
      exchange: (await p.token({ ...exchange, subject_token: token }, p.app.basic)).error,
      session: await p.real.core
        .as()
        .verifySignerSession({ token: String(session) })
        .then(
          () => 'lives',
          () => 'ended',
        ),
    })
    const ended = {
      key: 401,
      validate: 401,
      token: 401,
      exchange: 'invalid_grant',
      session: 'ended',
    }
    expect(await dead()).toEqual(ended)
    expect((await p.ask('POST', `${at}/token`)).status).toBe(404)
    const mint = {
      grant_type: 'client_credentials',
      scope: 'sign:mint_user_token',
      external_user_id: name,
    }
    expect((await p.token(mint, p.app.basic)).status).toBeGreaterThanOrEqual(400)
    await p.ask('PUT', `${p.path}/users`, { json: { externalUserId: name, status: 'active' } })
    expect(await dead()).toEqual(ended)
  })

  it('18: an upsert without status does not reactivate, and without an e-mail does not remove it', async () => {
    const { name } = await p.newUser()
    await p.ask('DELETE', `${p.path}/users?externalUserId=${name}`)
    const { body } = await p.ask('POST', `${p.path}/users`, { json: { externalUserId: name } })
    expect(body).toMatchObject({ status: 'inactive', email: `${name}@example.com` })
  })

  it('19: creates one user for concurrent requests, with one 201 and otherwise 200', async () => {
    const json = { externalUserId: 'at-once' }
    const statuses = await Promise.all(
      Array.from(
        { length: 20 },
        async () => (await p.ask('POST', `${p.path}/users`, { json })).status,
      ),
    )
    expect(statuses.toSorted()).toEqual([...Array.from({ length: 19 }, () => 200), 201])
  })

  it('20: survives null, lists, numbers and bad %-escapes, and addresses ids with %, /, : and +', async () => {
    for (const text of ['null', '[]', '7', '"x"', '{'])
      expect((await p.ask('POST', `${p.path}/users`, { text })).status).toBe(400)
    expect((await p.ask('POST', `${p.path}/users/%zz/keys`)).status).toBe(400)
    for (const externalUserId of ['100%', 'a/b', 'a:b', 'a+b', '%2F']) {
      expect((await p.ask('POST', `${p.path}/users`, { json: { externalUserId } })).status).toBe(
        201,
      )
      const minted = await p.ask(
        'POST',
        `${p.path}/users/${encodeURIComponent(externalUserId)}/token`,
      )
      expect(claimsOf(minted.body['access_token'])['external_user_id']).toBe(externalUserId)
    }
  })

  it('21: rejects external ids of another wallet: owner:, user:, or a control character', async () => {
    for (const externalUserId of [
      'owner:1',
      'user:1',
      'a\u0000b',
      'a\nb',
      '',
      ' ',
      'é'.repeat(101),
    ]) {
      expect((await p.ask('POST', `${p.path}/users`, { json: { externalUserId } })).status).toBe(
        400,
      )
    }
  })
})

describe('device flow', () => {
  const start = async () =>
    (
      await p.ask('POST', '/api/v1/oidc/device/auth', {
        headers: {},
        form: { client_id: p.app.clientId },
      })
    ).body
  const poll = (code: unknown) =>
    p.token({ grant_type: deviceGrant, device_code: String(code), client_id: p.app.clientId })

  it('22: slows down fast polling, redeems a code once, and reads user codes in any case, with or without dash', async () => {
    const { device_code: code, user_code: userCode } = await start()
    expect([(await poll(code)).error, (await poll(code)).error]).toEqual([
      'authorization_pending',
      'slow_down',
    ])
    await p.devices.decide(
      sessionOf(p.app),
      String(userCode).toLowerCase().replace('-', ''),
      'approve',
    )
    expect([(await poll(code)).status, (await poll(code)).error]).toEqual([200, 'invalid_grant'])
    await expect(
      p.devices.decide(sessionOf(p.app), String(userCode), 'deny'),
    ).rejects.toMatchObject({
      reason: expect.stringMatching(/NOT_FOUND|CONFLICT|GRANT_INVALID/),
    })
  })

  it('22: distinguishes an expired code from an unknown one', async () => {
    const { device_code: code } = await start()
    await p.real.core.sql.query("update device_codes set expires_at = now() - interval '400 days'")
    expect([(await poll(code)).error, (await poll('svc_dc_unknown')).error]).toEqual([
      'expired_token',
      'invalid_grant',
    ])
  })

  it('23: requires a click even for a prefilled code', async () => {
    const { device_code: code, user_code: userCode } = await start()
    const page = await p.ask(
      'GET',
      `/oidc/device?user_code=${String(userCode)}&client_id=${p.app.clientId}`,
      { headers: p.app.session },
    )
    expect([page.status, (await poll(code)).error]).toEqual([200, 'authorization_pending'])
    expect(page.text).toMatch(/<button[^>]*value="approve"|<button/)
  })
})

describe('redirects', () => {
  it('24: redirects only to an exactly registered redirect_uri, and accepts PKCE only with S256', async () => {
    await p.ask('PUT', p.path, {
      headers: p.app.session,
      json: { redirectUris: ['https://app.example/callback'] },
    })
    const request = (more: Record<string, string>) =>
      p.ask(
        'GET',
        `/api/v1/oidc/auth?${new URLSearchParams({
          client_id: p.app.clientId,
          response_type: 'code',
          scope: 'openid',
          redirect_uri: 'https://app.example/callback',
          state: 's',
          code_challenge: 'x'.repeat(43),
          code_challenge_method: 'S256',
          ...more,
        }).toString()}`,
        { headers: {} },
      )
    for (const redirect_uri of [
      'https://app.example/callback/',
      'https://app.example/callback?x=1',
      'https://app.example.evil.example/callback',
      'https://evil.example',
    ]) {
      const refused = await request({ redirect_uri })
      expect([refused.status, refused.headers.get('location')]).toEqual([400, null])
    }
    for (const code_challenge_method of ['plain', 's256']) {
      const refused = await request({ code_challenge_method })
      expect(new URL(refused.headers.get('location') ?? 'x:').searchParams.get('error')).toBe(
        'invalid_request',
      )
    }
  })
})

describe('signer sessions and versions', () => {
  it('29: reports an exhausted balance as an integer, expires with the subject token, and rejects half and foreign clients', async () => {
    const poor = await p.real.core.newApp({ starterUsdMicros: '0' })
    const rpcs = p.real.core.as(poor.basic)
    await rpcs.upsertUser({ clientId: poor.clientId, externalUserId: 'poor' })
    const jwt = (await rpcs.mintUserToken({ clientId: poor.clientId, externalUserId: 'poor' }))
      .accessToken
    const { body } = await p.appToken(
      { ...exchange, subject_token: jwt },
      { clientId: poor.clientId },
    )
    expect(body).toMatchObject({ has_access: false, balance_usd_micros: 0, balanceUsdMicros: '0' })
    expect(Number(claimsOf(body['access_token'])['exp'])).toBeLessThanOrEqual(
      Number(claimsOf(jwt)['exp']),
    )
    expect(
      (
        await p.appToken(
          { ...exchange, subject_token: String(body['access_token']) },
          { clientId: poor.clientId },
        )
      ).error,
    ).toBe('invalid_grant')
    expect(
      (
        await p.appToken(
          { ...exchange, subject_token: jwt, client_secret: 'half' },
          { clientId: poor.clientId },
        )
      ).status,
    ).toBe(401)
    expect(
      (
        await p.appToken(
          { ...exchange, subject_token: jwt },
          { clientId: poor.clientId, authorization: p.app.basic },
        )
      ).status,
    ).toBe(404)
  })

  it("30: returns 410 with Deprecation on removed routes, 304 to a known manifest, and keeps a deleted app's audit log", async () => {
    const gone = await p.ask('POST', '/api/v1/subscriptions')
    expect([gone.status, gone.headers.has('deprecation')]).toEqual([410, true])
    const created = await p.ask('POST', '/api/v1/apps', {
      headers: p.app.session,
      json: { name: 'Short-lived' },
    })
    const path = `/api/v1/apps/${String(created.body['clientId'])}`
    const etag =
      (await p.ask('GET', `${path}/manifest`, { headers: p.app.session })).headers.get('etag') ?? ''
    expect(
      (
        await p.ask('GET', `${path}/manifest`, {
          headers: { ...p.app.session, 'if-none-match': etag },
        })
      ).status,
    ).toBe(304)
    const { rows: before } = await p.real.core.sql.query('select count(*) from audit_log')
    expect((await p.ask('DELETE', path, { headers: p.app.session })).status).toBe(200)
    const { rows: after } = await p.real.core.sql.query('select count(*) from audit_log')
    expect(Number(after[0]?.count)).toBeGreaterThan(Number(before[0]?.count))
    expect((await p.ask('GET', path, { headers: p.app.session })).status).toBe(404)
  })

  it('30: applies a demotion of an admin from the next request, for any cookie', async () => {
    const { sql } = p.real.core
    const put = () => p.ask('PUT', p.path, { headers: p.app.session, json: { name: 'grants' } })
    const role = (to: string) =>
      sql.query(
        `update members set role = $1 where app_id = (select app_id from clients where client_id = $2)`,
        [to, p.app.clientId],
      )
    expect((await put()).status).toBe(200)
    await role('viewer')
    expect((await put()).status).toBe(403)
    await role('owner')
  })
})
