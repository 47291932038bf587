import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { basicOf, second } from '../../../core/support.ts'
import {
  type Fields,
  type Grants,
  accessToken,
  claimsOf,
  exchangeGrant,
  headerOf,
  issuer,
  startGrants,
} from './support.ts'

let grants: Grants
let jwt = ''
const base = (): Fields => ({
  grant_type: exchangeGrant,
  subject_token: jwt,
  subject_token_type: accessToken,
})
const key = (): string => grants.app.apiKey.replace('Bearer ', '')

beforeAll(async () => {
  grants = await startGrants()
  jwt = await grants.userToken()
})

afterAll(() => grants?.stop())

describe('app-scoped exchange', () => {
  it('returns a signer session with the whole envelope', async () => {
    const { status, body, headers } = await grants.appToken({
      ...base(),
      audience: [issuer, `${issuer}/`, 'livepeer-remote-signer'],
    })
    expect(status).toBe(200)
    expect(headers.get('cache-control')).toBe('no-store')
    expect(headers.get('pragma')).toBe('no-cache')
    expect(body).toMatchObject({
      token_type: 'Bearer',
      scope: 'sign:job',
      issued_token_type: accessToken,
      has_access: true,
      can_spend: true,
      balance_usd_micros: 5_000_000,
      balanceUsdMicros: '5000000',
      lifetimeGrantedUsdMicros: '5000000',
      signer_url: 'http://localhost:8935',
      discovery_url: 'http://localhost:8935/discover-orchestrators',
    })
    expect(body['correlation_id']).toBe(headers.get('x-correlation-id'))
    expect(headerOf(body['access_token'])['typ']).toBe('at+jwt')
    expect(claimsOf(body['access_token'])).toMatchObject({
      iss: issuer,
      aud: issuer,
      sub: 'ada',
      external_user_id: 'ada',
      client_id: grants.app.clientId,
      azp: grants.app.clientId,
      token_use: 'signer',
      scope: 'sign:job',
    })
  })

  it('accepts keys, with and without client credentials, under either type', async () => {
    for (const type of [
      accessToken,
      'urn:svc:oauth:token-type:api_key',
      'urn:pymthouse:oauth:token-type:api_key',
    ]) {
      const input = { ...base(), subject_token: key(), subject_token_type: type }
      expect((await grants.appToken(input)).status).toBe(200)
      expect((await grants.appToken(input, { authorization: grants.app.basic })).status).toBe(200)
    }
  })

  it('never outlives its subject token', async () => {
    const subject = await grants.userToken()
    grants.real.core.clock.advance(200 * second)
    const { body } = await grants.appToken({ ...base(), subject_token: subject })
    expect(body['expires_in']).toBe(100)
    expect(claimsOf(body['access_token'])['exp']).toBe(claimsOf(subject)['exp'])
    jwt = await grants.userToken()
  })

  const refusals: [string, () => Fields, string][] = [
    [
      'another grant type',
      () => ({ ...base(), grant_type: 'client_credentials' }),
      '400 invalid_request',
    ],
    ['no grant type', () => ({ ...base(), grant_type: undefined }), '400 invalid_request'],
    ['no subject', () => ({ ...base(), subject_token: undefined }), '400 invalid_request'],
    ['a blank subject', () => ({ ...base(), subject_token: ' ' }), '400 invalid_request'],
    [
      'another subject type',
      () => ({ ...base(), subject_token_type: 'urn:ietf:params:oauth:token-type:id_token' }),
      '400 unsupported_token_type',
    ],
    [
      'half a client',
      () => ({ ...base(), client_id: 'm2m_0123456789abcdef01234567' }),
      '401 invalid_client',
    ],
    ['a secret alone', () => ({ ...base(), client_secret: 'x' }), '401 invalid_client'],
    [
      'another requested type',
      () => ({ ...base(), requested_token_type: 'urn:ietf:params:oauth:token-type:jwt' }),
      '400 invalid_request',
    ],
    [
      'another audience',
      () => ({ ...base(), audience: [issuer, 'https://other.example'] }),
      '400 invalid_target',
    ],
    [
      'another resource',
      () => ({ ...base(), resource: 'https://other.example' }),
      '400 invalid_target',
    ],
    [
      'a good resource and a bad audience',
      () => ({ ...base(), resource: issuer, audience: 'x' }),
      '400 invalid_target',
    ],
    ['another scope', () => ({ ...base(), scope: 'admin' }), '400 invalid_scope'],
    [
      'a subject that is no token',
      () => ({ ...base(), subject_token: 'nothing' }),
      '400 invalid_grant',
    ],
    [
      'a client secret as subject',
      () => ({ ...base(), subject_token: 'svc_cs_x' }),
      '400 invalid_grant',
    ],
    [
      'an unknown key',
      () => ({
        ...base(),
        subject_token: `svc_ak_${'a'.repeat(49)}`,
        subject_token_type: 'urn:svc:oauth:token-type:api_key',
      }),
      '400 invalid_grant',
    ],
    [
      'a field given twice',
      () => ({ ...base(), subject_token: [jwt, jwt] }),
      '400 invalid_request',
    ],
  ]
  it.each(refusals)('refuses %s', async (_, fields, refusal) => {
    const answer = await grants.appToken(fields())
    expect(`${answer.status} ${String(answer.error)}`).toBe(refusal)
    expect(answer.headers.get('cache-control')).toBe('no-store')
    expect(answer.body['correlation_id']).toBe(answer.headers.get('x-correlation-id'))
    expect(answer.headers.get('www-authenticate')?.startsWith('Basic ') ?? false).toBe(
      answer.status === 401,
    )
  })

  it('returns 404 for an unknown app when a credential is present', async () => {
    for (const clientId of ['app_0123456789abcdef01234567', grants.app.m2mClientId, 'x']) {
      const unknown = await grants.appToken(base(), { clientId })
      expect([unknown.status, unknown.error]).toEqual([404, 'not_found'])
      expect(
        (await grants.appToken(base(), { clientId, authorization: 'Basic eDp5' })).status,
      ).toBe(401)
      expect((await grants.appToken({}, { clientId })).status).toBe(400)
    }
  })

  it("refuses a wrong secret, and returns 404 to another app's client or subject", async () => {
    const other = await grants.real.newApp('other')
    const wrong = await grants.appToken(base(), {
      authorization: basicOf(grants.app.m2mClientId, 'svc_cs_wrong'),
    })
    expect([wrong.status, wrong.error]).toEqual([401, 'invalid_client'])
    expect((await grants.appToken(base(), { authorization: other.basic })).status).toBe(404)
    const foreign = await grants.appToken(base(), { clientId: other.clientId })
    expect([foreign.status, foreign.error]).toEqual([404, 'not_found'])
    const foreignKey = await grants.appToken(
      { ...base(), subject_token: key() },
      { clientId: other.clientId },
    )
    expect([foreignKey.status, foreignKey.error]).toEqual([404, 'not_found'])
  })

  it('refuses a signer token as subject, which would renew itself', async () => {
    const { body } = await grants.appToken(base())
    expect(
      (await grants.appToken({ ...base(), subject_token: String(body['access_token']) })).error,
    ).toBe('invalid_grant')
    expect(
      (await grants.token({ ...base(), subject_token: String(body['access_token']) })).error,
    ).toBe('invalid_grant')
  })

  it('accepts no JSON', async () => {
    const answer = await grants.send('POST', `/api/v1/apps/${grants.app.clientId}/oidc/token`, {
      body: '{}',
      headers: { 'content-type': 'application/json' },
    })
    expect([answer.status, answer.error]).toEqual([400, 'invalid_request'])
  })

  it('audits successes and refusals', async () => {
    const wrong = { ...base(), subject_token: 'x.y.z' }
    const refused = await grants.appToken(wrong, { authorization: grants.app.basic })
    expect(refused.status).toBe(400)
    await sleep(200)
    const { rows } = await grants.real.core.sql.query<{ status: string }>(
      "select distinct status from audit_log where action = 'app_oidc_token_exchange' order by status",
    )
    expect(rows.map((row) => row.status)).toEqual(['refused', 'success'])
  })

  it('audits nothing without an authenticated caller', async () => {
    const entries = async () =>
      (await grants.real.core.sql.query('select count(*)::int as n from audit_log')).rows[0].n
    const before = await entries()
    const wrong = { ...base(), subject_token: 'x.y.z' }
    const authorization = basicOf(grants.app.m2mClientId, 'svc_cs_wrong')
    expect((await grants.appToken(wrong)).status).toBe(400)
    expect((await grants.appToken(wrong, { authorization })).status).toBe(401)
    // Long enough for a write that is not awaited.
    await sleep(200)
    expect(await entries()).toBe(before)
  })
})

