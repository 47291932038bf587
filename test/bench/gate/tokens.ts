import { randomUUID } from 'node:crypto'
import { SignJWT, exportJWK, generateKeyPair } from 'jose'
import type { CoreDouble } from '../../fakes/sidecar-core.ts'
import { clientId } from './parts.ts'

/** The issuer of a sidecar without PUBLIC_URL. */
export const issuer = 'http://localhost:8080/api/v1/oidc'

/** Creates signer JWTs for `count` users. `core` then publishes their key. */
export async function newTokens(core: CoreDouble, count: number): Promise<string[]> {
  const { publicKey, privateKey } = await generateKeyPair('RS256', { extractable: true })
  const jwk = { ...(await exportJWK(publicKey)), kid: 'bench', alg: 'RS256', use: 'sig' }
  core.script.jwks = { keys: [jwk] }
  const now = Math.floor(Date.now() / 1000)
  return Promise.all(
    Array.from({ length: count }, (_, i) => {
      const user = `token-user-${String(i).padStart(5, '0')}`
      core.users.set(`${clientId}:${user}`, { micros: 10n ** 12n })
      return new SignJWT({
        iss: issuer,
        aud: issuer,
        sub: user,
        client_id: clientId,
        azp: clientId,
        external_user_id: user,
        scope: 'openid sign:job',
        token_use: 'signer',
        jti: randomUUID(),
        iat: now,
        exp: now + 3600,
      })
        .setProtectedHeader({ alg: 'RS256', kid: 'bench', typ: 'at+jwt' })
        .sign(privateKey)
    }),
  )
}
