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
import type { Actor } from '../platform/audit.ts'
import { operatorName } from '../platform/operator-log.ts'
import { type BasicPair, basicPairs } from '../lib/http.ts'
import type { ServiceRole } from '../lib/core-link/address.ts'

/** One of our own processes, or an operator's command. */
export interface ServiceCaller {
  readonly kind: 'service'
}
/** An app's M2M client. */
export interface M2mCaller {
  readonly kind: 'm2m'
  readonly appId: AppId
  readonly clientId: ClientId
  readonly m2mClientId: M2mClientId
  readonly scopes: readonly string[]
  /**
   * Scopes of the app's public client, which limit the tokens that this client mints (decision 14).
   */
  readonly publicScopes: readonly string[]
  /**
   * Grants from which this caller's credential descends. Credentials issued to the caller descend
   * from them, too (docs/revocation.md).
   */
  readonly grants: readonly string[]
}
/** An end user. */
export interface UserCaller {
  readonly kind: 'user'
  readonly appId: AppId
  readonly clientId: ClientId
  readonly userId: UserId
  readonly externalUserId: ExternalUserId
  readonly scopes: readonly string[]
}
/** The tenant of an app, or its M2M client, when creating users of that app at the builder API. */
export interface ProvisionerCaller {
  readonly kind: 'provisioner'
  readonly appId: AppId
  readonly clientId: ClientId
  /** Client id, for the audit log. */
  readonly name: string
  /**
   * Grants from which this caller's credential descends. Keys issued to the caller descend from
   * them, too.
   */
  readonly grants: readonly string[]
}
/** A person with a dashboard session. */
export interface AccountCaller {
  readonly kind: 'account'
  readonly accountId: AccountId
  readonly email: string
  readonly isPlatformAdmin: boolean
  /** Grants from which the logins that this person allows descend. */
  readonly grants: readonly string[]
}
export const roles = ['owner', 'admin', 'viewer'] as const
export type Role = (typeof roles)[number]
/** A person who may see an app, with their role in it. A platform admin is an owner everywhere. */
export interface MemberCaller {
  readonly kind: 'member'
  readonly appId: AppId
  readonly clientId: ClientId
  readonly accountId: AccountId
  readonly email: string
  readonly role: Role
  readonly isPlatformAdmin: boolean
}
/** An unverified Bearer credential, for RPCs that act on the credential itself. */
export interface BearerCaller {
  readonly kind: 'bearer'
  readonly token: string
}
/** Client credentials that the handler verifies itself, after its other checks. */
export interface ClientCaller {
  readonly kind: 'client'
  /** Returns null if no credentials were sent. Throws CREDENTIAL_INVALID for wrong ones. */
  authenticate(): Promise<M2mCaller | null>
}
/**
 * The authenticated sender of a request. A credential becomes a caller once, before any handler
 * runs.
 */
export type Caller =
  | ClientCaller
  | ServiceCaller
  | M2mCaller
  | UserCaller
  | ProvisionerCaller
  | BearerCaller
  | AccountCaller
  | MemberCaller

/** A parsed `authorization` value. */
export type Credential =
  | { readonly scheme: 'none' }
  | { readonly scheme: 'basic'; readonly pairs: readonly BasicPair[] }
  | { readonly scheme: 'bearer'; readonly token: string }
  | { readonly scheme: 'malformed' }

/**
 * Turns credentials into callers. Every function throws CREDENTIAL_INVALID or TOKEN_INVALID for an
 * invalid credential.
 */
export interface Authenticator {
  m2mByBasic(pairs: readonly BasicPair[]): Promise<M2mCaller>
  m2mByToken(token: string): Promise<M2mCaller>
  userByToken(token: string): Promise<UserCaller>
  /**
   * Like `userByToken`, but also accepts tokens of issuers that an app trusts. Throws NOT_FOUND if
   * `clientId` is given and is not the token's app.
   */
  actorByToken(token: string, clientId: string | undefined): Promise<UserCaller>
  /** The user who owns the builder API key. */
  userByBuilderKey(key: string): Promise<UserCaller>
  /**
   * The caller who may create users of the app at the builder API. Throws NOT_FOUND for another
   * tenant's app, and SCOPE_MISSING.
   */
  provisionerByBasic(
    pairs: readonly BasicPair[],
    clientId: string | undefined,
  ): Promise<ProvisionerCaller>
  /** Throws TOKEN_INVALID if the session is over. */
  accountBySession(token: string): Promise<AccountCaller>
  /** Null if the app is unknown or the account may not see it. */
  memberOf(account: AccountCaller, clientId: ClientId): Promise<MemberCaller | null>
}

export interface GuardedRequest {
  readonly credential: Credential
  /** The app that the request names, if any. */
  readonly clientId: string | undefined
  /** The dashboard session's token, if the gateway sent one. */
  readonly session: string | undefined
}

/**
 * Admits a request as a caller of kind `C`, or throws the first error in the order of decision 13.
 */
export type Admit<C extends Caller> = (
  request: GuardedRequest,
  authenticator: Authenticator,
) => Promise<C>