describe('exchange at the issuer', () => {
  it('finds the app by the credential when no client is sent', async () => {
    for (const subject of [jwt, key()]) {
      const { status, body } = await grants.token({ ...base(), subject_token: subject })
      expect([status, body['has_access']]).toEqual([200, true])
      expect(claimsOf(body['access_token'])['token_use']).toBe('signer')
    }
  })

  it('opens an opaque signer session for the M2M client, with and without resource', async () => {
    for (const resource of [undefined, issuer, `${issuer}/`]) {
      const { status, body } = await grants.token({ ...base(), resource }, grants.app.basic)
      expect(status).toBe(200)
      expect(body).toMatchObject({
        token_type: 'Bearer',
        expires_in: 86_400,
        issued_token_type: accessToken,
        scope: 'sign:job',
      })
      expect(body['access_token']).toMatch(/^svc_ss_[0-9A-Za-z]{49}$/)
    }
  })

  it('returns a signer JWT when the M2M client requests a JWT', async () => {
    const { body } = await grants.token(
      { ...base(), requested_token_type: 'urn:ietf:params:oauth:token-type:jwt' },
      grants.app.basic,
    )
    expect(claimsOf(body['access_token'])['token_use']).toBe('signer')
  })

  it('accepts credentials raw, form-encoded and in the form', async () => {
    const text = Buffer.from(grants.app.basic.replace('Basic ', ''), 'base64').toString()
    const [id = '', secret = ''] = text.split(':')
    const encoded = basicOf(id.replaceAll('_', '%5F'), secret.replaceAll('_', '%5F'))
    expect((await grants.token(base(), encoded)).status).toBe(200)
    expect((await grants.token({ ...base(), client_id: id, client_secret: secret })).status).toBe(
      200,
    )
    expect((await grants.token({ ...base(), client_id: 'other' }, grants.app.basic)).error).toBe(
      'invalid_request',
    )
  })

  it('refuses a client without the scope users:token with 403', async () => {
    const { sql } = grants.real.core
    await sql.query("update clients set scopes = '{users:read}' where client_id = $1", [
      grants.app.m2mClientId,
    ])
    const answer = await grants.token(base(), grants.app.basic)
    await sql.query(
      "update clients set scopes = '{users:read,users:write,users:token,device:approve,sign:mint_user_token}' where client_id = $1",
      [grants.app.m2mClientId],
    )
    expect([answer.status, answer.error]).toEqual([403, 'invalid_scope'])
  })

  it('refuses other targets, other apps and other grants', async () => {
    expect(
      (await grants.token({ ...base(), resource: 'livepeer-remote-signer' }, grants.app.basic))
        .error,
    ).toBe('invalid_target')
    const other = await grants.real.newApp('third')
    expect((await grants.token(base(), other.basic)).error).toBe('invalid_grant')
    expect((await grants.token({ grant_type: 'password' })).error).toBe('unsupported_grant_type')
    expect((await grants.token({})).error).toBe('invalid_request')
  })
})

