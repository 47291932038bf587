import { createHmac, createPrivateKey, createPublicKey, randomUUID } from 'node:crypto'
import {
  type JWTPayload,
  SignJWT,
  createLocalJWKSet,
  decodeJwt,
  decodeProtectedHeader,
  exportSPKI,
  generateKeyPair,
  jwtVerify,
} from 'jose'
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { createSealing } from '../../../core/platform/sealing/sealing.ts'
import { placeOfKey } from '../../../core/tokens/issuer/store.ts'
import { createDatabase } from '../../support/postgres.ts'
import {
  type Rpcs,
  type TestApp,
  type TestCore,
  basicOf,
  bearerOf,
  configOf,
  createCaller,
  issuer,
  outcome,
  refusal,
  second,
  startTestCore,
} from '../support.ts'

let core: TestCore
let app: TestApp
let m2m: Rpcs
beforeAll(async () => {
  core = await startTestCore()
})
afterAll(() => core.stop())
beforeEach(async () => {
  app = await core.newApp()
  m2m = core.as(app.basic)
  await m2m.upsertUser({ clientId: app.clientId, externalUserId: 'ada' })
})

const mint = (scope?: string) =>
  m2m.mintUserToken({ clientId: app.clientId, externalUserId: 'ada', scope })
const useUser = (token: string, of: Rpcs = core.as(bearerOf(token))) => outcome(of.getOwnBalance())
const useMachine = (token: string, of: Rpcs = core.as(bearerOf(token))) =>
  outcome(of.listUsers({ clientId: app.clientId }))
const jwks = async () => ({
  keys: (await core.as().getJwks()).keys.map((key) => ({
    ...key,
    n: key.n ?? '',
    e: key.e ?? '',
    crv: key.crv ?? '',
    x: key.x ?? '',
    y: key.y ?? '',
  })),
})
const verified = async (token: string) =>
  jwtVerify(token, createLocalJWKSet(await jwks()), {
    issuer,
    audience: issuer,
    typ: 'at+jwt',
    algorithms: ['RS256'],
    currentDate: core.clock.now(),
  })
const now = () => Math.floor(core.clock.now().getTime() / 1000)

