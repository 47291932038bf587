import { createRemoteJWKSet, errors, jwtVerify } from 'jose'
import { DomainError } from '../../proto/errors.ts'
import { textMember } from '../http/body.ts'
import type { LoginProviderConfig } from '../login-config.ts'

const timeoutMs = 5_000
const answerMaxChars = 262_144
const metadataFreshMs = 300_000
// Asymmetric ones only: a secret that two sides know proves nothing about the issuer.
const algorithms = ['RS256', 'RS384', 'RS512', 'PS256', 'PS384', 'PS512', 'ES256', 'ES384', 'EdDSA']

interface Metadata {
  readonly issuer: string
  readonly authorizationEndpoint: string
  readonly tokenEndpoint: string
  readonly keys: ReturnType<typeof createRemoteJWKSet>
}

export interface Started {
  readonly state: string
  readonly nonce: string
  readonly challenge: string
}

/** An outside OpenID provider: code flow with PKCE and nonce (OpenID Connect Core section 3.1). */
export function createProvider(
  { issuer, clientId, clientSecret }: LoginProviderConfig,
  redirectUri: string,
) {
  let held: { readonly at: number; readonly metadata: Metadata } | null = null

  /** Where to send the browser. UNAVAILABLE while the provider does not answer. */
  async function authorizationUrl({ state, nonce, challenge }: Started): Promise<string> {
    const { authorizationEndpoint } = await discover()
    const url = new URL(authorizationEndpoint)
    const parameters = {
      client_id: clientId,
      redirect_uri: redirectUri,
      response_type: 'code',
      scope: 'openid email profile',
      state,
      nonce,
      code_challenge: challenge,
      code_challenge_method: 'S256',
    }
    for (const [name, value] of Object.entries(parameters)) url.searchParams.set(name, value)
    return url.href
  }

  /** Who logged in there. ACCESS_DENIED when the code or its ID token is not good. */
  async function identify({
    code,
    verifier,
    nonce,
  }: {
    code: string
    verifier: string
    nonce: string
  }) {
    const metadata = await discover()
    const { ok, value } = await ask(metadata.tokenEndpoint, {
      method: 'POST',
      headers: { authorization: basic(clientId, clientSecret), accept: 'application/json' },
      body: new URLSearchParams({
        grant_type: 'authorization_code',
        code,
        redirect_uri: redirectUri,
        code_verifier: verifier,
      }),
    })
    const idToken = textMember(value, 'id_token')
    if (!ok || idToken === undefined) throw notLoggedIn()
    const claims = await verified(idToken, metadata)
    if (claims['nonce'] !== nonce || (claims['azp'] ?? clientId) !== clientId) throw notLoggedIn()
    return {
      issuer: metadata.issuer,
      subject: String(claims.sub),
      email: textMember(claims, 'email') ?? '',
      emailVerified: claims['email_verified'] === true,
      name: textMember(claims, 'name') ?? '',
    }
  }

  async function verified(idToken: string, metadata: Metadata) {
    try {
      const { payload } = await jwtVerify(idToken, metadata.keys, {
        issuer: metadata.issuer,
        audience: clientId,
        algorithms,
        clockTolerance: 60,
        requiredClaims: ['sub', 'exp', 'iat'],
      })
      return payload
    } catch (error) {
      if (error instanceof errors.JWKSTimeout || !(error instanceof errors.JOSEError))
        throw unreachable(error)
      throw notLoggedIn(error)
    }
  }

  async function discover(): Promise<Metadata> {
    if (held && Date.now() - held.at < metadataFreshMs) return held.metadata
    const { ok, value } = await ask(`${issuer}/.well-known/openid-configuration`, {})
    const text = (name: string): string => textMember(value, name) ?? ''
    const urls = [text('authorization_endpoint'), text('token_endpoint'), text('jwks_uri')]
    // OpenID Connect Discovery section 4.3; configured without its trailing slash, where it has one.
    const isItself = text('issuer').replace(/\/+$/, '') === issuer
    if (!ok || !isItself || !urls.every((url) => URL.canParse(url)))
      throw unreachable(new Error('the discovery document is not usable'))
    const [authorizationEndpoint = '', tokenEndpoint = '', jwksUri = ''] = urls
    const keys = createRemoteJWKSet(new URL(jwksUri), { timeoutDuration: timeoutMs })
    const metadata = { issuer: text('issuer'), authorizationEndpoint, tokenEndpoint, keys }
    held = { at: Date.now(), metadata }
    return metadata
  }

  return { authorizationUrl, identify, issuer: () => held?.metadata.issuer }
}

async function ask(url: string, init: RequestInit): Promise<{ ok: boolean; value: unknown }> {
  try {
    const response = await fetch(url, {
      ...init,
      redirect: 'error',
      signal: AbortSignal.timeout(timeoutMs),
    })
    const text = await response.text()
    if (text.length > answerMaxChars) throw new Error('the answer is too long')
    return { ok: response.ok, value: JSON.parse(text) }
  } catch (error) {
    throw unreachable(error)
  }
}

const unreachable = (cause: unknown): DomainError =>
  new DomainError('UNAVAILABLE', 'the login provider does not answer now; try again', { cause })

const notLoggedIn = (cause?: unknown): DomainError =>
  new DomainError('ACCESS_DENIED', 'the login provider did not confirm who you are; try again', {
    cause,
  })

// RFC 6749 section 2.3.1: both parts form-encoded.
const basic = (id: string, secret: string): string =>
  `Basic ${Buffer.from(`${encodeURIComponent(id)}:${encodeURIComponent(secret)}`).toString('base64')}`
