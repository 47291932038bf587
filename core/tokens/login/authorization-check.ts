import { hash } from 'node:crypto'
import { DomainError } from '../../../proto/errors.ts'
import { GrantType } from '../../../proto/oauth.ts'
import { Scope } from '../../../proto/scopes.ts'
import type { Accounts } from '../../identity/accounts/accounts.ts'
import type { LiveSession } from '../../identity/accounts/sessions.ts'
import type { Clients, PublicClient } from '../../identity/apps/clients.ts'
import type { LoginAdmission } from '../../identity/members/login-policy.ts'
import { createResourceCheck } from '../../lib/names/resources.ts'
import { type AccountId, isRegisteredClientId } from '../../shared/ids.ts'
import type { Shared } from '../../shared/shared.ts'
import { splitScopes } from '../scopes.ts'
import type { IdTokenHints } from './id-token-hints.ts'
import * as store from './store.ts'

export type AuthorizationCheckDeps = Shared & {
  readonly issuer: string
  /** Origin of the builder API's edge. */
  readonly edgeUrl: string | undefined
  readonly accounts: Pick<Accounts, 'session'>
  readonly clients: Pick<Clients, 'findPublicOrDisabled'>
  readonly idTokenHints: IdTokenHints
  readonly loginPolicy: LoginAdmission
}

/** An authorization request (RFC 6749 section 4.1.1, RFC 7636) from the browser. */
export interface AuthorizationRequest {
  readonly clientId: string
  readonly redirectUri: string
  readonly responseType: string
  readonly scope?: string | undefined
  readonly codeChallenge?: string | undefined
  readonly codeChallengeMethod?: string | undefined
  readonly nonce?: string | undefined
  readonly prompt?: string | undefined
  readonly resource?: string | undefined
  readonly idTokenHint?: string | undefined
  readonly sessionToken?: string | undefined
}

/** An error for the redirect URI (RFC 6749 section 4.1.2.1). */
interface Refusal {
  readonly error: string
  readonly description: string
}

const challengeSyntax = /^[A-Za-z0-9_-]{43}$/

const knownPrompts = ['none', 'login', 'consent', 'select_account']

const nonceMax = 512

const scopeMax = 1_000

/** Checks authorization requests, with their client, session and person. */
export function createAuthorizationCheck(deps: AuthorizationCheckDeps) {
  const { pool, accounts, clients } = deps
  const isResource = createResourceCheck(deps)
  const { idTokenHints, loginPolicy } = deps

  /**
   * Returns the client, scopes and session of a request. Throws NOT_FOUND or REQUEST_INVALID until
   * the redirect URI is trusted. Later problems are returned as `refusal`, which is sent to the
   * redirect URI.
   */
  async function check(request: AuthorizationRequest) {
    const client = await clients.findPublicOrDisabled(request.clientId)
    if (!client) throw new DomainError('NOT_FOUND', 'the application that sent you here is unknown')
    if (!isRegistered(request.redirectUri, client.redirectUris)) {
      throw new DomainError(
        'REQUEST_INVALID',
        'the address to return to is not registered for this application',
      )
    }
    const scopes = scopesOf(request.scope, client.scopes)
    const session =
      request.sessionToken === undefined ? null : await findSession(request.sessionToken)
    const prompts = promptsOf(request.prompt)
    const needsConsent =
      session === null ||
      prompts.includes('consent') ||
      !isExclusive(request.redirectUri) ||
      !(await hasConsented(client, session.account.id, scopes))
    const refusal =
      refuseRequest(request, client) ??
      refusePkce(request) ??
      refuseParameters(request, { isResource, prompts }) ??
      refuseScopes(scopes, client) ??
      (await refusePerson(request, { client, session })) ??
      refuseSilent(prompts, { isLoggedIn: session !== null, needsConsent })
    return { client, scopes, session, needsConsent, refusal }
  }

  /**
   * OpenID Connect Core section 3.1.2.1: refuses with login_required unless the hint's person is
   * logged in.
   */
  async function refuseHint(
    { idTokenHint }: AuthorizationRequest,
    { client, session }: { client: PublicClient; session: LiveSession | null },
  ): Promise<Refusal | null> {
    if (idTokenHint === undefined) return null
    const hint = await idTokenHints.read(idTokenHint)
    if (hint?.clientId !== client.clientId)
      return refuse('invalid_request', 'id_token_hint is not an ID token of this client')
    if (session === null) return null
    return (await idTokenHints.accountOf(client, hint.subject)) === session.account.id
      ? null
      : refuse('login_required', 'another account is logged in')
  }

  /**
   * Refuses a logged-in person who is not the person of the hint, or who may not log in to the app.
   */
  async function refusePerson(
    request: AuthorizationRequest,
    { client, session }: { client: PublicClient; session: LiveSession | null },
  ): Promise<Refusal | null> {
    const mistaken = await refuseHint(request, { client, session })
    if (mistaken) return mistaken
    const refusal = session === null ? null : await loginPolicy.refusalOf(client, session.account)
    return refusal === null ? null : refuse('access_denied', refusal)
  }

  async function hasConsented(
    client: PublicClient,
    accountId: AccountId,
    scopes: readonly string[],
  ): Promise<boolean> {
    const { clientId } = client
    const owner = { clientId, clientHash: hashClient(client), accountId }
    const consented = await store.consentedScopes(pool, owner)
    return scopes.every((scope) => consented.includes(scope))
  }

  /** Returns the session; null when it has ended. */
  async function findSession(token: string): Promise<LiveSession | null> {
    return accounts.session(token).catch((error: unknown) => {
      if (error instanceof DomainError && error.reason === 'TOKEN_INVALID') return null
      throw error
    })
  }

  return check
}

