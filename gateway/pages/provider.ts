import {
  type Configuration,
  ClientSecretBasic,
  type CustomFetch,
  allowInsecureRequests,
  authorizationCodeGrant,
  buildAuthorizationUrl,
  calculatePKCECodeChallenge,
  clockTolerance,
  customFetch,
  discovery,
  enableNonRepudiationChecks,
} from 'openid-client'
import { currentValue } from '../../core/lib/settings/reloadable.ts'
import { readBounded } from '../../core/lib/text/fetch.ts'
import { withoutFinalSlashes } from '../../core/lib/text/urls.ts'
import { DomainError } from '../../proto/errors.ts'
import type { LoginProviderConfig } from './config.ts'

const timeoutMs = 5_000
const answerMaxBytes = 262_144
const metadataMaxAgeMs = 300_000

/** Values that bind a provider's answer to the login that this browser started. */
export interface LoginSecrets {
  readonly state: string
  readonly nonce: string
  /** The PKCE code verifier. */
  readonly verifier: string
}

/** The person according to the provider. */
export interface ProviderIdentity {
  readonly issuer: string
  readonly subject: string
  readonly email: string
  readonly emailVerified: boolean
  readonly name: string
}

/**
 * An external OpenID provider: code flow with PKCE, state and nonce (OpenID Connect Core section
 * 3.1).
 */
export function createProvider(
  { issuer, clientId, clientSecret }: LoginProviderConfig,
  redirectUri: string,
) {
  let cached: { readonly at: number; readonly client: Configuration } | null = null

  /**
   * Returns the URL to redirect the browser to. Throws UNAVAILABLE if the provider does not answer.
   */
  async function authorizationUrl({ state, nonce, verifier }: LoginSecrets): Promise<string> {
    const url = buildAuthorizationUrl(await discoverClient(), {
      redirect_uri: redirectUri,
      scope: 'openid email profile',
      state,
      nonce,
      code_challenge: await calculatePKCECodeChallenge(verifier),
      code_challenge_method: 'S256',
    })
    return url.href
  }

  /**
   * Returns the person from the provider's answer, which is the callback's query. Throws
   * ACCESS_DENIED if the answer, its code or the ID token is invalid, UNAVAILABLE if the provider
   * does not answer.
   */
  async function identify(
    answer: URLSearchParams,
    { state, nonce, verifier }: LoginSecrets,
  ): Promise<ProviderIdentity> {
    const client = await discoverClient()
    const checks = { expectedState: state, expectedNonce: nonce, pkceCodeVerifier: verifier }
    const callback = new URL(`${redirectUri}?${answer.toString()}`)
    const tokens = await authorizationCodeGrant(client, callback, checks).catch(rethrow)
    const claims = tokens.claims()
    // openid-client checks the authorized party only if the ID token has several audiences.
    if (!claims || (claims['azp'] ?? clientId) !== clientId) throw notLoggedIn()
    return {
      issuer: client.serverMetadata().issuer,
      subject: claims.sub,
      email: textOf(claims['email']),
      emailVerified: claims['email_verified'] === true,
      name: textOf(claims['name']),
    }
  }

  async function discoverClient(): Promise<Configuration> {
    if (cached && Date.now() - cached.at < metadataMaxAgeMs) return cached.client
    const client = await discovery(
      new URL(`${issuer}/.well-known/openid-configuration`),
      clientId,
      { [clockTolerance]: 60 },
      // Looked up for each request, because the discovered configuration outlives a reload.
      (...request) => ClientSecretBasic(currentValue(clientSecret))(...request),
      {
        timeout: timeoutMs / 1_000,
        [customFetch]: boundedFetch,
        // The signature is checked although TLS protects the token endpoint, because a proxy may
        // terminate TLS.
        execute: [
          enableNonRepudiationChecks,
          ...(issuer.startsWith('http:') ? [allowInsecureRequests] : []),
        ],
      },
    ).catch((error: unknown) => {
      throw unreachable(error)
    })
    const metadata = client.serverMetadata()
    const { authorization_endpoint, token_endpoint, jwks_uri } = metadata
    const urls = [authorization_endpoint, token_endpoint, jwks_uri]
    // OpenID Connect Discovery section 4.3. The setting has no trailing slash; the provider's
    // issuer may have one.
    const isItself = withoutFinalSlashes(metadata.issuer) === issuer
    if (!isItself || !urls.every((url) => url !== undefined && URL.canParse(url)))
      throw unreachable(new Error('the discovery document is not valid'))
    cached = { at: Date.now(), client }
    return client
  }

  /**
   * Returns the issuer as the provider's answers contain it in `iss`. Throws UNAVAILABLE if the
   * provider does not answer.
   */
  const issuerName = async (): Promise<string> => (await discoverClient()).serverMetadata().issuer

  return { authorizationUrl, identify, issuerName }
}

/**
 * Fetches JSON of limited length. Throws UNAVAILABLE for network errors, time-outs and answers that
 * are not JSON.
 */
const boundedFetch: CustomFetch = async (url, { body = null, signal = null, ...options }) => {
  try {
    const response = await fetch(url, { ...options, body, signal })
    const text = await readBounded(response.body, answerMaxBytes)
    if (text === null) throw new Error('the answer is too long')
    JSON.parse(text)
    if (options.method === 'GET' && !response.ok)
      throw new Error(`the answer has status ${response.status}`)
    return new Response(text, { status: response.status, headers: response.headers })
  } catch (error) {
    throw unreachable(error)
  }
}

/**
 * Rethrows the error of `boundedFetch`, which openid-client wraps. Throws ACCESS_DENIED for
 * anything that openid-client found invalid.
 */
function rethrow(thrown: unknown): never {
  for (let error = thrown; error instanceof Error; error = error.cause)
    if (error instanceof DomainError) throw error
  throw notLoggedIn(thrown)
}

const textOf = (claim: unknown): string => (typeof claim === 'string' ? claim : '')

const unreachable = (cause: unknown): DomainError =>
  new DomainError('UNAVAILABLE', 'the login provider is unavailable now; try again', { cause })

const notLoggedIn = (cause?: unknown): DomainError =>
  new DomainError('ACCESS_DENIED', 'the login provider did not confirm your identity; try again', {
    cause,
  })