describe('a user token', () => {
  it('carries the claims of an access token and verifies with the key set', async () => {
    const { users } = await m2m.listUsers({ clientId: app.clientId })
    const { accessToken, ...rest } = await mint()
    expect(rest).toEqual({ tokenType: 'Bearer', expiresIn: 300, scope: 'sign:job' })
    const { payload, protectedHeader } = await verified(accessToken)
    expect(protectedHeader).toEqual({ alg: 'RS256', typ: 'at+jwt', kid: expect.any(String) })
    expect(payload).toEqual({
      iss: issuer,
      aud: issuer,
      sub: users[0]?.id,
      client_id: app.clientId,
      azp: app.clientId,
      external_user_id: 'ada',
      scope: 'sign:job',
      token_use: 'user',
      descends_from: [expect.stringMatching(/^[0-9a-f-]{36}$/)],
      jti: expect.stringMatching(/^[0-9a-f-]{36}$/),
      iat: now(),
      nbf: now(),
      exp: now() + 300,
    })
    expect(decodeJwt((await mint()).accessToken).jti).not.toBe(payload.jti)
  })

  it('is valid until its last second', async () => {
    const { accessToken } = await mint()
    core.clock.advance(299 * second)
    expect(await useUser(accessToken)).toBe('OK')
    core.clock.advance(second)
    expect(await useUser(accessToken)).toBe('TOKEN_INVALID')
  })

  it("is issued for a key, for the key's user", async () => {
    const { apiKey } = await m2m.createKey({ clientId: app.clientId, externalUserId: 'ada' })
    const exchanged = await core.as(bearerOf(apiKey)).exchangeApiKey({ clientId: app.clientId })
    expect(exchanged).toMatchObject({
      tokenType: 'Bearer',
      expiresIn: 300,
      scope: 'sign:job',
      externalUserId: 'ada',
    })
    expect((await verified(exchanged.accessToken)).payload).toMatchObject({
      external_user_id: 'ada',
      token_use: 'user',
    })
    expect(await useUser(exchanged.accessToken)).toBe('OK')
  })

  it("is minted in a batch with each call's own credential", async () => {
    const other = await core.newApp()
    await core.as(other.basic).upsertUser({ clientId: other.clientId, externalUserId: 'ada' })
    const call = (
      authorization: string | undefined,
      clientId: string,
      { externalUserId = 'ada', scope }: { externalUserId?: string; scope?: string } = {},
    ) => ({
      request: { clientId, externalUserId, scope },
      authorization,
      correlationId: 'one-of-many',
    })
    const { answers } = await core.as().mintUserTokens({
      calls: [
        call(app.basic, app.clientId),
        call(other.basic, other.clientId),
        call(other.basic, app.clientId),
        call(undefined, app.clientId),
        call(app.basic, app.clientId, { externalUserId: 'nobody' }),
        call(app.basic, app.clientId, { scope: 'openid' }),
        call(app.basic, app.clientId),
        { request: undefined, authorization: app.basic, correlationId: '' },
      ],
    })
    expect(
      answers.map(
        ({ response, refusal: refused }) => refused?.reason ?? (response ? 'OK' : 'nothing'),
      ),
    ).toEqual([
      'OK',
      'OK',
      'NOT_FOUND',
      'CREDENTIAL_INVALID',
      'NOT_FOUND',
      'SCOPE_INVALID',
      'OK',
      'REQUEST_INVALID',
    ])
    const [mine, theirs, , , , , again] = answers.map(({ response }) => response?.accessToken ?? '')
    expect((await verified(mine ?? '')).payload).toMatchObject({
      client_id: app.clientId,
      external_user_id: 'ada',
      scope: 'sign:job',
    })
    expect((await verified(theirs ?? '')).payload).toMatchObject({ client_id: other.clientId })
    expect(decodeJwt(again ?? '').jti).not.toBe(decodeJwt(mine ?? '').jti)
  })

  it('is rejected in too large a batch and without the service token', async () => {
    const one = {
      request: { clientId: app.clientId, externalUserId: 'ada', scope: undefined },
      authorization: app.basic,
      correlationId: 'c',
    }
    expect(
      (await core.as().mintUserTokens({ calls: Array.from({ length: 200 }, () => one) })).answers,
    ).toHaveLength(200)
    expect(
      await refusal(core.as().mintUserTokens({ calls: Array.from({ length: 201 }, () => one) })),
    ).toMatchObject({ reason: 'REQUEST_INVALID', message: 'at most 200 calls at once' })
    expect(await core.as().mintUserTokens({ calls: [] })).toEqual({ answers: [] })
    const stranger = createCaller(core.core.target, 'x'.repeat(32))
    expect(await outcome(stranger.as().mintUserTokens({ calls: [one] }))).toBe(
      'SERVICE_TOKEN_INVALID',
    )
    stranger.close()
  })

  it("is not minted for another app's user or an unknown user", async () => {
    const other = await core.newApp()
    const ends = [
      m2m.mintUserToken({ clientId: other.clientId, externalUserId: 'ada' }),
      m2m.mintUserToken({ clientId: app.clientId, externalUserId: 'nobody' }),
      core.as(other.basic).mintUserToken({ clientId: other.clientId, externalUserId: 'ada' }),
    ]
    expect(await Promise.all(ends.map(outcome))).toEqual(['NOT_FOUND', 'NOT_FOUND', 'NOT_FOUND'])
  })
})

