import { createHmac, createPrivateKey, createPublicKey, randomUUID } from 'node:crypto'
import {
  type JWTPayload,
  SignJWT,
  decodeJwt,
  decodeProtectedHeader,
  exportSPKI,
  generateKeyPair,
} from 'jose'
import { describe, expect, it } from 'vitest'
import { createSealing } from '../../../core/shared/sealing/sealing.ts'
import { placeOfKey } from '../../../core/tokens/issuer/store.ts'
import { bearerOf, configOf, issuer, second } from '../support.ts'
import { app, core, jwks, m2m, mint, useMachine, useUser, setUpTokens } from './world.ts'

setUpTokens()

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
    const { sealingSecrets } = configOf({ DATABASE_URL: core.databaseUrl }).shared
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