/** Who may call an RPC: processes with these roles, whose calls `admit` must then accept. */
export interface Guard<C extends Caller> {
  readonly roles: readonly ServiceRole[]
  readonly admit: Admit<C>
  /**
   * Whether each call gets its own entry in the audit log, or all calls of a minute share one.
   * Without it, calls are not recorded.
   */
  readonly operatorLog?: OperatorLogging
}

export type OperatorLogging = 'each' | 'repeated'

const bearerSyntax = /^[A-Za-z0-9\-._~+/]+=*$/

/**
 * Parses an `authorization` value. Schemes are case-insensitive; Basic is split at its first colon
 * (RFC 7617).
 */
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

/** One of our own processes with one of these roles. The service token is sufficient. */
export const serviceCaller = (
  ...roles: readonly [ServiceRole, ...ServiceRole[]]
): Guard<ServiceCaller> => ({ roles, admit: async () => ({ kind: 'service' }) })

/** The gateway, for requests that need no credential or carry it in their message. */
export const gatewayCaller = (): Guard<ServiceCaller> => serviceCaller('gateway')

/** An operator's command that changes nothing. */
export const operator = (): Guard<ServiceCaller> => serviceCaller('operator')

/**
 * An operator's command that changes something. Its calls are recorded in the audit log, whether
 * they succeed or fail.
 */
export const operatorWrite = (operatorLog: OperatorLogging = 'each'): Guard<ServiceCaller> => ({
  ...operator(),
  operatorLog,
})

/** A caller whose credential the gateway forwards. */
const throughGateway = <C extends Caller>(admit: Admit<C>): Guard<C> => ({
  roles: ['gateway'],
  admit,
})

/**
 * The named app's M2M client by Basic or machine token, with `scope`. Checks in the order 401, 404,
 * 403.
 */
export const m2m = (scope: string): Guard<M2mCaller> =>
  throughGateway(async (request, authenticator) => {
    const caller = await m2mCaller(request.credential, authenticator)
    requireOwnApp(caller, request.clientId)
    requireScope(caller, scope)
    return caller
  })

async function m2mCaller(credential: Credential, authenticator: Authenticator): Promise<M2mCaller> {
  if (credential.scheme === 'basic') return authenticator.m2mByBasic(credential.pairs)
  if (credential.scheme === 'bearer') return authenticator.m2mByToken(credential.token)
  throw new DomainError(
    'CREDENTIAL_INVALID',
    'send the M2M client id and secret as HTTP Basic, or a machine token as Bearer',
  )
}

/**
 * The named app's M2M client by Basic only. A missing credential, or Bearer, gets 404 like another
 * app (decision 13).
 */
export const m2mBasic = (): Guard<M2mCaller> =>
  throughGateway(async (request, authenticator) => {
    if (request.credential.scheme !== 'basic') throw noSuchApp()
    const caller = await authenticator.m2mByBasic(request.credential.pairs)
    requireOwnApp(caller, request.clientId)
    return caller
  })

/** Any app's M2M client by Basic. At the token endpoint the credential itself names the client. */
export const oauthClient = (): Guard<M2mCaller> =>
  throughGateway(async (request, authenticator) => {
    if (request.credential.scheme === 'basic')
      return authenticator.m2mByBasic(request.credential.pairs)
    throw new DomainError('CREDENTIAL_INVALID', 'client authentication failed')
  })

/** Optional client credentials, verified after the handler's other checks. */
export const optionalOauthClient = (): Guard<ClientCaller> =>
  throughGateway(async (request, authenticator) => ({
    kind: 'client',
    authenticate: async () =>
      request.credential.scheme === 'none' ? null : oauthClient().admit(request, authenticator),
  }))

/** An end user by user JWT. If an app is named, the user must be of that app. */
export const endUser = (): Guard<UserCaller> =>
  throughGateway(async (request, authenticator) => {
    if (request.credential.scheme !== 'bearer') {
      throw new DomainError('TOKEN_INVALID', 'send a user token as Bearer')
    }
    const caller = await authenticator.userByToken(request.credential.token)
    requireOwnApp(caller, request.clientId)
    return caller
  })

/**
 * The caller who creates users of the named app at the builder API. Checks in the order 401, 404,
 * 403.
 */
export const provisioner = (): Guard<ProvisionerCaller> =>
  throughGateway(async ({ credential, clientId }, authenticator) => {
    if (credential.scheme === 'basic')
      return authenticator.provisionerByBasic(credential.pairs, clientId)
    throw new DomainError(
      'CREDENTIAL_INVALID',
      'send the tenant id and its admin secret, or the M2M client id and secret, as HTTP Basic',
    )
  })

/**
 * An end user of the named app at the builder API, by user JWT, trusted issuer's token or `sk_` key
 * as Bearer. Checks in the order 401, 404.
 */
