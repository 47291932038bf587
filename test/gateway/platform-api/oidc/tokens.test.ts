import { hash, randomUUID } from 'node:crypto'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { day, second } from '../../../core/support.ts'
import {
  type Grants,
  accessToken,
  claimsOf,
  deviceGrant,
  exchangeGrant,
  sessionOf,
  startGrants,
} from './support.ts'

let grants: Grants

beforeAll(async () => {
  grants = await startGrants()
})

afterAll(() => grants?.stop())

async function login(): Promise<Record<string, unknown>> {
  const { body } = await grants.post('/api/v1/oidc/device/auth', { client_id: grants.app.clientId })
  await grants.devices.decide(sessionOf(grants.app), String(body['user_code']), 'approve')
  return (
    await grants.token({
      grant_type: deviceGrant,
      device_code: String(body['device_code']),
      client_id: grants.app.clientId,
    })
  ).body
}

const refresh = (token: unknown, scope?: string, clientId = grants.app.clientId) =>
  grants.token({
    grant_type: 'refresh_token',
    refresh_token: String(token),
    client_id: clientId,
    scope,
  })
const introspect = (token: unknown, authorization = grants.app.basic) =>
  grants.post('/api/v1/oidc/token/introspection', { token: String(token) }, authorization)
const revoke = (token: unknown, fields: Record<string, string> = {}, authorization?: string) =>
  grants.post('/api/v1/oidc/token/revocation', { token: String(token), ...fields }, authorization)
const me = (token: unknown, method = 'GET', path = '/me') =>
  grants.send(method, `/api/v1/oidc${path}`, {
    headers: { authorization: `Bearer ${String(token)}` },
  })
const openSession = async (user = 'ada') =>
  (
    await grants.token(
      {
        grant_type: exchangeGrant,
        subject_token: await grants.userToken(user),
        subject_token_type: accessToken,
      },
      grants.app.basic,
    )
  ).body['access_token']

describe('refresh token', () => {
  it('is replaced at each use, and its second use ends the login', async () => {
    const first = await login()
    const second = await refresh(first['refresh_token'])
    expect(second.status).toBe(200)
    expect(second.body['refresh_token']).not.toBe(first['refresh_token'])
    const third = await refresh(second.body['refresh_token'], 'sign:job')
    expect(third.body).toMatchObject({ scope: 'sign:job' })
    expect(third.body['id_token']).toBeUndefined()
    expect((await refresh(first['refresh_token'])).error).toBe('invalid_grant')
    expect((await refresh(third.body['refresh_token'])).error).toBe('invalid_grant')
    expect((await me(first['access_token'])).status).toBe(401)
    expect((await introspect(second.body['access_token'])).body).toEqual({ active: false })
  })

  it('works for one of two concurrent uses', async () => {
    const { refresh_token: token } = await login()
    const answers = await Promise.all([refresh(token), refresh(token)])
    expect(answers.map(({ status }) => status).toSorted()).toEqual([200, 400])
  })

  it('is refused when the person ended all logins before it was redeemed, in any commit order', async () => {
    const { clock, sql } = grants.real.core
    const { body } = await grants.post('/api/v1/oidc/device/auth', {
      client_id: grants.app.clientId,
    })
    await grants.devices.decide(sessionOf(grants.app), String(body['user_code']), 'approve')
    const ended = new Date(clock.now().getTime() + second)
    clock.advance(2 * second)
    const login = await grants.token({
      grant_type: deviceGrant,
      device_code: String(body['device_code']),
      client_id: grants.app.clientId,
    })
    const { refresh_token: token } = login.body
    // Like a password reset that took its timestamp before this login was redeemed, but committed
    // after it.
    await sql.query(
      `insert into grant_ends (id, ends_before)
      select unnest(f.grants), $2 from refresh_tokens r join token_families f on f.id = r.family_id
      where r.token_hash = $1`,
      [hash('sha256', String(token), 'buffer'), ended],
    )
    expect((await refresh(token)).error).toBe('invalid_grant')
  })

  it('is refused for another client, more scopes, after its end, and when invalid', async () => {
    const { refresh_token: token } = await login()
    const other = await grants.real.newApp('refresh-other')
    expect((await refresh(token, undefined, other.clientId)).error).toBe('invalid_grant')
    expect((await refresh(token, 'users:write')).error).toBe('invalid_scope')
    expect((await refresh('svc_rt_none')).error).toBe('invalid_grant')
    const resource = `${'/'.repeat(300_000)}x`
    expect(
      (await grants.token({ grant_type: 'refresh_token', refresh_token: String(token), resource }))
        .error,
    ).toBe('invalid_target')
    expect(
      (await grants.token({ grant_type: 'refresh_token', client_id: grants.app.clientId })).error,
    ).toBe('invalid_request')
    expect(
      (await grants.token({ grant_type: 'refresh_token', refresh_token: String(token) })).status,
    ).toBe(401)
    const { clock } = grants.real.core
    const before = clock.now()
    clock.advance(30 * day)
    expect((await refresh(token)).error).toBe('invalid_grant')
    clock.set(before)
  })
})