describe('a machine token', () => {
  it('carries the M2M client and its builder scopes for an hour', async () => {
    const { accessToken, ...rest } = await m2m.issueMachineToken()
    const scope = 'users:read users:write users:token device:approve'
    expect(rest).toEqual({ tokenType: 'Bearer', expiresIn: 3600, scope })
    const { payload } = await verified(accessToken)
    expect(payload).toEqual({
      iss: issuer,
      aud: issuer,
      sub: app.m2mClientId,
      client_id: app.m2mClientId,
      azp: app.m2mClientId,
      scope,
      token_use: 'machine',
      descends_from: [expect.any(String)],
      jti: expect.any(String),
      iat: now(),
      nbf: now(),
      exp: now() + 3600,
    })
    expect(await useMachine(accessToken)).toBe('OK')
    core.clock.advance(3600 * second)
    expect(await useMachine(accessToken)).toBe('TOKEN_INVALID')
  })

  it('has the requested scopes that the client still has', async () => {
    const { accessToken, scope } = await m2m.issueMachineToken({ scope: 'users:read' })
    expect(scope).toBe('users:read')
    const machine = core.as(bearerOf(accessToken))
    expect(await outcome(machine.listUsers({ clientId: app.clientId }))).toBe('OK')
    expect(await outcome(machine.upsertUser({ clientId: app.clientId, externalUserId: 'x' }))).toBe(
      'SCOPE_MISSING',
    )
    await core.sql.query(`update clients set scopes = array['users:write'] where client_id = $1`, [
      app.m2mClientId,
    ])
    expect(await outcome(machine.listUsers({ clientId: app.clientId }))).toBe('SCOPE_MISSING')
  })

  it('never has sign-in or signing scopes, even when the client has them', async () => {
    await core.sql.query(
      `update clients set scopes = scopes || array['openid', 'sign:job'] where client_id = $1`,
      [app.m2mClientId],
    )
    expect((await m2m.issueMachineToken()).scope).toBe(
      'users:read users:write users:token device:approve',
    )
    for (const scope of ['openid', 'sign:job', 'sign:mint_user_token', 'users:read openid']) {
      expect(await outcome(m2m.issueMachineToken({ scope }))).toBe('SCOPE_INVALID')
    }
  })

  it('is issued only for the right id and secret, sent as Basic', async () => {
    const { accessToken } = await m2m.issueMachineToken()
    const wrong = [
      undefined,
      basicOf(app.m2mClientId, `${app.secret}x`),
      basicOf(app.clientId, app.secret),
      bearerOf(accessToken),
      bearerOf(app.secret),
    ]
    for (const authorization of wrong)
      expect(await outcome(core.as(authorization).issueMachineToken())).toBe('CREDENTIAL_INVALID')
  })

  it('is invalid when its client is deleted', async () => {
    const { accessToken } = await m2m.issueMachineToken()
    await core.sql.query('delete from clients where client_id = $1', [app.m2mClientId])
    expect(await useMachine(accessToken)).toBe('TOKEN_INVALID')
  })
})

describe('scopes', () => {
  it.each([
    ['sign:job', 'sign:job'],
    [' sign:job  sign:job ', 'sign:job'],
  ])('grants %j as %j', async (requested, granted) => {
    expect((await mint(requested)).scope).toBe(granted)
  })

  it.each([
    ['', 'REQUEST_INVALID'],
    ['   ', 'REQUEST_INVALID'],
    ['openid', 'SCOPE_INVALID'],
    ['sign:job openid', 'SCOPE_INVALID'],
    ['admin', 'SCOPE_INVALID'],
    ['sign:mint_user_token', 'SCOPE_INVALID'],
    ['users:read', 'SCOPE_INVALID'],
    ['sign:job\tadmin', 'SCOPE_INVALID'],
    ['sign:job,admin', 'SCOPE_INVALID'],
    ['SIGN:JOB', 'SCOPE_INVALID'],
    ['sign:job '.repeat(200), 'SCOPE_INVALID'],
    ['é\u0000', 'SCOPE_INVALID'],
  ])('rejects %j', async (scope, reason) => {
    const { apiKey } = await m2m.createKey({ clientId: app.clientId, externalUserId: 'ada' })
    expect(await outcome(mint(scope))).toBe(reason)
    expect(
      await outcome(core.as(bearerOf(apiKey)).exchangeApiKey({ clientId: app.clientId, scope })),
    ).toBe(reason)
    expect(
      await outcome(m2m.issueMachineToken({ scope: scope.replace('users:read', 'admin') })),
    ).toBe(reason)
  })

  it('default to sign:job if the public client has it', async () => {
    await core.sql.query(`update clients set scopes = '{openid}' where client_id = $1`, [
      app.clientId,
    ])
    expect(await mint()).toMatchObject({ scope: '' })
    expect(await outcome(mint('sign:job'))).toBe('SCOPE_INVALID')
  })

  it('are checked before the user is looked up', async () => {
    expect(
      await outcome(
        m2m.mintUserToken({ clientId: app.clientId, externalUserId: 'nobody', scope: 'admin' }),
      ),
    ).toBe('SCOPE_INVALID')
  })
})