/**
 * Hashes what a person consents to in a registered client: the displayed name and the redirect
 * URIs. Returns null for an app's own client, which only the app can change.
 */
export function hashClient({ clientId, appName, redirectUris }: PublicClient): Buffer | null {
  if (!isRegisteredClientId(clientId)) return null
  return hash('sha256', JSON.stringify([appName, redirectUris.toSorted()]), 'buffer')
}

const refuse = (error: string, description: string): Refusal => ({ error, description })

function refuseRequest(request: AuthorizationRequest, client: PublicClient): Refusal | null {
  if (!client.isAppActive || !client.grantTypes.includes(GrantType.authorizationCode)) {
    return refuse('unauthorized_client', 'the client may not use the authorization code grant')
  }
  if (request.responseType === '') return refuse('invalid_request', 'response_type is required')
  return request.responseType === 'code'
    ? null
    : refuse('unsupported_response_type', 'response_type must be code')
}

/** RFC 7636 section 4.3, method S256 only. */
function refusePkce(request: AuthorizationRequest): Refusal | null {
  if (request.codeChallenge === undefined)
    return refuse('invalid_request', 'code_challenge is required (PKCE)')
  if (request.codeChallengeMethod !== 'S256')
    return refuse('invalid_request', 'code_challenge_method must be S256')
  return challengeSyntax.test(request.codeChallenge)
    ? null
    : refuse('invalid_request', 'code_challenge must be 43 characters of base64url')
}

function refuseParameters(
  { nonce = '', resource }: AuthorizationRequest,
  { isResource, prompts }: { isResource: (target: string) => boolean; prompts: readonly string[] },
): Refusal | null {
  if (nonce.length > nonceMax)
    return refuse('invalid_request', `nonce is longer than ${nonceMax} characters`)
  if (prompts.some((prompt) => !knownPrompts.includes(prompt)))
    return refuse('invalid_request', `prompt may contain only: ${knownPrompts.join(', ')}`)
  return resource === undefined || isResource(resource)
    ? null
    : refuse(
        'invalid_target',
        'resource must be the issuer or a resource at the edge, or be left out',
      )
}

const refuseScopes = (scopes: readonly string[], client: PublicClient): Refusal | null =>
  scopes.length === 0 || scopes.some((scope) => !client.scopes.includes(scope))
    ? refuse('invalid_scope', `scope may contain only: ${client.scopes.join(' ')}`)
    : null

/** prompt=none requires a response without any page (OpenID Connect Core section 3.1.2.1). */
function refuseSilent(
  prompts: readonly string[],
  { isLoggedIn, needsConsent }: { isLoggedIn: boolean; needsConsent: boolean },
): Refusal | null {
  if (!prompts.includes('none')) return null
  if (prompts.length > 1)
    return refuse('invalid_request', 'prompt=none cannot be combined with other values')
  if (!isLoggedIn) return refuse('login_required', 'no user is logged in')
  return needsConsent
    ? refuse('consent_required', 'the user has not consented to these scopes')
    : null
}

const promptsOf = (prompt: string | undefined): string[] =>
  (prompt ?? '').split(' ').filter(Boolean)

/**
 * Parses the requested scopes. Ignores offline_access if the client may not have it (OpenID Connect
 * Core section 11), because clients add it to every request when the issuer's metadata lists it.
 */
function scopesOf(requested: string | undefined, allowed: readonly string[]): string[] {
  if (requested === undefined) return [...allowed]
  if (requested.length > scopeMax) return []
  return splitScopes(requested).filter(
    (scope) => scope !== Scope.offlineAccess || allowed.includes(scope),
  )
}

/**
 * Whether only the client can receive what is sent to the URI. Any program on a device can listen
 * at a loopback address or claim a private-use scheme, so the person must confirm the client every
 * time (RFC 8252 section 8.6).
 */
const isExclusive = (redirectUri: string): boolean => redirectUri.startsWith('https://')

/** http on a loopback address by number or name: host, port, and the rest. */
const loopback = /^http:\/\/(127\.0\.0\.1|\[::1\]|localhost)(?::\d{1,5})?((?:[/?].*)?)$/

/**
 * Whether `requested` is one of the registered redirect URIs. Compares them exactly, except that a
 * loopback URI may have any port (RFC 8252 section 7.3). Prefixes and patterns never match.
 */
export function isRegistered(requested: string, registered: readonly string[]): boolean {
  if (registered.includes(requested)) return true
  const [, host, rest] = loopback.exec(requested) ?? []
  if (host === undefined || !URL.canParse(requested)) return false
  return registered.some((uri) => {
    const known = loopback.exec(uri)
    return known !== null && known[1] === host && known[2] === rest
  })
}