describe('authorization code', () => {
  const verifier = 'v'.repeat(43)
  const redirectUri = 'https://app.example/back'

  async function newCode(scope = 'openid offline_access sign:job'): Promise<string> {
    const { core } = grants.real
    const first = await login()
    const userId = claimsOf(first['access_token'])['sub']
    const accountId = String(claimsOf(first['access_token'])['external_user_id']).slice(5)
    const code = `svc_ac_${randomUUID()}`
    const at = core.clock.now()
    await core.sql.query(
      `
      insert into authorization_codes (code_hash, client_id, account_id, user_id, family_id, redirect_uri, scope, nonce,
                                       code_challenge, auth_time, created_at, expires_at)
      values ($1, $2, $3, $4, $5, $6, $10, 'n-1', $7, $8, $8, $9)`,
      [
        hash('sha256', code, 'buffer'),
        grants.app.clientId,
        accountId,
        userId,
        randomUUID(),
        redirectUri,
        hash('sha256', verifier, 'base64url'),
        at,
        new Date(at.getTime() + 60 * second),
        scope,
      ],
    )
    return code
  }

  const redeem = (code: string, more: Record<string, string> = {}) =>
    grants.token({
      grant_type: 'authorization_code',
      code,
      client_id: grants.app.clientId,
      redirect_uri: redirectUri,
      code_verifier: verifier,
      ...more,
    })

  it('returns tokens with the nonce once; a second use ends them', async () => {
    const code = await newCode()
    const { status, body } = await redeem(code)
    expect(status).toBe(200)
    expect(claimsOf(body['id_token'])).toMatchObject({ nonce: 'n-1', aud: grants.app.clientId })
    expect(claimsOf(body['id_token'])['auth_time']).toBeTypeOf('number')
    expect((await me(body['access_token'])).status).toBe(200)
    expect((await redeem(code)).error).toBe('invalid_grant')
    expect((await me(body['access_token'])).status).toBe(401)
    expect((await refresh(body['refresh_token'])).error).toBe('invalid_grant')
  })

  it('returns a refresh token only with offline_access, which the app must have', async () => {
    const refreshable = async (scope: string) =>
      'refresh_token' in (await redeem(await newCode(scope))).body
    expect(await refreshable('openid sign:job')).toBe(false)
    expect(await refreshable('openid offline_access')).toBe(false)
    const setScopes = (expression: string) =>
      grants.real.core.sql.query(`update clients set scopes = ${expression} where client_id = $1`, [
        grants.app.clientId,
      ])
    await setScopes(`array_append(scopes, 'offline_access')`)
    expect(await refreshable('openid offline_access')).toBe(true)
    expect(await refreshable('openid sign:job')).toBe(false)
    await setScopes(`array_remove(scopes, 'offline_access')`)
  })

  it('is refused with another verifier, redirect URI, client or target, and after a minute', async () => {
    const code = await newCode()
    const other = await grants.real.newApp('code-other')
    expect((await redeem(code, { code_verifier: 'w'.repeat(43) })).error).toBe('invalid_grant')
    expect((await redeem(code, { code_verifier: 'short' })).error).toBe('invalid_grant')
    expect((await redeem(code, { redirect_uri: `${redirectUri}/` })).error).toBe('invalid_grant')
    expect((await redeem(code, { client_id: other.clientId })).error).toBe('invalid_grant')
    expect((await redeem(code, { resource: 'https://other.example' })).error).toBe('invalid_target')
    grants.real.core.clock.advance(60 * second)
    expect((await redeem(code)).error).toBe('invalid_grant')
    expect((await redeem('none')).error).toBe('invalid_grant')
  })
})

