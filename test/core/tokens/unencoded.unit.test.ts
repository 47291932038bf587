import { generateKeyPairSync } from 'node:crypto'
import { SignJWT } from 'jose'
import { Pool } from 'pg'
import { describe, expect, it } from 'vitest'
import { createJwts } from '../../../core/tokens/issuer/jwt.ts'
import { createIdTokenHints } from '../../../core/tokens/login/id-token-hints.ts'

const issuer = 'https://svc.example/api/v1/oidc'
const { publicKey, privateKey } = generateKeyPairSync('rsa', { modulusLength: 2048 })
const notCalled = async (): Promise<never> => {
  throw new Error('not called')
}
const signingKeys = {
  alg: 'RS256' as const,
  findPublicKey: async () => ({ alg: 'RS256' as const, key: publicKey }),
  prepare: notCalled,
  generate: notCalled,
  active: notCalled,
  jwks: notCalled,
  refresh: notCalled,
}

/** Signs a token with our issuer's key. */
const signed = (typ: string, claims: object, header: object): Promise<string> =>
  new SignJWT({ iss: issuer, sub: 'ada', client_id: 'app', jti: 'j', ...claims })
    .setProtectedHeader({ alg: 'RS256', kid: 'k', typ, ...header })
    .setIssuedAt()
    .setExpirationTime('5m')
    .sign(privateKey)

describe('a token of our issuer with an unencoded payload (b64)', () => {
  it('is rejected as an access token before any look-up', async () => {
    // Nothing listens on this port, so any look-up fails.
    const pool = new Pool({ host: '127.0.0.1', port: 1 })
    const jwts = createJwts({ issuer, signingKeys, pool, now: () => new Date() })
    const token = (header: object) =>
      signed('at+jwt', { aud: issuer, token_use: 'user', scope: 'sign:job' }, header)
    await expect(jwts.verify(await token({ b64: false }), ['user'])).rejects.toMatchObject({
      reason: 'TOKEN_INVALID',
    })
    await expect(jwts.verify(await token({}), ['user'])).rejects.toMatchObject({
      code: 'ECONNREFUSED',
    })
  })

  it('is rejected as an id_token_hint', async () => {
    const hints = createIdTokenHints({ issuer, signingKeys, users: { findById: notCalled } })
    const token = (header: object) => signed('JWT', { aud: 'app', token_use: 'id' }, header)
    expect(await hints.read(await token({}))).toEqual({ clientId: 'app', subject: 'ada' })
    expect(await hints.read(await token({ b64: false }))).toBeNull()
  })
})
