import { DomainError } from '../../proto/errors.ts'
import type { ServiceRole } from '../lib/core-link/address.ts'
import { operatorName } from '../shared/operator-log.ts'
import { isClientId } from '../shared/ids.ts'
import type {
  AccountCaller,
  AppOperatorCaller,
  Authenticator,
  BearerCaller,
  Caller,
  ClientCaller,
  Credential,
  M2mCaller,
  MemberCaller,
  OperatorCaller,
  ProvisionerCaller,
  Role,
  SelfCaller,
  ServiceCaller,
  UserCaller,
} from './callers.ts'

export interface GuardedRequest {
  readonly credential: Credential
  /** The app that the request names, if any. */
  readonly clientId: string | undefined
  /** The dashboard session's token, if the gateway sent one. */
  readonly session: string | undefined
  /** The session's account calls as its own end user of this app, if the gateway named one. */
  readonly self: string | undefined
  /** Whether an operator's command or an internal service sent the call. */
  readonly isOperator: boolean
  /** The operator's name, as the command sent it. */
  readonly operator: string | undefined
}

/**
 * Admits a request as a caller of kind `C`, or throws the first error in the order of decision 13.
 */
export type Admit<C extends Caller> = (
  request: GuardedRequest,
  authenticator: Authenticator,
) => Promise<C>

/** Who may call an RPC: processes with these roles, if `admit` accepts the call. */
export interface Guard<C extends Caller> {
  readonly roles: readonly ServiceRole[]
  readonly admit: Admit<C>
  /**
   * Whether each call of an operator or platform admin gets its own entry in the audit log, or all
   * calls of a minute share one. Without it, calls are not recorded.
   */
  readonly operatorLog?: OperatorLogging | undefined
}

export type OperatorLogging = 'each' | 'repeated'

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
export const operator = (): Guard<OperatorCaller> => ({
  roles: ['operator'],
  admit: async ({ operator: name }) => ({ kind: 'operator', name: operatorName(name) }),
})

/** Like `operator`, for the app that the request names. Throws NOT_FOUND for an unknown app. */
export const appOperator = (): Guard<AppOperatorCaller> => ({
  roles: ['operator'],
  admit: async ({ operator: name, clientId = '' }, { appOf }) => ({
    kind: 'operator',
    name: operatorName(name),
    appId: await appOf(clientId),
    clientId,
  }),
})

/** `guard` of operators' commands that only read, which also admits internal services. */
const orService = <C extends Caller>(guard: Guard<C>): Guard<C> => ({
  ...guard,
  roles: [...guard.roles, 'service'],
})

/** Like `operator`; internal services may call it, too (decision 71). */
export const reader = (): Guard<OperatorCaller> => orService(operator())

/** Like `appOperator`; internal services may call it, too (decision 71). */
export const appReader = (): Guard<AppOperatorCaller> => orService(appOperator())

/**
 * Records the calls of an operator's command that changes something in the audit log, whether they
 * succeed or fail.
 */
const recorded = <C extends Caller>(guard: Guard<C>, operatorLog: OperatorLogging): Guard<C> => ({
  ...guard,
  operatorLog,
})

/** An operator's command that changes something. */
export const operatorWrite = (log: OperatorLogging = 'each'): Guard<OperatorCaller> =>
  recorded(operator(), log)

/** Like `operatorWrite`, for the app that the request names. */
export const appOperatorWrite = (): Guard<AppOperatorCaller> => recorded(appOperator(), 'each')

/** The callers of `guard`, and operators' commands. */
export const orOperator = <C extends Caller, O extends Caller>(
  guard: Guard<C>,
  operators: Guard<O>,
): Guard<C | O> => ({
  roles: [...guard.roles, ...operators.roles],
  operatorLog: operators.operatorLog,
  admit: (request, authenticator) =>
    (request.isOperator ? operators : guard).admit(request, authenticator),
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
 * The callers of `guard`; on the dashboard's own routes, which alone forward a session, members of
 * the named app with these rights.
 */
export const orMember = <C extends Caller>(
  guard: Guard<C>,
  rights: Rights,
): Guard<C | MemberCaller> => ({
  ...guard,
  admit: (request, authenticator) =>
    request.session === undefined
      ? guard.admit(request, authenticator)
      : member(rights).admit(request, authenticator),
})

/**
 * A person with a dashboard session, as their own end user of the app that the gateway names; 401
 * without a session, 404 for an app that the person has never logged in to, 403 if the app has
 * deactivated the user.
 */
export const self = (): Guard<SelfCaller> =>
  throughGateway(async (request, authenticator) => {
    const account = await session().admit(request, authenticator)
    const { self: app, clientId = app } = request
    if (app === undefined || !isClientId(app) || clientId !== app) throw noSuchApp()
    const caller = await authenticator.userOfAccount(account, app)
    if (!caller) throw noSuchApp()
    return caller
  })

/** The callers of `guard`; on a person's own routes, the person as its own end user. */
export const orSelf = <C extends Caller>(guard: Guard<C>): Guard<C | SelfCaller> => ({
  ...guard,
  admit: (request, authenticator) =>
    request.self === undefined
      ? guard.admit(request, authenticator)
      : self().admit(request, authenticator),
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
export const hidden = <C extends Caller>(guard: Guard<C>): Guard<C> => ({
  ...guard,
  admit: async (request, authenticator) => {
    try {
      return await guard.admit(request, authenticator)
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
  (guard) => ({
    ...guard,
    admit: async (request, authenticator) => {
      const caller = await guard.admit(request, authenticator)
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
