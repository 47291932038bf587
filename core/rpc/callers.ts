import type {
  AccountId,
  AppId,
  ClientId,
  ExternalUserId,
  M2mClientId,
  UserId,
} from '../shared/ids.ts'
import type { Actor } from '../shared/audit.ts'
import { operatorName } from '../shared/operator-log.ts'
import { type BasicPair, basicPairs } from '../lib/http.ts'

/** One of our own processes. */
export interface ServiceCaller {
  readonly kind: 'service'
}
/** An operator's command. */
export interface OperatorCaller {
  readonly kind: 'operator'
  /** The operator's name in the audit log. */
  readonly name: string
}
/** An operator's command for one app. */
export interface AppOperatorCaller extends OperatorCaller {
  readonly appId: AppId
  readonly clientId: string
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
/** A person with a dashboard session, as their own end user of an app. */
export interface SelfCaller extends Omit<UserCaller, 'kind' | 'scopes'> {
  readonly kind: 'self'
  readonly accountId: AccountId
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
  | OperatorCaller
  | AppOperatorCaller
  | M2mCaller
  | UserCaller
  | ProvisionerCaller
  | BearerCaller
  | AccountCaller
  | MemberCaller
  | SelfCaller

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
  /**
   * The account's own end user of the app; null if the app is unknown or has no such user. Throws
   * EDIT_FORBIDDEN for a deactivated user.
   */
  userOfAccount(account: AccountCaller, clientId: ClientId): Promise<SelfCaller | null>
  /** The app of a public client id, for operators. Throws NOT_FOUND for an unknown one. */
  appOf(clientId: string): Promise<AppId>
}

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

/** The caller as an actor in the audit log. */
export const toActor = (
  caller: AuditedCaller,
  { correlationId }: { readonly correlationId: string },
): Actor => ({ name: callerName(caller), context: { correlationId } })

type AuditedCaller = M2mCaller | AccountCaller | MemberCaller | SelfCaller | OperatorCaller

/** The caller's name in the audit log. */
export function callerName(caller: AuditedCaller): string {
  if (caller.kind === 'operator') return caller.name
  return caller.kind === 'm2m' ? caller.m2mClientId : caller.accountId
}

/** The end user that a request is about: the caller itself, or the user that the request names. */
export const requestedUser = <Request extends { readonly externalUserId?: string | undefined }>(
  caller: Caller,
  request: Request,
): Request['externalUserId'] | ExternalUserId =>
  caller.kind === 'self' ? caller.externalUserId : request.externalUserId

/** Separates requests of different callers that have the same Idempotency-Key. */
export function idempotencyScope(
  caller: M2mCaller | MemberCaller | AppOperatorCaller,
  noun: string,
): string {
  if (caller.kind === 'operator') return `operator:${noun}:${caller.appId}`
  return caller.kind === 'm2m'
    ? `${caller.m2mClientId}:${noun}`
    : `${caller.clientId}:${caller.accountId}:${noun}`
}

/** Like `idempotencyScope`, for requests about the deployment instead of an app. */
export const deploymentIdempotencyScope = (
  caller: AccountCaller | OperatorCaller,
  noun: string,
): string => `${caller.kind === 'operator' ? 'operator' : caller.accountId}:${noun}`

/** The operator as an actor in the audit log, in the form that `createOperatorLog` uses. */
export const operatorActor = (context: {
  readonly correlationId: string
  readonly operator?: string | undefined
}): Actor => ({ name: operatorName(context.operator), context })
