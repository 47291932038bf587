import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { clientId } from '../../../fakes/gateway-core/identity.ts'
import { type Harness, basic, publicUrl, startHarness } from '../../support.ts'

let harness: Harness
beforeAll(async () => {
  harness = await startHarness()
})
afterAll(() => harness.stop())
beforeEach(() => harness.core.reset())

const url = '/api/v1/oidc/token'
const grant = 'grant_type=client_credentials'
const m2m = 'm2m_0123456789abcdef01234567'

describe('discovery document', () => {
  it('lists only what works, and is the same at both paths', async () => {
    const one = await harness.ask('GET', '/api/v1/oidc/.well-known/openid-configuration', {
      authorization: null,
    })
    const two = await harness.ask('GET', '/.well-known/openid-configuration', {
      authorization: null,
    })
    const issuer = `${publicUrl}/api/v1/oidc`
    expect(one.body).toEqual({
      issuer,
      token_endpoint: `${issuer}/token`,
      jwks_uri: `${issuer}/jwks`,
      authorization_endpoint: `${issuer}/auth`,
      userinfo_endpoint: `${issuer}/me`,
      end_session_endpoint: `${issuer}/session/end`,
      device_authorization_endpoint: `${issuer}/device/auth`,
      introspection_endpoint: `${issuer}/token/introspection`,
      revocation_endpoint: `${issuer}/token/revocation`,
      grant_types_supported: [
        'client_credentials',
        'authorization_code',
        'refresh_token',
        'urn:ietf:params:oauth:grant-type:device_code',
        'urn:ietf:params:oauth:grant-type:token-exchange',
      ],
      response_types_supported: ['code'],
      response_modes_supported: ['query'],
      subject_types_supported: ['public'],
      id_token_signing_alg_values_supported: ['RS256'],
      code_challenge_methods_supported: ['S256'],
      claims_parameter_supported: false,
      request_parameter_supported: false,
      request_uri_parameter_supported: false,
      prompt_values_supported: ['none', 'login', 'consent', 'select_account'],
      authorization_response_iss_parameter_supported: true,
      token_endpoint_auth_methods_supported: ['none', 'client_secret_basic', 'client_secret_post'],
      introspection_endpoint_auth_methods_supported: ['client_secret_basic', 'client_secret_post'],
      revocation_endpoint_auth_methods_supported: [
        'none',
        'client_secret_basic',
        'client_secret_post',
      ],
      scopes_supported: [
        'openid',
        'profile',
        'email',
        'offline_access',
        'sign:job',
        'users:read',
        'users:write',
        'users:token',
        'device:approve',
        'sign:mint_user_token',
      ],
      claims_supported: [
        'sub',
        'iss',
        'aud',
        'exp',
        'iat',
        'auth_time',
        'nonce',
        'email',
        'email_verified',
        'name',
      ],
    })
    expect(two.text).toBe(one.text)
    expect(one.headers.get('cache-control')).toBe('public, max-age=3600')
    expect(one.headers.get('content-type')).toBe('application/json; charset=utf-8')
    const etag = one.headers.get('etag') ?? ''
    const again = await harness.ask('GET', '/.well-known/openid-configuration', {
      headers: { 'if-none-match': etag },
    })
    expect([etag.length > 2, again.status, again.text]).toEqual([true, 304, ''])
  })
})