describe('minting a signer token', () => {
  const mint = (): Fields => ({
    grant_type: 'client_credentials',
    scope: 'sign:mint_user_token',
    external_user_id: 'minted',
  })

  it('provisions an unknown user and returns a signer JWT', async () => {
    const { status, body } = await grants.token(
      { ...mint(), audience: 'livepeer-clearinghouse' },
      grants.app.basic,
    )
    expect([status, body['scope'], body['expires_in']]).toEqual([200, 'sign:job', 300])
    expect(claimsOf(body['access_token'])).toMatchObject({ sub: 'minted', token_use: 'signer' })
  })

  it('reports refusals in the order of its checks', async () => {
    expect((await grants.token({ ...mint(), external_user_id: undefined })).error).toBe(
      'invalid_request',
    )
    expect((await grants.token(mint())).status).toBe(401)
    expect(
      (
        await grants.token(
          { ...mint(), scope: 'sign:mint_user_token users:read' },
          grants.app.basic,
        )
      ).error,
    ).toBe('invalid_scope')
    expect(
      (await grants.token({ ...mint(), external_user_id: 'user:x' }, grants.app.basic)).error,
    ).toBe('invalid_request')
    expect((await grants.token({ ...mint(), audience: 'x' }, grants.app.basic)).error).toBe(
      'invalid_target',
    )
  })

  it('is refused for an inactive user', async () => {
    await grants.token(mint(), grants.app.basic)
    await grants.real.core
      .as(grants.app.basic)
      .deactivateUser({ clientId: grants.app.clientId, externalUserId: 'minted' })
    expect((await grants.token(mint(), grants.app.basic)).error).toBe('invalid_grant')
  })
})
