import { DomainError } from '../../proto/errors.ts'
import {
  type AccountId,
  type AppId,
  type ClientId,
  type ExternalUserId,
  type M2mClientId,
  type UserId,
  isClientId,
} from '../platform/ids.ts'
import { type BasicPair, basicPairs } from '../lib/basic.ts'

/** Who authenticated this request, with scopes. A credential becomes a Caller once, before any handler. */
export interface ServiceCaller {
  readonly kind: 'service'
}
export interface M2mCaller {
  readonly kind: 'm2m'
  readonly appId: AppId
  readonly clientId: ClientId
  readonly m2mClientId: M2mClientId
  readonly scopes: readonly string[]
  /** What the app's public client may have: the bound of minted tokens (decision 14). */
  readonly publicScopes: readonly string[]
}
export interface UserCaller {
  readonly kind: 'user'
  readonly appId: AppId
  readonly clientId: ClientId
  readonly userId: UserId
  readonly externalUserId: ExternalUserId
  readonly scopes: readonly string[]
}
/** A person with a dashboard session. */
export interface AccountCaller {
  readonly kind: 'account'
  readonly accountId: AccountId
  readonly email: string
  readonly isPlatformAdmin: boolean
}
export const roles = ['owner', 'admin', 'viewer'] as const
export type Role = (typeof roles)[number]
/** A person who may see an app, and as what. A platform admin is an owner everywhere. */
export interface MemberCaller {
  readonly kind: 'member'
  readonly appId: AppId
  readonly clientId: ClientId
  readonly accountId: AccountId
  readonly email: string
  readonly role: Role
  readonly isPlatformAdmin: boolean
}
/** The request's own credential, not looked at yet: for the RPCs that are about the credential itself. */
export interface BearerCaller {
  readonly kind: 'bearer'
  readonly token: string
}
/** Client credentials that the handler has judged when its turn comes; null when none were sent. */
export interface ClientCaller {
  readonly kind: 'client'
  authenticate(): Promise<M2mCaller | null>
}
export type Caller =
  | ClientCaller
  | ServiceCaller
  | M2mCaller
  | UserCaller
  | BearerCaller
  | AccountCaller
  | MemberCaller

/** What `authorization` may hold. */
export type Credential =
  | { readonly scheme: 'none' }
  | { readonly scheme: 'basic'; readonly pairs: readonly BasicPair[] }
  | { readonly scheme: 'bearer'; readonly token: string }
  | { readonly scheme: 'malformed' }

/** Turns a credential into a caller; both throw CREDENTIAL_INVALID or TOKEN_INVALID. */
export interface Authenticator {
  m2mByBasic(pairs: readonly BasicPair[]): Promise<M2mCaller>
  m2mByToken(token: string): Promise<M2mCaller>
  userByToken(token: string): Promise<UserCaller>
  /** TOKEN_INVALID when the session is over. */
  accountBySession(token: string): Promise<AccountCaller>
  /** Null when the app is unknown or the account may not see it. */
  memberOf(account: AccountCaller, clientId: ClientId): Promise<MemberCaller | null>
}

export interface GuardedRequest {
  readonly credential: Credential
  /** The app the request names, when it names one. */
  readonly clientId: string | undefined
  /** The dashboard session's token, when the gateway sent one. */
  readonly session: string | undefined
}

/** Lets a request through as a caller of kind `C`, or throws the first refusal in the order of decision 13. */
export type Guard<C extends Caller> = (
  request: GuardedRequest,
  authenticator: Authenticator,
) => Promise<C>

const bearerSyntax = /^[A-Za-z0-9\-._~+/]+=*$/

/** Parses an `authorization` value: schemes in any case, Basic split at its first colon (RFC 7617). */
export function parseCredential(authorization: string | undefined): Credential {
  if (authorization === undefined || authorization.trim() === '') return { scheme: 'none' }
  const [scheme = '', ...rest] = authorization.trim().split(/ +/)
  const value = rest.join(' ')
  if (scheme.toLowerCase() === 'bearer') {
    return bearerSyntax.test(value) ? { scheme: 'bearer', token: value } : { scheme: 'malformed' }
  }
  if (scheme.toLowerCase() !== 'basic') return { scheme: 'malformed' }
  const pairs = basicPairs(Buffer.from(value, 'base64').toString('utf8'))
  return pairs.length > 0 ? { scheme: 'basic', pairs } : { scheme: 'malformed' }
}

const noSuchApp = (): DomainError => new DomainError('NOT_FOUND', 'no such app for this credential')

function requireOwnApp(caller: M2mCaller | UserCaller, clientId: string | undefined): void {
  if (clientId === undefined) return
  if (!isClientId(clientId) || caller.clientId !== clientId) throw noSuchApp()
}

/** One of our processes, or an operator's command: the service token was right and nothing else is asked. */
export const service = (): Guard<ServiceCaller> => async () => ({ kind: 'service' })

/** The same as `service`, named for RPCs that an operator calls. */
export const operator = service

