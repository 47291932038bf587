import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { outcome, second } from '../../../core/support.ts'
import {
  type Answered,
  type Grants,
  accessToken,
  claimsOf,
  deviceGrant,
  exchangeGrant,
  headerOf,
  issuer,
  sessionOf,
  startGrants,
} from './support.ts'

let grants: Grants
let session = ''

beforeAll(async () => {
  grants = await startGrants()
  session = sessionOf(grants.app)
})

afterAll(() => grants?.stop())

const start = async (scope?: string) =>
  (await grants.post('/api/v1/oidc/device/auth', { client_id: grants.app.clientId, scope })).body
const poll = (code: unknown, clientId = grants.app.clientId): Promise<Answered> =>
  grants.token({ grant_type: deviceGrant, device_code: String(code), client_id: clientId })
const approve = (code: unknown) => grants.devices.decide(session, String(code), 'approve')

describe('device', () => {
  it('starts at both paths with a code to type', async () => {
    for (const path of ['/device/auth', '/device_authorization']) {
      const { status, body } = await grants.post(`/api/v1/oidc${path}`, {
        client_id: grants.app.clientId,
      })
      expect(status).toBe(200)
      expect(body).toMatchObject({
        expires_in: 600,
        interval: 5,
        verification_uri: 'https://svc.example/oidc/device',
      })
      expect(body['user_code']).toMatch(/^[BCDFGHJKLMNPQRSTVWXZ]{4}-[BCDFGHJKLMNPQRSTVWXZ]{4}$/)
      const complete = new URL(String(body['verification_uri_complete']))
      expect(Object.fromEntries(complete.searchParams)).toEqual({
        user_code: body['user_code'],
        client_id: grants.app.clientId,
        iss: issuer,
      })
    }
  })

  it('does not start for an unknown client, a scope that it lacks, or a client without the grant type', async () => {
    const at = '/api/v1/oidc/device/auth'
    expect((await grants.post(at, {})).status).toBe(401)
    expect((await grants.post(at, { client_id: 'app_0123456789abcdef01234567' })).error).toBe(
      'invalid_client',
    )
    expect(
      (await grants.post(at, { client_id: grants.app.clientId, scope: 'users:write' })).error,
    ).toBe('invalid_scope')
    const { sql } = grants.real.core
    await sql.query("update clients set grant_types = '{refresh_token}' where client_id = $1", [
      grants.app.clientId,
    ])
    expect((await grants.post(at, { client_id: grants.app.clientId })).error).toBe(
      'unauthorized_client',
    )
    await sql.query(
      `update clients set grant_types = '{authorization_code,refresh_token,${deviceGrant}}' where client_id = $1`,
      [grants.app.clientId],
    )
  })

  it('waits, is permanently slowed down for early polls, and gets its tokens once', async () => {
    const { clock } = grants.real.core
    const { device_code: code, user_code: userCode } = await start()
    expect((await poll(code)).error).toBe('authorization_pending')
    clock.advance(4 * second)
    expect((await poll(code)).error).toBe('slow_down')
    clock.advance(9 * second)
    expect((await poll(code)).error).toBe('slow_down')
    clock.advance(15 * second)
    expect((await poll(code)).error).toBe('authorization_pending')
    expect(await approve(String(userCode).toLowerCase().replace('-', ' '))).toEqual({
      status: 'authorized',
    })
    const { status, body } = await poll(code)
    expect(status).toBe(200)
    expect(body).toMatchObject({ token_type: 'Bearer', expires_in: 3600, scope: 'openid sign:job' })
    const claims = claimsOf(body['access_token'])
    expect(claims).toMatchObject({ token_use: 'user', client_id: grants.app.clientId, aud: issuer })
    expect(claims['external_user_id']).toMatch(/^user:/)
    expect(claimsOf(body['id_token'])).toMatchObject({
      sub: claims['sub'],
      aud: grants.app.clientId,
      token_use: 'id',
      iss: issuer,
    })
    expect(headerOf(body['id_token'])['typ']).toBe('JWT')
    expect(body['refresh_token']).toMatch(/^svc_rt_/)
  })

  it('loses the tokens of the first redemption when its code is repeated', async () => {
    const { device_code: code, user_code: userCode } = await start()
    await approve(userCode)
    const { body } = await poll(code)
    const me = () =>
      grants.send('GET', '/api/v1/oidc/me', {
        headers: { authorization: `Bearer ${String(body['access_token'])}` },
      })
    expect((await me()).status).toBe(200)
    expect((await poll(code)).error).toBe('invalid_grant')
    expect((await me()).status).toBe(401)
    const again = await grants.token({
      grant_type: 'refresh_token',
      refresh_token: String(body['refresh_token']),
      client_id: grants.app.clientId,
    })
    expect(again.error).toBe('invalid_grant')
  })

  it('gets one set of tokens when it redeems concurrently', async () => {
    const { device_code: code, user_code: userCode } = await start()
    await approve(userCode)
    const answers = await Promise.all([poll(code), poll(code), poll(code)])
    expect(answers.map(({ status }) => status).toSorted()).toEqual([200, 400, 400])
  })

  it('learns that it was denied, that its code has expired, or that the code is unknown', async () => {
    const denied = await start()
    expect(await grants.devices.decide(session, String(denied['user_code']), 'deny')).toEqual({
      status: 'denied',
    })
    expect((await poll(denied['device_code'])).error).toBe('access_denied')
    expect(await outcome(approve(denied['user_code']))).toBe('GRANT_INVALID')
    const late = await start()
    grants.real.core.clock.advance(600 * second)
    expect((await poll(late['device_code'])).error).toBe('expired_token')
    expect(await outcome(approve(late['user_code']))).toBe('DEVICE_CODE_EXPIRED')
    expect((await poll('svc_dc_nothing')).error).toBe('invalid_grant')
    const other = await grants.real.newApp('device-other')
    expect((await poll((await start())['device_code'], other.clientId)).error).toBe('invalid_grant')
    expect(
      (await grants.token({ grant_type: deviceGrant, client_id: grants.app.clientId })).error,
    ).toBe('invalid_request')
  })

  it('shows the app and its scopes to a logged-in person', async () => {
    const { user_code: code } = await start('sign:job')
    expect(await grants.devices.get(session, String(code))).toMatchObject({
      clientId: grants.app.clientId,
      appName: 'grants',
      scopes: ['sign:job'],
    })
    expect(await outcome(grants.devices.get('nobody', String(code)))).toBe('TOKEN_INVALID')
    expect(await outcome(grants.devices.get(session, 'AAAA-AAAA'))).toBe('GRANT_INVALID')
    expect(await outcome(grants.devices.decide(session, String(code), 'maybe'))).toBe(
      'REQUEST_INVALID',
    )
  })

  it('can be exchanged for a signer token', async () => {
    const { device_code: code, user_code: userCode } = await start()
    await approve(userCode)
    const { body } = await poll(code)
    const exchange = (input: object) =>
      grants.send('POST', '/api/signer/device/exchange', {
        body: JSON.stringify(input),
        headers: { 'content-type': 'application/json' },
      })
    const deviceToken = String(body['access_token'])
    const answer = await exchange({ deviceToken, clientId: grants.app.clientId, scope: 'whatever' })
    expect(answer.body).toMatchObject({
      expires_in: 300,
      scope: 'sign:job',
      has_access: true,
      balanceUsdMicros: '5000000',
    })
    expect(claimsOf(answer.body['access_token'])['token_use']).toBe('signer')
    expect((await exchange({ deviceToken, clientId: 'app_0123456789abcdef01234567' })).error).toBe(
      'invalid_grant',
    )
    expect((await exchange({ deviceToken: String(answer.body['access_token']) })).error).toBe(
      'invalid_grant',
    )
    expect((await exchange({})).error).toBe('invalid_request')
    expect((await exchange([])).error).toBe('invalid_request')
    expect((await grants.send('GET', '/api/signer/device/exchange')).status).toBe(405)
  })
})

