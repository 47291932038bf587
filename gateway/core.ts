import { type CallOptions, Code, ConnectError, createClient } from '@connectrpc/connect'
import { Http2SessionManager, createGrpcTransport } from '@connectrpc/connect-node'
import { correlationHeader, serviceTokenHeader, sessionHeader } from '../core/lib/grpc.ts'
import { DomainError, isReason, reasonTrailer } from '../proto/errors.ts'
import { AllowanceService } from '../proto/gen/es/tollgate/allowances/v1/allowances_pb.ts'
import { AccountService } from '../proto/gen/es/tollgate/identity/v1/accounts_pb.ts'
import { AppService, CallerService, UserService } from '../proto/gen/es/tollgate/identity/v1/identity_pb.ts'
import { ManagementService } from '../proto/gen/es/tollgate/identity/v1/management_pb.ts'
import { CatalogService } from '../proto/gen/es/tollgate/plans/v1/catalog_pb.ts'
import { KeyService } from '../proto/gen/es/tollgate/keys/v1/keys_pb.ts'
import { AuthorizationService } from '../proto/gen/es/tollgate/tokens/v1/authorization_pb.ts'
import { DeviceService } from '../proto/gen/es/tollgate/tokens/v1/devices_pb.ts'
import { GrantService } from '../proto/gen/es/tollgate/tokens/v1/grants_pb.ts'
import { TokenService } from '../proto/gen/es/tollgate/tokens/v1/tokens_pb.ts'
import { LossService } from '../proto/gen/es/tollgate/metering/v1/loss_pb.ts'
import { UsageService } from '../proto/gen/es/tollgate/usage/v1/usage_pb.ts'
import type { CoreAddress } from './config.ts'

/** For whom core is called: the raw Authorization value is core's to judge. */
export interface OnBehalfOf {
  readonly authorization?: string | undefined
  /** The dashboard session's token. */
  readonly session?: string | undefined
  readonly correlationId: string
}

const maxAnswerBytes = 16 * 1024 * 1024

/**
 * One connection to core for this process. `callsFor` gives the calls on behalf of one request; each has a
 * deadline and throws only DomainErrors: the reason that core gave, UNAVAILABLE when it does not answer.
 */