describe('exchangeApiKey', () => {
  it('rejects all invalid keys alike, for any app', async () => {
    const { apiKey, keyId } = await m2m.createKey({ clientId: app.clientId, externalUserId: 'ada' })
    await m2m.revokeKey({ clientId: app.clientId, externalUserId: 'ada', keyId })
    const unknown = `app_${'0'.repeat(24)}`
    const refusals = await Promise.all(
      [apiKey, 'svc_ak_x', app.secret, 'x'].flatMap((key) =>
        [app.clientId, unknown, app.m2mClientId, ''].map((clientId) =>
          refusal(core.as(bearerOf(key)).exchangeApiKey({ clientId })),
        ),
      ),
    )
    expect(new Set(refusals.map(({ reason, message }) => `${reason} ${message}`))).toEqual(
      new Set(['CREDENTIAL_INVALID the API key is not valid']),
    )
    for (const authorization of [undefined, app.basic, 'Bearer', `Bearer ${apiKey} x`]) {
      expect(await outcome(core.as(authorization).exchangeApiKey({ clientId: app.clientId }))).toBe(
        'CREDENTIAL_INVALID',
      )
    }
  })

  it('returns NOT_FOUND for another app and an unknown app', async () => {
    const { apiKey } = await m2m.createKey({ clientId: app.clientId, externalUserId: 'ada' })
    const other = await core.newApp()
    const refusals = await Promise.all(
      [other.clientId, `app_${'0'.repeat(24)}`, app.m2mClientId, '', 'x\u0000'].map((clientId) =>
        refusal(core.as(bearerOf(apiKey)).exchangeApiKey({ clientId, scope: 'admin' })),
      ),
    )
    expect(new Set(refusals.map(({ reason, message }) => `${reason} ${message}`)).size).toBe(1)
    expect(refusals[0]?.reason).toBe('NOT_FOUND')
  })
})