describe('userinfo', () => {
  it('answers GET and POST, at both paths, for a token with openid', async () => {
    const { access_token: token } = await login()
    for (const [method, path] of [
      ['GET', '/me'],
      ['POST', '/me'],
      ['GET', '/userinfo'],
      ['POST', '/userinfo'],
    ] as const) {
      expect((await me(token, method, path)).body).toEqual({ sub: claimsOf(token)['sub'] })
    }
  })

  it('refuses a token without openid, and a request without a token', async () => {
    const plain = await me(await grants.userToken())
    expect([plain.status, plain.error]).toEqual([403, 'insufficient_scope'])
    const nobody = await grants.send('GET', '/api/v1/oidc/me')
    expect([nobody.status, nobody.error]).toEqual([401, 'invalid_token'])
  })
})

describe('introspection', () => {
  it('supports every kind of token of the calling app', async () => {
    const loggedIn = await login()
    const user = await introspect(loggedIn['access_token'])
    expect(user.body).toMatchObject({
      active: true,
      client_id: grants.app.clientId,
      token_type: 'Bearer',
      scope: 'openid sign:job',
    })
    expect((await introspect(loggedIn['refresh_token'])).body).toMatchObject({
      active: true,
      token_type: 'refresh_token',
    })
    expect((await introspect(await openSession())).body).toMatchObject({
      active: true,
      external_user_id: 'ada',
      scope: 'sign:job',
    })
    const machine = await grants.token({ grant_type: 'client_credentials' }, grants.app.basic)
    expect((await introspect(machine.body['access_token'])).body).toMatchObject({
      active: true,
      client_id: grants.app.m2mClientId,
    })
    const signer = await grants.appToken({
      grant_type: exchangeGrant,
      subject_token: await grants.userToken(),
      subject_token_type: accessToken,
    })
    expect((await introspect(signer.body['access_token'])).body).toMatchObject({
      active: true,
      sub: 'ada',
    })
  })

  it('reports foreign and malformed tokens as inactive, and requires a client secret', async () => {
    const other = await grants.real.newApp('introspect-other')
    for (const token of [
      await grants.userToken(),
      await openSession(),
      (await login())['refresh_token'],
      'x',
    ]) {
      expect((await introspect(token, other.basic)).body).toEqual({ active: false })
    }
    expect((await introspect('x', 'Basic Og==')).status).toBe(401)
    expect(
      (await grants.post('/api/v1/oidc/token/introspection', {}, grants.app.basic)).error,
    ).toBe('invalid_request')
  })
})

describe('revocation', () => {
  it('ends JWTs, logins and signer sessions', async () => {
    const loggedIn = await login()
    const session = await openSession()
    const user = await grants.userToken()
    expect((await revoke(user, {}, grants.app.basic)).status).toBe(200)
    expect((await introspect(user)).body).toEqual({ active: false })
    expect(
      (await revoke(loggedIn['refresh_token'], { client_id: grants.app.clientId })).status,
    ).toBe(200)
    expect((await me(loggedIn['access_token'])).status).toBe(401)
    await revoke(session, {}, grants.app.basic)
    expect((await introspect(session)).body).toEqual({ active: false })
  })

  it('returns 200 for unknown and foreign tokens without ending them, and requires a client', async () => {
    const other = await grants.real.newApp('revoke-other')
    const user = await grants.userToken()
    expect((await revoke(user, {}, other.basic)).status).toBe(200)
    expect((await revoke('unknown', {}, other.basic)).status).toBe(200)
    expect((await introspect(user)).body['active']).toBe(true)
    expect((await revoke(user)).status).toBe(401)
    expect((await revoke(user, { client_id: 'app_0123456789abcdef01234567' })).status).toBe(401)
  })
})

