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
import { readBounded } from '../../core/lib/text/fetch.ts'
import { withoutFinalSlashes } from '../../core/lib/text/urls.ts'
import { DomainError } from '../../proto/errors.ts'
import type { LoginProviderConfig } from './config.ts'

const timeoutMs = 5_000
const answerMaxBytes = 262_144
const metadataMaxAgeMs = 300_000

/** The values that bind a provider's answer to the login that this browser began. */
export interface LoginSecrets {
  readonly state: string
  readonly nonce: string
  /** The PKCE code verifier. */
  readonly verifier: string
}

/** The person as the provider knows them. */
export interface ProviderIdentity {
  readonly issuer: string
  readonly subject: string
  readonly email: string
  readonly emailVerified: boolean
  readonly name: string
}

/** An outside OpenID provider: code flow with PKCE, state and nonce (OpenID Connect Core section 3.1). */
export function createProvider(
  { issuer, clientId, clientSecret }: LoginProviderConfig,
  redirectUri: string,
) {
  let cached: { readonly at: number; readonly client: Configuration } | null = null

  /** Where to send the browser. UNAVAILABLE while the provider does not answer. */
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
   * The person of the provider's answer, which is the query of the callback. ACCESS_DENIED when the answer, its code or
   * the ID token is not valid, UNAVAILABLE while the provider does not answer.
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
    // openid-client checks the authorized party only of an ID token with several audiences.
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
      ClientSecretBasic(clientSecret),
      {
        timeout: timeoutMs / 1_000,
        [customFetch]: boundedFetch,
        // The signature is checked although TLS protects the token endpoint: a proxy may end the TLS.
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
    // OpenID Connect Discovery section 4.3. The setting has no trailing slash; the provider's issuer may have one.
    const isItself = withoutFinalSlashes(metadata.issuer) === issuer
    if (!isItself || !urls.every((url) => url !== undefined && URL.canParse(url)))
      throw unreachable(new Error('the discovery document is not usable'))
    cached = { at: Date.now(), client }
    return client
  }

  /** The provider's own name, as `iss` of its answers holds it. UNAVAILABLE while the provider does not answer. */
  const issuerName = async (): Promise<string> => (await discoverClient()).serverMetadata().issuer

  return { authorizationUrl, identify, issuerName }
}

/** Fetches JSON of bounded length. UNAVAILABLE for network errors, time-outs and answers that are no JSON. */
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

/** Throws what `boundedFetch` threw, which openid-client wraps; ACCESS_DENIED for everything that it found invalid. */
function rethrow(thrown: unknown): never {
  for (let error = thrown; error instanceof Error; error = error.cause)
    if (error instanceof DomainError) throw error
  throw notLoggedIn(thrown)
}

const textOf = (claim: unknown): string => (typeof claim === 'string' ? claim : '')

const unreachable = (cause: unknown): DomainError =>
  new DomainError('UNAVAILABLE', 'the login provider does not answer now; try again', { cause })

const notLoggedIn = (cause?: unknown): DomainError =>
  new DomainError('ACCESS_DENIED', 'the login provider did not confirm who you are; try again', {
    cause,
  })