describe('a forged token', () => {
  const claims = async (use: 'user' | 'machine') =>
    decodeJwt((await (use === 'user' ? mint() : m2m.issueMachineToken())).accessToken)
  const activeKid = async () => decodeProtectedHeader((await mint()).accessToken).kid ?? ''
  /** Returns the tokens that are accepted as a user's or a machine's token. */
  async function accepted(tokens: readonly string[]): Promise<string[]> {
    const works = await Promise.all(
      tokens.map(async (token) => {
        const ends = [await useUser(token), await useMachine(token)]
        return ends.some((end) => end !== 'TOKEN_INVALID')
      }),
    )
    return tokens.filter((_, index) => works[index])
  }
  const encode = (value: object): string => Buffer.from(JSON.stringify(value)).toString('base64url')

  it('is rejected without a signature (alg none)', async () => {
    const [kid, user, machine] = [
      await activeKid(),
      encode(await claims('user')),
      encode(await claims('machine')),
    ]
    const tokens = ['none', 'None', 'NONE'].flatMap((alg) => [
      `${encode({ alg, typ: 'at+jwt' })}.${user}.`,
      `${encode({ alg, typ: 'at+jwt', kid })}.${machine}.`,
    ])
    expect(await accepted(tokens)).toEqual([])
  })

  it('is rejected when the public key is used as a shared secret', async () => {
    const kid = await activeKid()
    const jwk = (await jwks()).keys.find((key) => key.kid === kid)
    const pem = await exportSPKI(
      createPublicKey({ key: { kty: 'RSA', n: jwk?.n ?? '', e: jwk?.e ?? '' }, format: 'jwk' }),
    )
    const signed = `${encode({ alg: 'HS256', typ: 'at+jwt', kid })}.${encode(await claims('user'))}`
    const tokens = [pem, pem.trim(), JSON.stringify(jwk), jwk?.n ?? ''].map(
      (secret) => `${signed}.${createHmac('sha256', secret).update(signed).digest('base64url')}`,
    )
    expect(await accepted(tokens)).toEqual([])
  })

  it('is rejected when another key signs it, with our kid, an unknown kid or no kid', async () => {
    const { privateKey } = await generateKeyPair('RS256')
    const headers = [
      {},
      ...[await activeKid(), randomUUID(), '', '../../etc/passwd', "' or 1=1 --"].map((kid) => ({
        kid,
      })),
    ]
    const bodies = [await claims('user'), await claims('machine')]
    const tokens = await Promise.all(
      headers.flatMap((header) =>
        bodies.map((body) =>
          new SignJWT(body)
            .setProtectedHeader({ alg: 'RS256', typ: 'at+jwt', ...header })
            .sign(privateKey),
        ),
      ),
    )
    expect(await accepted(tokens)).toEqual([])
  })

  it('is rejected with its own key in the header', async () => {
    const { privateKey, publicKey } = await generateKeyPair('RS256', { extractable: true })
    const jwk = createPublicKey({ key: await exportSPKI(publicKey) }).export({ format: 'jwk' })
    const token = await new SignJWT(await claims('user'))
      .setProtectedHeader({ alg: 'RS256', typ: 'at+jwt', jwk: { ...jwk } })
      .sign(privateKey)
    expect(await accepted([token])).toEqual([])
  })

  it('is rejected when a part is cut, changed or swapped', async () => {
    const [header = '', payload = '', signature = ''] = (await mint()).accessToken.split('.')
    const raised = encode({ ...(await claims('user')), scope: 'admin' })
    const machine = (await m2m.issueMachineToken()).accessToken.split('.')
    const bad = [
      `${header}.${payload}`,
      `${header}.${payload}.`,
      `${header}.${payload}.${signature.slice(0, -4)}`,
      `${header}.${raised}.${signature}`,
      `${header}.${machine[1]}.${signature}`,
      `.${payload}.${signature}`,
      `${header}..${signature}`,
      'x.y.z',
      '...',
      'e30.e30.e30',
      `${header}.${payload}.${signature}.${signature}`,
      `${encode({ ...decodeProtectedHeader(`${header}.${payload}.${signature}`), typ: 'JWT' })}.${payload}.${signature}`,
    ]
    expect(await accepted(bad)).toEqual([])
  })

  it('is rejected for another use', async () => {
    const { accessToken: user } = await mint()
    const { accessToken: machine } = await m2m.issueMachineToken()
    expect(await useMachine(user)).toBe('TOKEN_INVALID')
    expect(await useUser(machine)).toBe('TOKEN_INVALID')
    expect(await useUser(app.secret)).toBe('TOKEN_INVALID')
  })

  it('is rejected when another issuer with the same keys signed it', async () => {
    const foreign = await core.startAnother({ PUBLIC_URL: 'https://other.example' })
    const { accessToken } = await foreign
      .as(app.basic)
      .mintUserToken({ clientId: app.clientId, externalUserId: 'ada' })
    expect(decodeJwt(accessToken).iss).toBe('https://other.example/api/v1/oidc')
    expect(await useUser(accessToken, foreign.as(bearerOf(accessToken)))).toBe('OK')
    expect(await accepted([accessToken])).toEqual([])
    await foreign.core.stop()
  })

  it('is rejected before its nbf', async () => {
    const { accessToken } = await mint()
    core.clock.advance(-5 * second)
    expect(await useUser(accessToken)).toBe('TOKEN_INVALID')
    core.clock.advance(5 * second)
  })
})