export function connectCore({ target, token, deadlineMs }: CoreAddress) {
  const baseUrl = `http://${target}`
  const sessionManager = new Http2SessionManager(baseUrl, { pingIntervalMs: 30_000 })
  const transport = createGrpcTransport({ baseUrl, sessionManager, readMaxBytes: maxAnswerBytes })
  const callers = createClient(CallerService, transport)
  const users = createClient(UserService, transport)
  const keys = createClient(KeyService, transport)
  const tokens = createClient(TokenService, transport)
  const allowances = createClient(AllowanceService, transport)
  const usage = createClient(UsageService, transport)
  const losses = createClient(LossService, transport)
  const accounts = createClient(AccountService, transport)
  const apps = createClient(AppService, transport)
  const management = createClient(ManagementService, transport)
  const catalog = createClient(CatalogService, transport)
  const authorization = createClient(AuthorizationService, transport)
  const devices = createClient(DeviceService, transport)
  const grants = createClient(GrantService, transport)

  function callsFor({ authorization: credential, session, correlationId }: OnBehalfOf) {
    const headers = {
      [serviceTokenHeader]: token,
      [correlationHeader]: correlationId,
      ...(credential === undefined ? {} : { authorization: credential }),
      ...(session === undefined ? {} : { [sessionHeader]: session }),
    }
    let asked = false
    const call = <I, O>(method: (request: I, options: CallOptions) => Promise<O>) =>
      async (request: I): Promise<O> => {
        asked = true
        return method(request, { headers, timeoutMs: deadlineMs }).catch(rethrow)
      }
    const follow = <I, O>(method: (request: I, options: CallOptions) => AsyncIterable<O>) =>
      (request: I, signal: AbortSignal): AsyncGenerator<O> => {
        asked = true
        return refusing(method(request, { headers, signal }))
      }
    return {
      /** Whether core has already seen this caller's credential. */
      wasAsked: () => asked,
      checkCaller: call(callers.checkCaller),
      apps: { find: call(apps.findApp) },
      origins: { check: call(management.checkOrigin) },
      management: {
        createApp: call(management.createOwnApp),
        listApps: call(management.listOwnApps),
        getApp: call(management.getApp),
        updateApp: call(management.updateApp),
        deleteApp: call(management.deleteApp),
        listMembers: call(management.listMembers),
        putMember: call(management.putMember),
        removeMember: call(management.removeMember),
        rotateSecret: call(management.rotateClientSecret),
        listDomains: call(management.listDomains),
        addDomain: call(management.addDomain),
        removeDomain: call(management.removeDomain),
        listAudit: call(management.listAuditEntries),
        getRouting: call(management.getRouting),
      },
      catalog: {
        getManifest: call(catalog.getManifest),
        putManifest: call(catalog.putManifest),
        listProfiles: call(catalog.listProfiles),
        getProfile: call(catalog.getProfile),
        createProfile: call(catalog.createProfile),
        updateProfile: call(catalog.updateProfile),
        deleteProfile: call(catalog.deleteProfile),
      },
      appKeys: {
        create: call(keys.createAppKey),
        list: call(keys.listAppKeys),
        revoke: call(keys.revokeAppKey),
        validate: call(keys.validateKey),
      },
      users: {
        upsert: call(users.upsertUser),
        update: call(users.updateUser),
        deactivate: call(users.deactivateUser),
        list: call(users.listUsers),
      },
      keys: { create: call(keys.createKey), list: call(keys.listKeys), revoke: call(keys.revokeKey) },
      tokens: {
        issueMachineToken: call(tokens.issueMachineToken),
        mintUserToken: call(tokens.mintUserToken),
        exchangeApiKey: call(tokens.exchangeApiKey),
        jwks: call(tokens.getJwks),
      },
      allowances: {
        read: call(allowances.getAllowance),
        grant: call(allowances.createGrant),
        balance: call(allowances.getBalance),
        ownBalance: call(allowances.getOwnBalance),
      },
      accounts: {
        logIn: call(accounts.logIn),
        logInWithIdentity: call(accounts.logInWithIdentity),
        logOut: call(accounts.logOut),
        session: call(accounts.getSession),
        resetPassword: call(accounts.resetPassword),
      },
      authorization: {
        check: call(authorization.checkAuthorization),
        grant: call(authorization.grantAuthorization),
        checkLogout: call(authorization.checkLogout),
        initiateLogin: call(authorization.getInitiateLogin),
      },
      devices: { start: call(devices.startDevice), get: call(devices.getDevice), decide: call(devices.decideDevice) },
      grants: {
        exchange: call(grants.exchangeToken),
        mintSigner: call(grants.mintSignerToken),
        redeemDevice: call(grants.redeemDeviceCode),
        redeemCode: call(grants.redeemAuthorizationCode),
        redeemRefresh: call(grants.redeemRefreshToken),
        introspect: call(grants.introspectToken),
        revoke: call(grants.revokeToken),
        userInfo: call(grants.getUserInfo),
        exchangeDevice: call(grants.exchangeDeviceToken),
        sessions: call(grants.listSignerSessions),
        revokeSession: call(grants.revokeSignerSession),
      },
      losses: { list: call(losses.listLoss) },
      usage: {
        query: call(usage.queryUsage),
        queryOwn: call(usage.queryOwnUsage),
        requests: call(usage.listUsageRequests),
        ownRequests: call(usage.listOwnUsageRequests),
        sessions: call(usage.listUsageSessions),
        ownSessions: call(usage.listOwnUsageSessions),
        follow: follow(usage.streamUsage),
        followOwn: follow(usage.streamOwnUsage),
      },
    }
  }

  return { callsFor, close: () => sessionManager.abort() }
}

export type Core = ReturnType<typeof connectCore>
export type CoreCalls = ReturnType<Core['callsFor']>

// Aborted is how Connect reports a connection that was reset; core's own refusals by that code carry a reason.
const lost = new Set([Code.Unavailable, Code.DeadlineExceeded, Code.Canceled, Code.ResourceExhausted, Code.Aborted])

/** The connection broke off: what went wrong came from the system, not from core. */
const isBroken = ({ cause }: ConnectError): boolean =>
  cause instanceof Error && 'code' in cause && typeof cause.code === 'string'

/** Rebuilds the DomainError from the trailer; without one the call never reached a handler. */
function rethrow(thrown: unknown): never {
  const error = ConnectError.from(thrown)
  const reason = error.metadata.get(reasonTrailer)
  // Ours to mend, and nothing for the public.
  if (reason === 'SERVICE_TOKEN_INVALID') {
    throw new DomainError('UNAVAILABLE', 'the service cannot be reached now', { cause: error })
  }
  if (isReason(reason)) throw new DomainError(reason, error.rawMessage, { cause: error })
  if (lost.has(error.code) || isBroken(error)) {
    throw new DomainError('UNAVAILABLE', 'the service does not answer now', { cause: error })
  }
  throw new DomainError('INTERNAL', 'the service failed', { cause: error })
}

/** A stream whose end is a DomainError, too. */
async function* refusing<O>(messages: AsyncIterable<O>): AsyncGenerator<O> {
  try {
    yield* messages
  } catch (error) {
    rethrow(error)
  }
}

/** What a message must contain by contract; its absence is core's bug. */
export function present<T>(value: T | undefined, name: string): T {
  if (value === undefined) throw new DomainError('INTERNAL', `core's answer lacks ${name}`)
  return value
}