describe('key set', () => {
  it('may be cached and revalidated', async () => {
    const first = await harness.ask('GET', '/api/v1/oidc/jwks', { authorization: null })
    expect(first.body).toEqual({
      keys: [{ kty: 'RSA', kid: 'one', alg: 'RS256', use: 'sig', n: 'AQAB', e: 'AQAB' }],
    })
    expect(first.headers.get('cache-control')).toBe('public, max-age=300')
    const etag = first.headers.get('etag') ?? ''
    for (const tag of [etag, `W/${etag}`, `"x", ${etag}`, '*']) {
      const again = await harness.ask('GET', '/api/v1/oidc/jwks', {
        headers: { 'if-none-match': tag },
      })
      expect([again.status, again.text, again.headers.get('etag')]).toEqual([304, '', etag])
    }
    expect(
      (await harness.ask('GET', '/api/v1/oidc/jwks', { headers: { 'if-none-match': '"x"' } }))
        .status,
    ).toBe(200)
  })

  it('is fetched from core once for many requests, and determines the algorithm in discovery', async () => {
    const es256 = await startHarness()
    es256.core.answer('getJwks', {
      keys: [{ kty: 'EC', kid: 'two', alg: 'ES256', use: 'sig', crv: 'P-256', x: 'AQ', y: 'AQ' }],
    })
    const paths = ['/api/v1/oidc/jwks', '/.well-known/openid-configuration']
    const answers = await Promise.all(
      [...paths, ...paths].map((path) => es256.ask('GET', path, { authorization: null })),
    )
    expect(answers[1]?.body['id_token_signing_alg_values_supported']).toEqual(['ES256'])
    expect(es256.core.names()).toEqual(['getJwks'])
    await es256.stop()
  })

  it('is not cached when core is unavailable, and discovery shows the configured algorithm', async () => {
    const away = await startHarness()
    away.core.refuse('getJwks', 'UNAVAILABLE')
    const { status, headers } = await away.ask('GET', '/api/v1/oidc/jwks')
    const { body } = await away.ask('GET', '/.well-known/openid-configuration')
    expect(body['id_token_signing_alg_values_supported']).toEqual(['RS256'])
    await away.stop()
    expect([status, headers.get('retry-after'), headers.get('cache-control')]).toEqual([
      503,
      '1',
      'no-store',
    ])
  })
})

describe('client_credentials', () => {
  const inBasic = (text: string) => `basic ${Buffer.from(text).toString('base64')}`

  it.each([
    ['raw Basic', inBasic(`${m2m}:svc_cs_x`), ''],
    ['form-encoded Basic', inBasic(`m2m%5F0123456789abcdef01234567:svc%5Fcs%5Fx`), ''],
    ['the form', null, `&client_id=${m2m}&client_secret=svc_cs_x`],
    ['both, the same', basic, `&client_id=${m2m}&client_secret=svc_cs_x`],
    ['both, the id alone in the form', basic, `&client_id=${m2m}`],
  ])('accepts the secret by %s', async (_, authorization, form) => {
    const { status, body, headers } = await harness.ask('POST', url, {
      form: `${grant}&scope=users:read${form}`,
      authorization,
    })
    expect([status, body]).toEqual([
      200,
      {
        access_token: 'a.b.c',
        token_type: 'Bearer',
        expires_in: 3600,
        scope: 'users:read',
        correlation_id: headers.get('x-correlation-id'),
      },
    ])
    expect([headers.get('cache-control'), headers.get('pragma')]).toEqual(['no-store', 'no-cache'])
    const { request, metadata } = harness.core.last()
    expect([request, metadata.get('authorization')]).toEqual([{ scope: 'users:read' }, [basic]])
  })

  it.each([
    ['no grant type', 'scope=x', 'invalid_request'],
    ['an empty grant type', 'grant_type=', 'invalid_request'],
    ['another grant type', 'grant_type=password', 'unsupported_grant_type'],
    ['a repeated parameter', `${grant}&${grant}`, 'invalid_request'],
    ['a repeated unknown parameter', `${grant}&x=1&x=2`, 'invalid_request'],
    ['another id in the form', `${grant}&client_id=m2m_other`, 'invalid_request'],
    ['another secret in the form', `${grant}&client_secret=other`, 'invalid_request'],
    ['a NUL', `${grant}&scope=%00`, 'invalid_request'],
  ])('refuses %s', async (_, form, error) => {
    const answer = await harness.ask('POST', url, { form })
    expect([answer.status, answer.body['error']]).toEqual([400, error])
    expect([answer.headers.get('cache-control'), answer.headers.get('pragma')]).toEqual([
      'no-store',
      'no-cache',
    ])
    expect(harness.core.names()).toEqual([])
  })

  it.each([
    ['nothing', null, ''],
    ['an id alone', null, '&client_id=app_x'],
    ['a Bearer', 'Bearer x', ''],
    ['Basic that is not base64', 'Basic !!!', ''],
    ['Basic without a colon', inBasic('abc'), ''],
    ['Basic without a secret', inBasic('abc:'), ''],
    ['a colon in the id', null, '&client_id=a%3Ab&client_secret=c'],
  ])('returns 401 for %s', async (_, authorization, form) => {
    const { status, body, headers } = await harness.ask('POST', url, {
      form: grant + form,
      authorization,
    })
    expect([status, body['error']]).toEqual([401, 'invalid_client'])
    expect(headers.get('www-authenticate')).toMatch(/^Basic realm=/)
  })

  it.each(['application/json', 'text/plain', 'nonsense'])(
    'accepts only forms, not %s',
    async (type) => {
      const { status, body } = await harness.ask('POST', url, {
        text: grant,
        headers: { 'content-type': type },
      })
      expect([status, body['error']]).toEqual([400, 'invalid_request'])
    },
  )

  it.each([
    ['CREDENTIAL_INVALID', 401, 'invalid_client'],
    ['SCOPE_INVALID', 400, 'invalid_scope'],
    ['CLIENT_UNAUTHORIZED', 400, 'unauthorized_client'],
    ['UNAVAILABLE', 503, 'temporarily_unavailable'],
  ] as const)('forwards core’s %s', async (reason, status, error) => {
    harness.core.refuse('issueMachineToken', reason)
    const answer = await harness.ask('POST', url, { form: grant })
    expect([answer.status, answer.body]).toEqual([
      status,
      {
        error,
        error_description: `because of ${reason}`,
        correlation_id: answer.headers.get('x-correlation-id'),
      },
    ])
  })
})