describe('signer sessions', () => {
  const url = (user = 'ada') => `/api/v1/apps/${grants.app.clientId}/users/${user}/signer-sessions`
  const call = (method: string, path: string) =>
    grants.send(method, path, { headers: { authorization: grants.app.basic } })

  it('are listed and ended immediately, once', async () => {
    await grants.real.core
      .as(grants.app.basic)
      .upsertUser({ clientId: grants.app.clientId, externalUserId: 'eve' })
    const token = await openSession('eve')
    const { body } = await call('GET', url('eve'))
    const [listed] = Array.isArray(body['sessions']) ? body['sessions'] : []
    expect(listed).toMatchObject({
      label: 'signer_session_token_exchange',
      revokedAt: null,
      scope: 'sign:job',
    })
    expect(JSON.stringify(body)).not.toContain(String(token))
    const ended = await call('DELETE', `${url('eve')}?sessionId=${listed.sessionId}`)
    expect(ended.body).toMatchObject({ success: true, sessionId: listed.sessionId })
    grants.real.core.clock.advance(second)
    expect(
      (await call('DELETE', `${url('eve')}?sessionId=${listed.sessionId}`)).body['revokedAt'],
    ).toBe(ended.body['revokedAt'])
    expect((await introspect(token)).body).toEqual({ active: false })
  })

  it('are listed the newest first, in pages', async () => {
    await grants.real.core
      .as(grants.app.basic)
      .upsertUser({ clientId: grants.app.clientId, externalUserId: 'paged' })
    for (let count = 0; count < 3; count += 1) {
      await openSession('paged')
      grants.real.core.clock.advance(second)
    }
    const times: string[] = []
    let cursor = ''
    do {
      const query = `?limit=2${cursor === '' ? '' : `&cursor=${encodeURIComponent(cursor)}`}`
      const { body } = await call('GET', url('paged') + query)
      const sessions = Array.isArray(body['sessions']) ? body['sessions'] : []
      times.push(...sessions.map(({ createdAt }) => String(createdAt)))
      cursor = String(body['nextCursor'] ?? '')
    } while (cursor !== '')
    expect(times).toHaveLength(3)
    expect(times).toEqual([...new Set(times)].toSorted().toReversed())
  })

  it('cannot be ended without an id, with an unknown id, or for another user', async () => {
    expect((await call('DELETE', url())).status).toBe(400)
    expect((await call('DELETE', `${url()}?sessionId=x`)).status).toBe(404)
    expect((await call('DELETE', `${url('nobody')}?sessionId=x`)).status).toBe(404)
  })
})

describe('deactivation', () => {
  it('ends sessions, logins and tokens, which reactivation does not restore', async () => {
    const core = grants.real.core.as(grants.app.basic)
    const name = { clientId: grants.app.clientId, externalUserId: 'mallory' }
    await core.upsertUser(name)
    const session = await openSession('mallory')
    const token = await grants.userToken('mallory')
    await core.deactivateUser(name)
    const exchange = () =>
      grants.appToken({
        grant_type: exchangeGrant,
        subject_token: token,
        subject_token_type: accessToken,
      })
    expect((await exchange()).error).toBe('invalid_grant')
    expect((await introspect(session)).body).toEqual({ active: false })
    await core.updateUser({ ...name, status: 'active' })
    expect((await exchange()).error).toBe('invalid_grant')
    expect((await introspect(session)).body).toEqual({ active: false })
    expect((await introspect(token)).body).toEqual({ active: false })
  })
})