export const actor = (): Guard<UserCaller> =>
  throughGateway(async ({ credential, clientId }, authenticator) => {
    if (credential.scheme !== 'bearer')
      throw new DomainError(
        'TOKEN_INVALID',
        'send a user token as Bearer or, except at the edge, an sk_ key',
      )
    const { token } = credential
    const caller = token.startsWith(builderKeyPrefix)
      ? await authenticator.userByBuilderKey(token)
      : await authenticator.actorByToken(token, clientId)
    requireOwnApp(caller, clientId)
    return caller
  })

const builderKeyPrefix = 'sk_'

/** A person with a dashboard session; 401 without one. */
export const session = (): Guard<AccountCaller> =>
  throughGateway(async (request, authenticator) => {
    if (request.session === undefined) throw new DomainError('TOKEN_INVALID', 'log in first')
    return authenticator.accountBySession(request.session)
  })

/** A platform admin with a dashboard session; 401 without a session, 403 for other accounts. */
export const platformAdmin = (): Guard<AccountCaller> =>
  throughGateway(async (request, authenticator) => {
    const account = await session().admit(request, authenticator)
    if (account.isPlatformAdmin) return account
    throw new DomainError('EDIT_FORBIDDEN', 'only a platform admin may do this')
  })

/**
 * Rights of a session in an app: any member reads; owners and admins edit; only owners and platform
 * admins own.
 */
export type Rights = 'read' | 'edit' | 'own'

const holders: Readonly<Record<Rights, readonly Role[]>> = {
  read: ['owner', 'admin', 'viewer'],
  edit: ['owner', 'admin'],
  own: ['owner'],
}

/**
 * A member of the named app with these rights; 401 without a session, 404 for an invisible app, 403
 * for missing rights.
 */
export const member = (rights: Rights): Guard<MemberCaller> =>
  throughGateway(async (request, authenticator) => {
    const account = await session().admit(request, authenticator)
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
  })

/**
 * Like `member`, for routes that only people see. Without a session the response is 404, also for
 * an M2M client.
 */
export const hiddenMember = (rights: Rights): Guard<MemberCaller> =>
  throughGateway(async (request, authenticator) => {
    if (request.session === undefined) throw noSuchApp()
    return member(rights).admit(request, authenticator)
  })

/**
 * The app's M2M client, with `scope` if given, or a member with these rights. Without any
 * credential the response is 404 (decision 13).
 */
export const m2mOrMember = (
  scope?: string,
  rights: Rights = 'read',
): Guard<M2mCaller | MemberCaller> =>
  throughGateway(async (request, authenticator) => {
    if (request.credential.scheme === 'none') {
      if (request.session === undefined) throw noSuchApp()
      return member(rights).admit(request, authenticator)
    }
    const caller = await m2mCaller(request.credential, authenticator)
    requireOwnApp(caller, request.clientId)
    if (scope !== undefined) requireScope(caller, scope)
    return caller
  })

/**
 * Like `guard`, for a route that is visible only to its callers: an invalid credential also gets
 * 404.
 */
export const hidden = <C extends Caller>({ roles, admit }: Guard<C>): Guard<C> => ({
  roles,
  admit: async (request, authenticator) => {
    try {
      return await admit(request, authenticator)
    } catch (error) {
      throw isBadCredential(error) ? noSuchApp() : error
    }
  },
})

const isBadCredential = (error: unknown): boolean =>
  error instanceof DomainError &&
  (error.reason === 'CREDENTIAL_INVALID' || error.reason === 'TOKEN_INVALID')

function requireScope({ scopes }: M2mCaller, scope: string): void {
  if (!scopes.includes(scope))
    throw new DomainError('SCOPE_MISSING', `the client lacks the scope ${scope}`)
}

/** Extends a guard with the check that the metering backend is configured and answers. */
export type RequireMetering = <C extends Caller>(guard: Guard<C>) => Guard<C>

/**
 * Creates `requireMetering`. `requireAnswers` throws METERING_NOT_CONFIGURED or
 * METERING_UNREACHABLE after the guard has passed and before the request is read (decision 4). The
 * figures themselves come from the ledger.
 */
export const createRequireMetering =
  (requireAnswers: () => Promise<void>): RequireMetering =>
  ({ roles, admit }) => ({
    roles,
    admit: async (request, authenticator) => {
      const caller = await admit(request, authenticator)
      await requireAnswers()
      return caller
    },
  })

/** Any Bearer credential, unverified; the handler verifies it. Error messages call it `name`. */
export const bearer = (name = 'the API key'): Guard<BearerCaller> =>
  throughGateway(async (request) => {
    if (request.credential.scheme !== 'bearer')
      throw new DomainError('CREDENTIAL_INVALID', `send ${name} as Bearer`)
    return { kind: 'bearer', token: request.credential.token }
  })

/** The M2M client as an actor in the audit log. */
export const toActor = (caller: M2mCaller, context: { readonly correlationId: string }): Actor => ({
  name: caller.m2mClientId,
  context,
})

/** The operator as an actor in the audit log, in the form that `createOperatorLog` uses. */
export const operatorActor = (context: {
  readonly correlationId: string
  readonly operator?: string | undefined
}): Actor => ({ name: operatorName(context.operator), context })
