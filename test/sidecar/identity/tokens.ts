import { type CryptoKey, SignJWT, exportJWK, generateKeyPair } from 'jose'
import { vectorNow } from '../support.ts'

export const issuer = 'http://localhost:8080/api/v1/oidc'

/** Returns a signing key, with its public part as published by core. */
export async function newSigningKey(kid: string, alg: 'RS256' | 'ES256' = 'RS256') {
  const { publicKey, privateKey } = await generateKeyPair(alg, { extractable: true })
  const jwk = { ...(await exportJWK(publicKey)), kid, alg, use: 'sig' }
  return { kid, alg, privateKey, jwk }
}

export interface TokenKey {
  readonly kid: string
  readonly alg: string
  readonly privateKey: CryptoKey
}

/** Signs a signer JWT for tenant_a:user_42, valid for an hour. Omits undefined claims. */
export function sign(
  key: TokenKey,
  claims: Record<string, unknown> = {},
  header: object = {},
): Promise<string> {
  const payload = {
    iss: issuer,
    aud: issuer,
    sub: 'user_42',
    client_id: 'tenant_a',
    azp: 'tenant_a',
    external_user_id: 'user_42',
    scope: 'openid sign:job',
    token_use: 'signer',
    iat: vectorNow - 10,
    exp: vectorNow + 3600,
    ...claims,
  }
  const defined = Object.fromEntries(
    Object.entries(payload).filter(([, value]) => value !== undefined),
  )
  return new SignJWT(defined)
    .setProtectedHeader({ alg: key.alg, kid: key.kid, typ: 'at+jwt', ...header })
    .sign(key.privateKey)
}