describe('user token', () => {
  const mint = `/api/v1/apps/${clientId}/users/ada/token`

  it('is minted with and without a scope, and never cached', async () => {
    const { status, headers } = await harness.ask('POST', mint)
    expect([status, headers.get('cache-control'), headers.get('pragma')]).toEqual([
      200,
      'no-store',
      'no-cache',
    ])
    await harness.ask('POST', mint, { json: { scope: 'sign:job', more: 1 } })
    expect(harness.core.last().request).toEqual({
      clientId,
      externalUserId: 'ada',
      scope: 'sign:job',
    })
  })

  it.each([[{ scope: ' ' }], [{ scope: 5 }], [[]], [5], [null]])(
    'is refused for the body %j',
    async (json) => {
      const { status, body, headers } = await harness.ask('POST', mint, { json })
      expect([status, body['error'], headers.get('cache-control')]).toEqual([
        400,
        'invalid_request',
        'no-store',
      ])
    },
  )
})

describe('key exchange', () => {
  const exchange = `/api/v1/apps/${clientId}/auth/api-key/token`
  const authorization = 'bearer svc_ak_x'

  it('forwards the key', async () => {
    await harness.ask('POST', exchange, { authorization, json: { scope: 'sign:job' } })
    expect(harness.core.last().metadata.get('authorization')).toEqual([authorization])
  })

  it.each([null, basic, 'Token x'])('requires a Bearer, not %s', async (input) => {
    const { status, body } = await harness.ask('POST', exchange, {
      authorization: input,
      text: '{',
    })
    expect([status, body['error']]).toEqual([401, 'invalid_client'])
    expect(harness.core.names()).toEqual([])
  })

  it('gives the same answer for every invalid key', async () => {
    const bodies = []
    for (const reason of ['TOKEN_INVALID', 'CREDENTIAL_INVALID'] as const) {
      harness.core.refuse('exchangeApiKey', reason)
      const { status, body } = await harness.ask('POST', exchange, {
        authorization,
        headers: { 'x-correlation-id': 'same' },
      })
      expect([status, body['error']]).toEqual([401, 'invalid_client'])
      bodies.push(body)
    }
    expect(bodies[0]).toEqual(bodies[1])
  })

  it('returns not_found for an unknown app', async () => {
    harness.core.refuse('exchangeApiKey', 'NOT_FOUND')
    expect((await harness.ask('POST', exchange, { authorization })).body['error']).toBe('not_found')
  })
})