describe('a token signed by our own key', () => {
  /** Signs a token as core does, with claims changed by `change`. */
  async function signed(
    use: 'user' | 'machine',
    change: (claims: JWTPayload) => JWTPayload,
    typ = 'at+jwt',
  ): Promise<string> {
    const { accessToken } = use === 'user' ? await mint() : await m2m.issueMachineToken()
    const { kid = '' } = decodeProtectedHeader(accessToken)
    const { rows } = await core.sql.query<{ sealed_private: Buffer }>(
      'select sealed_private from signing_keys where kid = $1',
      [kid],
    )
    const { sealingSecrets } = configOf({ DATABASE_URL: core.databaseUrl }).platform
    const pkcs8 = createSealing(sealingSecrets).unseal(
      rows[0]?.sealed_private ?? Buffer.of(),
      placeOfKey(kid),
    )
    const key = createPrivateKey({ key: pkcs8, format: 'der', type: 'pkcs8' })
    return new SignJWT(change(decodeJwt(accessToken)))
      .setProtectedHeader({ alg: 'RS256', typ, kid })
      .sign(key)
  }

  it('is accepted without changes', async () => {
    expect(await useUser(await signed('user', (claims) => claims))).toBe('OK')
    expect(await useMachine(await signed('machine', (claims) => claims))).toBe('OK')
  })

  const without =
    (name: string) =>
    (claims: JWTPayload): JWTPayload =>
      Object.fromEntries(Object.entries(claims).filter(([claim]) => claim !== name))
  const withClaims =
    (more: JWTPayload) =>
    (claims: JWTPayload): JWTPayload => ({ ...claims, ...more })
  const changes: readonly (readonly [string, (claims: JWTPayload) => JWTPayload])[] = [
    ['of use signer', withClaims({ token_use: 'signer' })],
    ['of use id', withClaims({ token_use: 'id' })],
    ['for another audience', withClaims({ aud: 'https://signer.example' })],
    ['of another issuer', withClaims({ iss: `${issuer}/` })],
    ['for another client', withClaims({ client_id: `app_${'0'.repeat(24)}` })],
    ['for another user', withClaims({ sub: randomUUID() })],
    ['for no user', withClaims({ sub: 'ada' })],
    ...['exp', 'iat', 'jti', 'sub', 'client_id', 'token_use', 'aud', 'iss'].map(
      (name) => [`without ${name}`, without(name)] as const,
    ),
  ]
  it.each(changes)('is rejected %s', async (_what, change) => {
    expect(await useUser(await signed('user', change))).toBe('TOKEN_INVALID')
  })

  it('is rejected with another use or another type', async () => {
    expect(await useMachine(await signed('machine', withClaims({ token_use: 'user' })))).toBe(
      'TOKEN_INVALID',
    )
    expect(await useMachine(await signed('machine', withClaims({ client_id: app.clientId })))).toBe(
      'TOKEN_INVALID',
    )
    expect(await useUser(await signed('user', (claims) => claims, 'JWT'))).toBe('TOKEN_INVALID')
  })

  it('allows nothing without a scope claim (decision 14)', async () => {
    expect(await useMachine(await signed('machine', without('scope')))).toBe('SCOPE_MISSING')
    expect(await useMachine(await signed('machine', withClaims({ scope: '' })))).toBe(
      'SCOPE_MISSING',
    )
  })

  it("allows only its client's scopes", async () => {
    await core.sql.query(`update clients set scopes = '{users:write}' where client_id = $1`, [
      app.m2mClientId,
    ])
    expect(
      await useMachine(await signed('machine', withClaims({ scope: 'users:read admin' }))),
    ).toBe('SCOPE_MISSING')
  })
})