describe("approval by the app's backend", () => {
  const approveFor = async (
    user: string,
    resource: string,
    authorization: string | undefined = grants.app.basic,
  ) =>
    grants.token(
      {
        grant_type: exchangeGrant,
        subject_token: await grants.userToken(user),
        subject_token_type: accessToken,
        resource,
      },
      authorization,
    )

  it('returns the subject token, also when repeated, but never for another user', async () => {
    await grants.real.core
      .as(grants.app.basic)
      .upsertUser({ clientId: grants.app.clientId, externalUserId: 'bob' })
    const { device_code: code, user_code: userCode } = await start()
    const { status, body } = await approveFor('ada', `urn:svc:device_code:${String(userCode)}`)
    expect(status).toBe(200)
    expect(claimsOf(body['access_token'])).toMatchObject({
      token_use: 'user',
      external_user_id: 'ada',
    })
    expect(body).toMatchObject({
      issued_token_type: accessToken,
      expires_in: 300,
      scope: 'sign:job',
    })
    expect((await approveFor('ada', `urn:pmth:device_code:${String(userCode)}`)).status).toBe(200)
    expect((await approveFor('bob', `urn:svc:device_code:${String(userCode)}`)).error).toBe(
      'invalid_grant',
    )
    const device = await poll(code)
    expect(claimsOf(device.body['access_token'])).toMatchObject({ external_user_id: 'ada' })
    expect(device.body['refresh_token']).toBeUndefined()
    expect((await approveFor('ada', `urn:svc:device_code:${String(userCode)}`)).error).toBe(
      'invalid_grant',
    )
  })

  it('is refused without a client, and without a valid code of the app', async () => {
    const { user_code: code } = await start()
    const resource = `urn:svc:device_code:${String(code)}`
    expect((await approveFor('ada', resource, 'Basic Og==')).status).toBe(401)
    expect((await approveFor('ada', 'urn:svc:device_code:')).error).toBe('invalid_target')
    expect((await approveFor('ada', 'urn:svc:device_code:BBBB-BBBB')).error).toBe('invalid_grant')
    const other = await grants.real.newApp('device-third')
    const foreign = await grants.token(
      {
        grant_type: exchangeGrant,
        subject_token: await grants.userToken('ada', other),
        subject_token_type: accessToken,
        resource,
      },
      other.basic,
    )
    expect(foreign.error).toBe('invalid_grant')
    grants.real.core.clock.advance(600 * second)
    expect((await approveFor('ada', resource)).error).toBe('expired_token')
  })
})
