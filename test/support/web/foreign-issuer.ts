import { type IncomingMessage, type ServerResponse, createServer } from 'node:http'
import { type CryptoKey, SignJWT, exportJWK, generateKeyPair } from 'jose'
import { listen } from '../../../core/lib/http.ts'
import { registerSecret } from '../run/secrecy.ts'

export interface ForeignKey {
  readonly kid: string
  readonly alg: 'RS256' | 'ES256'
  readonly privateKey: CryptoKey
  readonly jwk: Record<string, unknown>
}

export async function newForeignKey(
  kid: string,
  alg: 'RS256' | 'ES256' = 'RS256',
): Promise<ForeignKey> {
  const { publicKey, privateKey } = await generateKeyPair(alg, { extractable: true })
  return { kid, alg, privateKey, jwk: { ...(await exportJWK(publicKey)), kid, alg, use: 'sig' } }
}

/** Returns a signed token; undefined claims are left out. */
export async function signForeign(
  { privateKey, alg, kid }: ForeignKey,
  claims: Readonly<Record<string, unknown>>,
  header: Readonly<Record<string, unknown>> = {},
): Promise<string> {
  const defined = Object.entries(claims).filter(([, value]) => value !== undefined)
  const token = await new SignJWT(Object.fromEntries(defined))
    .setProtectedHeader({ alg, kid, ...header })
    .sign(privateKey)
  return registerSecret(token)
}

export type Answer = (request: IncomingMessage, response: ServerResponse) => void

/**
 * Starts an identity provider on the loopback interface. It serves its discovery document and its
 * key set under any path. A test may replace its answers with wrong ones, errors or none.
 */
export async function startForeignIssuer(keys: readonly ForeignKey[]) {
  const state = {
    keys: keys.map(({ jwk }) => jwk) as unknown[],
    /** Handlers that replace its own answers, by the end of the path; "" matches all. */
    answers: {} as Record<string, Answer>,
    requests: [] as string[],
  }
  const server = createServer((request, response) => {
    const { url: path = '', headers } = request
    state.requests.push(path)
    const scripted = Object.entries(state.answers).find(([end]) => path.endsWith(end))
    if (scripted) return scripted[1](request, response)
    response.setHeader('content-type', 'application/json')
    const issuer = `http://${headers.host}${path.replace(/\/(\.well-known\/.*|keys)$/, '')}`
    if (path.endsWith('/.well-known/openid-configuration'))
      return response.end(JSON.stringify({ issuer, jwks_uri: `${issuer}/keys` }))
    if (path.endsWith('/keys')) return response.end(JSON.stringify({ keys: state.keys }))
    return response.writeHead(404).end()
  })
  const listening = await listen(server, { host: '127.0.0.1', port: 0, setting: 'none' })
  const stop = async (): Promise<void> => {
    server.closeAllConnections()
    await listening.stop(0)
  }
  return { url: listening.url, state, stop }
}

export type ForeignIssuer = Awaited<ReturnType<typeof startForeignIssuer>>
