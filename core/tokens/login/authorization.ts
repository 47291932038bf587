import { hash, randomBytes, randomUUID } from 'node:crypto'
import { DomainError } from '../../../proto/errors.ts'
import { audit } from '../../platform/audit.ts'
import type { Accounts, LiveSession } from '../../identity/accounts/accounts.ts'
import type { Users } from '../../identity/users/users.ts'
import { type AccountId, appId, authId, isClientId } from '../../platform/ids.ts'
import { type Pool, tx } from '../../lib/sql.ts'
import { type Now, addSeconds } from '../../lib/time.ts'
import * as store from './authorization-store.ts'
import { isRegistered } from './redirect-uris.ts'

export interface AuthorizationsDeps {
  readonly pool: Pool
  readonly issuer: string
  readonly accounts: Accounts
  readonly users: Users
  readonly codeTtlSeconds: number
  readonly now: Now
}

/** An authorization request (RFC 6749 section 4.1.1, RFC 7636) as the browser brought it. */
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
  readonly sessionToken?: string | undefined
}

/** What goes back to the redirect URI instead of a code. */
interface Refusal {
  readonly error: string
  readonly description: string
}

const codeKeptSeconds = 86_400
const challengeSyntax = /^[A-Za-z0-9_-]{43}$/
const prompts = ['none', 'login', 'consent', 'select_account']

/** The external id under which a dashboard account stands in an app. Integrators cannot give such ids (decision 8). */
export const accountSubject = (account: AccountId): string => `user:${account}`

