import { createLocalJWKSet, decodeJwt, decodeProtectedHeader, jwtVerify } from 'jose'
import { describe, expect, it } from 'vitest'
import { createDatabase } from '../../support/run/postgres.ts'
import {
  basicOf,
  bearerOf,
  createCaller,
  issuer,
  outcome,
  refusal,
  second,
  startTestCore,
} from '../support.ts'
import { app, core, jwks, m2m, mint, useMachine, useUser, setUpTokens } from './world.ts'

setUpTokens()

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