/** An M2M client by Basic or machine token, of the named app, with `scope`: 401, then 404, then 403. */
export const m2m =
  (scope: string): Guard<M2mCaller> =>
  async (request, authenticator) => {
    const caller = await m2mCaller(request.credential, authenticator)
    requireOwnApp(caller, request.clientId)
    if (!caller.scopes.includes(scope)) {
      throw new DomainError('SCOPE_MISSING', `the client lacks the scope ${scope}`)
    }
    return caller
  }

async function m2mCaller(credential: Credential, authenticator: Authenticator): Promise<M2mCaller> {
  if (credential.scheme === 'basic') return authenticator.m2mByBasic(credential.pairs)
  if (credential.scheme === 'bearer') return authenticator.m2mByToken(credential.token)
  throw new DomainError(
    'CREDENTIAL_INVALID',
    'send the M2M client id and secret as HTTP Basic, or a machine token as Bearer',
  )
}

/** M2M Basic only. No credential, and Bearer, are answered 404 like another's app (decision 13). */
export const m2mBasic = (): Guard<M2mCaller> => async (request, authenticator) => {
  if (request.credential.scheme !== 'basic') throw noSuchApp()
  const caller = await authenticator.m2mByBasic(request.credential.pairs)
  requireOwnApp(caller, request.clientId)
  return caller
}

/** The M2M client of no particular app: the token endpoint, where the credential says which. */
export const m2mSelf = (): Guard<M2mCaller> => async (request, authenticator) => {
  if (request.credential.scheme === 'basic')
    return authenticator.m2mByBasic(request.credential.pairs)
  throw new DomainError('CREDENTIAL_INVALID', 'client authentication failed')
}

/** Client credentials are optional, and other checks come before them (identity facts 6.2). */
export const optionalClient = (): Guard<ClientCaller> => async (request, authenticator) => ({
  kind: 'client',
  authenticate: async () =>
    request.credential.scheme === 'none' ? null : m2mSelf()(request, authenticator),
})

/** An end user by user JWT. */
export const user = (): Guard<UserCaller> => async (request, authenticator) => {
  if (request.credential.scheme !== 'bearer') {
    throw new DomainError('TOKEN_INVALID', 'send a user token as Bearer')
  }
  const caller = await authenticator.userByToken(request.credential.token)
  requireOwnApp(caller, request.clientId)
  return caller
}

/** A person with a dashboard session: 401 without one. */
export const session = (): Guard<AccountCaller> => async (request, authenticator) => {
  if (request.session === undefined) throw new DomainError('TOKEN_INVALID', 'log in first')
  return authenticator.accountBySession(request.session)
}

/** What a session may do with an app: any member reads; owner and admin edit; the owner, and a platform admin, own. */
export type Rights = 'read' | 'edit' | 'own'

const holders: Readonly<Record<Rights, readonly Role[]>> = {
  read: ['owner', 'admin', 'viewer'],
  edit: ['owner', 'admin'],
  own: ['owner'],
}

/** A member of the named app with those rights: 401 without a session, 404 for an app one may not see, 403. */
export const member =
  (rights: Rights): Guard<MemberCaller> =>
  async (request, authenticator) => {
    const account = await session()(request, authenticator)
    const caller =
      request.clientId !== undefined && isClientId(request.clientId)
        ? await authenticator.memberOf(account, request.clientId)
        : null
    if (!caller) throw noSuchApp()
    if (!holders[rights].includes(caller.role)) {
      throw new DomainError(
        'EDIT_FORBIDDEN',
        `your role in this app, ${caller.role}, does not allow this`,
      )
    }
    return caller
  }

/** The app's M2M client (no scope asked) or a member who may read. Nobody at all is answered 404 (decision 13). */
export const m2mOrMember =
  (): Guard<M2mCaller | MemberCaller> => async (request, authenticator) => {
    if (request.credential.scheme === 'none') {
      if (request.session === undefined) throw noSuchApp()
      return member('read')(request, authenticator)
    }
    const caller = await m2mCaller(request.credential, authenticator)
    requireOwnApp(caller, request.clientId)
    return caller
  }

/**
 * Where metering is not configured, or its backend cannot be reached, whoever passed the guard learns that, before
 * their request is read (decision 4). The figures themselves stay the ledger's, exact.
 */
export const createMetered =
  (requireAnswers: () => Promise<void>) =>
  <C extends Caller>(guard: Guard<C>): Guard<C> =>
  async (request, authenticator) => {
    const caller = await guard(request, authenticator)
    await requireAnswers()
    return caller
  }
export type Metered = ReturnType<typeof createMetered>

/** Any Bearer; the handler itself finds out what it is worth. */
export const bearer = (): Guard<BearerCaller> => async (request) => {
  if (request.credential.scheme !== 'bearer')
    throw new DomainError('CREDENTIAL_INVALID', 'send the API key as Bearer')
  return { kind: 'bearer', token: request.credential.token }
}

/** No caller at all: public facts. */
export const anyone = service