/** Authorization code with PKCE: checks requests, remembers consent, hands out codes. */
export function createAuthorizations({
  pool,
  issuer,
  accounts,
  users,
  codeTtlSeconds,
  now,
}: AuthorizationsDeps) {
  /**
   * What the request asks for, and of whom. NOT_FOUND and REQUEST_INVALID while the redirect URI is not trusted;
   * afterwards `refusal` is for the redirect URI.
   */
  async function check(request: AuthorizationRequest) {
    const client = isClientId(request.clientId)
      ? await store.findLoginClient(pool, request.clientId)
      : null
    if (!client)
      throw new DomainError('NOT_FOUND', 'the application that sent you here is not known')
    if (!isRegistered(request.redirectUri, client.redirect_uris)) {
      throw new DomainError(
        'REQUEST_INVALID',
        'the address to return to is not registered for this application',
      )
    }
    const scopes = scopesOf(request.scope, client.scopes)
    const session =
      request.sessionToken === undefined ? null : await liveSession(request.sessionToken)
    const asked = promptsOf(request.prompt)
    const needsConsent =
      session === null ||
      asked.includes('consent') ||
      !(await hasConsented(client.client_id, session.account.id, scopes))
    const refusal =
      refusalOf(request, { client, scopes }) ??
      silentRefusal(asked, { loggedIn: session !== null, needsConsent })
    return { client, scopes, session, needsConsent, refusal }
  }

  function refusalOf(
    request: AuthorizationRequest,
    { client, scopes }: { client: store.LoginClient; scopes: readonly string[] },
  ): Refusal | null {
    if (client.app_status !== 'active' || !client.grant_types.includes('authorization_code')) {
      return refuse('unauthorized_client', 'the client may not use the authorization code grant')
    }
    if (request.responseType === '') return refuse('invalid_request', 'response_type is required')
    if (request.responseType !== 'code')
      return refuse('unsupported_response_type', 'response_type must be code')
    if (request.codeChallenge === undefined)
      return refuse('invalid_request', 'code_challenge is required (PKCE)')
    if (request.codeChallengeMethod !== 'S256')
      return refuse('invalid_request', 'code_challenge_method must be S256')
    if (!challengeSyntax.test(request.codeChallenge)) {
      return refuse('invalid_request', 'code_challenge must be 43 characters of base64url')
    }
    if ((request.nonce ?? '').length > 512)
      return refuse('invalid_request', 'nonce is longer than 512 characters')
    if (promptsOf(request.prompt).some((prompt) => !prompts.includes(prompt))) {
      return refuse('invalid_request', `prompt must be of: ${prompts.join(', ')}`)
    }
    if (request.resource !== undefined && request.resource !== issuer) {
      return refuse('invalid_target', 'resource must be the issuer, or be left out')
    }
    if (scopes.length === 0 || scopes.some((scope) => !client.scopes.includes(scope))) {
      return refuse('invalid_scope', `scope must be of: ${client.scopes.join(' ')}`)
    }
    return null
  }

  async function hasConsented(
    clientId: string,
    account: AccountId,
    scopes: readonly string[],
  ): Promise<boolean> {
    const given = await store.consentedScopes(pool, clientId, account)
    return scopes.every((scope) => given.includes(scope))
  }

  /** The session, or null: one that is over is like none. */
  async function liveSession(token: string): Promise<LiveSession | null> {
    return accounts.session(token).catch((error: unknown) => {
      if (error instanceof DomainError && error.reason === 'TOKEN_INVALID') return null
      throw error
    })
  }

  /** Remembers the consent of the session's account and hands out a code that lives for a minute, once. */
  async function grant(request: AuthorizationRequest): Promise<string> {
    const { client, scopes, session, refusal } = await check({ ...request, prompt: undefined })
    if (refusal) throw new DomainError('REQUEST_INVALID', refusal.description)
    if (!session || !isClientId(client.client_id))
      throw new DomainError('TOKEN_INVALID', 'log in first')
    const user = await userOf(client, session)
    const code = randomBytes(32).toString('base64url')
    const at = now()
    await tx(pool, async (db) => {
      const accountId = session.account.id
      await store.addConsent(db, { clientId: client.client_id, accountId, scopes, at })
      await store.insertCode(db, {
        codeHash: hash('sha256', code, 'buffer'),
        clientId: user.clientId,
        accountId,
        userId: user.id,
        familyId: randomUUID(),
        redirectUri: request.redirectUri,
        scope: scopes.join(' '),
        nonce: request.nonce ?? null,
        codeChallenge: request.codeChallenge ?? '',
        authTime: session.authTime,
        at,
        expiresAt: addSeconds(at, codeTtlSeconds),
      })
      await audit(db, {
        appId: appId(client.app_id),
        actor: accountSubject(accountId),
        action: 'authorization_granted',
        status: 'success',
        at,
        details: { userId: user.id, scope: scopes.join(' ') },
      })
    })
    return code
  }

  /** The end user that the account is in the app, made on first use. ACCESS_DENIED when the app has ended it. */
  async function userOf(client: store.LoginClient, session: LiveSession) {
    const externalUserId = accountSubject(session.account.id)
    const found = await users.resolveSubjects([{ clientId: client.client_id, externalUserId }])
    const subject = found.get(authId(client.client_id, externalUserId))
    const user = subject ? await users.findById(subject.appId, subject.userId) : null
    if (user?.status !== 'active' || !isClientId(client.client_id)) {
      throw new DomainError('ACCESS_DENIED', 'this application has ended your access')
    }
    return { id: user.id, clientId: client.client_id }
  }

  /** The registered address that begins a login; NOT_FOUND unless the client takes logins begun by others. */
  async function initiateLoginUri(clientId: string): Promise<string> {
    const client = isClientId(clientId) ? await store.findLoginClient(pool, clientId) : null
    if (
      client?.app_status !== 'active' ||
      !client.device_third_party_initiate_login ||
      client.initiate_login_uri === null
    ) {
      throw new DomainError('NOT_FOUND', 'the application that sent you here does not begin logins')
    }
    return client.initiate_login_uri
  }

  const forgetEnded = (): Promise<void> =>
    store.forgetCodes(pool, addSeconds(now(), -codeKeptSeconds))

  return { check, grant, initiateLoginUri, forgetEnded }
}

export type Authorizations = ReturnType<typeof createAuthorizations>

const refuse = (error: string, description: string): Refusal => ({ error, description })

/** prompt=none: whoever asks so wants an answer without any page (OpenID Connect Core section 3.1.2.1). */
function silentRefusal(
  asked: readonly string[],
  { loggedIn, needsConsent }: { loggedIn: boolean; needsConsent: boolean },
): Refusal | null {
  if (!asked.includes('none')) return null
  if (asked.length > 1) return refuse('invalid_request', 'prompt=none stands alone')
  if (!loggedIn) return refuse('login_required', 'nobody is logged in')
  return needsConsent
    ? refuse('consent_required', 'the person has not consented to these scopes')
    : null
}

const promptsOf = (prompt: string | undefined): string[] =>
  (prompt ?? '').split(' ').filter(Boolean)

function scopesOf(requested: string | undefined, allowed: readonly string[]): string[] {
  if (requested === undefined) return [...allowed]
  return requested.length > 1_000 ? [] : [...new Set(requested.split(' ').filter(Boolean))]
}