describe('signing keys', () => {
  it('are created once when two cores start on an empty database', async () => {
    const database = await createDatabase()
    const [one, two] = await Promise.all([
      startTestCore({ DATABASE_URL: database.url }),
      startTestCore({ DATABASE_URL: database.url }),
    ])
    const { rows } = await one.sql.query('select status from signing_keys order by status')
    expect(rows).toEqual([{ status: 'active' }, { status: 'next' }])
    const [oneSet, twoSet] = await Promise.all(
      [one.core, two.core].map((_, index) => (index === 0 ? one : two).as().getJwks()),
    )
    expect(oneSet).toEqual(twoSet)
    expect(oneSet?.keys).toHaveLength(2)
    for (const [from, to] of [
      [one, two],
      [two, one],
    ] as const) {
      const app = await from.newApp()
      await from.as(app.basic).upsertUser({ clientId: app.clientId, externalUserId: 'ada' })
      const { accessToken } = await from
        .as(app.basic)
        .mintUserToken({ clientId: app.clientId, externalUserId: 'ada' })
      expect(await outcome(to.as(bearerOf(accessToken)).getOwnBalance())).toBe('OK')
    }
    await Promise.all([one.stop(), two.stop()])
    await database.drop()
  })

  it('are published without private members and sealed in the table', async () => {
    const { rows } = await core.sql.query<{ public_jwk: object; sealed_private: Buffer }>(
      'select public_jwk, sealed_private from signing_keys',
    )
    for (const { public_jwk, sealed_private } of rows) {
      expect(Object.keys(public_jwk).toSorted()).toEqual(['alg', 'e', 'kid', 'kty', 'n', 'use'])
      // DER of PKCS #8 begins with a sequence and contains the OID of rsaEncryption.
      expect(sealed_private.includes(Buffer.from('2a864886f70d010101', 'hex'))).toBe(false)
    }
    for (const key of (await core.as().getJwks()).keys) {
      expect(key).toMatchObject({
        kty: 'RSA',
        use: 'sig',
        alg: 'RS256',
        e: 'AQAB',
        crv: undefined,
        x: undefined,
        y: undefined,
      })
    }
  })

  it('stop the start with a clear error when sealed under another KEY_ENCRYPTION_KEY', async () => {
    await expect(
      core.startAnother({ KEY_ENCRYPTION_KEY: 'quite-another-sealing-key-0123456789-abc' }),
    ).rejects.toThrow(/^KEY_ENCRYPTION_KEY does not open/)
  })

  it('support ES256', async () => {
    const es = await startTestCore({ TOKEN_ALG: 'ES256' })
    const app = await es.newApp()
    const { accessToken } = await es.as(app.basic).issueMachineToken()
    expect(decodeProtectedHeader(accessToken)).toMatchObject({ alg: 'ES256', typ: 'at+jwt' })
    expect(await outcome(es.as(bearerOf(accessToken)).listUsers({ clientId: app.clientId }))).toBe(
      'OK',
    )
    const { keys } = await es.as().getJwks()
    expect(keys).toMatchObject([
      { kty: 'EC', crv: 'P-256', alg: 'ES256', n: undefined },
      { kty: 'EC' },
    ])
    await es.stop()
  })

  it('are reloaded after a rotation by another core', async () => {
    const { keys } = await core.as().getJwks()
    await core.sql.query(
      "begin; update signing_keys set status = 'retired', retire_at = now() + interval '1000 days' where status = 'active'; update signing_keys set status = 'active' where status = 'next'; commit",
    )
    const before = (await mint()).accessToken
    core.clock.advance(31 * second)
    const after = (await mint()).accessToken
    expect(decodeProtectedHeader(after).kid).toBe(keys[1]?.kid)
    expect(decodeProtectedHeader(before).kid).toBe(keys[0]?.kid)
    expect([await useUser(before), await useUser(after)]).toEqual(['OK', 'OK'])
  })
})
