import type { DescMessage, MessageInitShape } from '@bufbuild/protobuf'
import { type CallOptions, type Client, type Transport, createClient } from '@connectrpc/connect'
import { createGrpcTransport } from '@connectrpc/connect-node'
import { isOfOtherIssuer } from '../../core/lib/foreign-tokens/form.ts'
import { serviceTokenHeader } from '../../proto/headers.ts'
import { DomainError } from '../../proto/errors.ts'
import {
  AllowanceService,
  type CreateGrantRequestSchema,
  type CreateGrantResponse,
  type GetBalanceRequestSchema,
  type GetBalanceResponse,
} from '../../proto/gen/es/tollgate/allowances/v1/allowances_pb.ts'
import { LimitService } from '../../proto/gen/es/tollgate/allowances/v1/limits_pb.ts'
import {
  CreditQuotaService,
  NetworkQuotaService,
} from '../../proto/gen/es/tollgate/allowances/v1/quotas_pb.ts'
import { ReceiptService } from '../../proto/gen/es/tollgate/books/v1/receipts_pb.ts'
import { BillingService } from '../../proto/gen/es/tollgate/billing/v1/billing_pb.ts'
import { TestClockService } from '../../proto/gen/es/tollgate/billing/v1/clock_pb.ts'
import { WhatIfService } from '../../proto/gen/es/tollgate/billing/v1/whatif_pb.ts'
import { AccountService } from '../../proto/gen/es/tollgate/identity/v1/accounts_pb.ts'
import {
  AppService,
  CallerService,
  type UpsertUserRequestSchema,
  type UpsertUserResponse,
  UserService,
} from '../../proto/gen/es/tollgate/identity/v1/identity_pb.ts'
import { TrustedIssuerService } from '../../proto/gen/es/tollgate/identity/v1/issuers_pb.ts'
import { ManagementService } from '../../proto/gen/es/tollgate/identity/v1/management_pb.ts'
import { RegistrationService } from '../../proto/gen/es/tollgate/identity/v1/registrations_pb.ts'
import { PlanService } from '../../proto/gen/es/tollgate/plans/v1/plans_pb.ts'
import { CatalogService } from '../../proto/gen/es/tollgate/plans/v1/catalog_pb.ts'
import { SubscriptionService } from '../../proto/gen/es/tollgate/plans/v1/subscriptions_pb.ts'
import {
  type CreateKeyRequestSchema,
  type CreateKeyResponse,
  KeyService,
} from '../../proto/gen/es/tollgate/keys/v1/keys_pb.ts'
import { BuilderUserService } from '../../proto/gen/es/tollgate/keys/v1/builder_pb.ts'
import { ReadinessService } from '../../proto/gen/es/tollgate/platform/v1/readiness_pb.ts'
import { AuthorizationService } from '../../proto/gen/es/tollgate/tokens/v1/authorization_pb.ts'
import { DeviceService } from '../../proto/gen/es/tollgate/tokens/v1/devices_pb.ts'
import {
  type ExchangeBuilderTokenRequestSchema,
  type ExchangeBuilderTokenResponse,
  type ExchangeTokenRequestSchema,
  type ExchangeTokenResponse,
  GrantService,
} from '../../proto/gen/es/tollgate/tokens/v1/grants_pb.ts'
import {
  type MintUserTokenRequestSchema,
  type MintUserTokenResponse,
  TokenService,
} from '../../proto/gen/es/tollgate/tokens/v1/tokens_pb.ts'
import { DecisionService } from '../../proto/gen/es/tollgate/signer/v1/decisions_pb.ts'
import { OwnSignerService } from '../../proto/gen/es/tollgate/signer/v1/signers_pb.ts'
import { LossService } from '../../proto/gen/es/tollgate/metering/v1/loss_pb.ts'
import { TicketService } from '../../proto/gen/es/tollgate/usage/v1/tickets_pb.ts'
import { MeterService } from '../../proto/gen/es/tollgate/usage/v1/meters_pb.ts'
import { UsageService } from '../../proto/gen/es/tollgate/usage/v1/usage_pb.ts'
import { type BatchedCall, type CallAnswer, batchCalls } from './batched-calls.ts'
import {
  type CallContext,
  type CallerCredential,
  type CoreOptions,
  createCallContext,
  lazyGroups,
  rethrow,
} from './call-context.ts'
import { openSessions } from './sessions.ts'

const maxAnswerBytes = 16 * 1024 * 1024
/** Core stops after a minute and reports it. */
const whatIfDeadlineMs = 65_000
/** The identity provider may take 12 s of it; then core reports it as unavailable. */
const provisionDeadlineMs = 20_000
// Core answers after 15 s and reports what is unfinished.
const testClockDeadlineMs = 40_000

type Init<Schema extends DescMessage> = MessageInitShape<Schema>
type Send<Request, Response> = (request: Request) => Promise<Response>

/** A method of a Connect client that takes a batch of calls, each with its own credential. */
type BatchedMethod<Request, Response> = (
  request: { calls: BatchedCall<Request>[] },
  options: CallOptions,
) => Promise<{ readonly answers: readonly CallAnswer<Response>[] }>

/**
 * Opens this process's connection to core. `callsFor` returns the calls on behalf of one request;
 * each has a deadline and throws only DomainErrors: core's reason, or UNAVAILABLE if core does not
 * answer. `issuer` is the issuer of our own tokens.
 */
export function connectCore({ deadlineMs, ...address }: CoreOptions, issuer: string) {
  const { baseUrl, sessionManager } = openSessions(address)
  const transport = createGrpcTransport({ baseUrl, sessionManager, readMaxBytes: maxAnswerBytes })
  const { callers, readiness } = openChecks(transport)
  const users = createClient(UserService, transport)
  const keys = createClient(KeyService, transport)
  const builderUsers = createClient(BuilderUserService, transport)
  const { usage, meters, tickets, receipts, losses } = openReports(transport)
  const tokens = createClient(TokenService, transport)
  const allowances = createClient(AllowanceService, transport)
  const { creditQuotas, networkQuotas } = openQuotas(transport)
  const limits = createClient(LimitService, transport)
  const billing = createClient(BillingService, transport)
  const testClock = createClient(TestClockService, transport)
  const whatIf = createClient(WhatIfService, transport)
  const decisions = createClient(DecisionService, transport)
  const ownSigner = createClient(OwnSignerService, transport)
  const accounts = createClient(AccountService, transport)
  const apps = createClient(AppService, transport)
  const management = createClient(ManagementService, transport)
  const trustedIssuers = createClient(TrustedIssuerService, transport)
  const catalog = createClient(CatalogService, transport)
  const plans = createClient(PlanService, transport)
  const subscriptions = createClient(SubscriptionService, transport)
  const { authorization, devices, grants, registrations } = openLogins(transport)

  const options = { token: address.token, deadlineMs }
  const batches = batchedMethods({ tokens, users, keys, allowances, grants }, options)
  /**
   * Sends subject tokens of other issuers unbatched, because fetching the issuer's keys may be slow
   * and would delay a whole batch.
   */
  const apart =
    <I extends { subjectToken?: string }, O>(alone: Send<I, O>, batched: Send<I, O>): Send<I, O> =>
    (request) =>
      (isOfOtherIssuer(request.subjectToken ?? '', issuer) ? alone : batched)(request)

  const callsOf = lazyGroups({
    /** Whether core has received this caller's credential. */
    hasCalled: (context: CallContext) => () => context.hasCalled,
    checkCaller: ({ call }: CallContext) => call(callers.checkCaller),
    readiness: ({ call }: CallContext) => call(readiness.getReadiness),
    apps: ({ call }: CallContext) => ({ find: call(apps.findApp) }),
    origins: ({ call }: CallContext) => ({ check: call(management.checkOrigin) }),
    management: ({ call }: CallContext) => ({
      createApp: call(management.createOwnApp),
      listApps: call(management.listOwnApps),
      getApp: call(management.getApp),
      updateApp: call(management.updateApp),
      deleteApp: call(management.deleteApp),
      listMembers: call(management.listMembers),
      putMember: call(management.putMember),
      removeMember: call(management.removeMember),
      withdrawInvitation: call(management.withdrawInvitation),
      rotateSecret: call(management.rotateClientSecret),
      listDomains: call(management.listDomains),
      addDomain: call(management.addDomain),
      removeDomain: call(management.removeDomain),
      listAudit: call(management.listAuditEntries),
      getRouting: call(management.getRouting),
    }),
    trustedIssuers: ({ call }: CallContext) => ({
      list: call(trustedIssuers.listTrustedIssuers),
      add: call(trustedIssuers.addTrustedIssuer),
      replace: call(trustedIssuers.replaceTrustedIssuer),
      remove: call(trustedIssuers.removeTrustedIssuer),
      check: call(trustedIssuers.checkForeignToken),
    }),
    catalog: ({ call }: CallContext) => ({
      getManifest: call(catalog.getManifest),
      putManifest: call(catalog.putManifest),
      listProfiles: call(catalog.listProfiles),
      getProfile: call(catalog.getProfile),
      createProfile: call(catalog.createProfile),
      updateProfile: call(catalog.updateProfile),
      deleteProfile: call(catalog.deleteProfile),
    }),
    plans: ({ call }: CallContext) => ({
      list: call(plans.listPlans),
      create: call(plans.createPlan),
      update: call(plans.updatePlan),
      delete: call(plans.deletePlan),
      getStarter: call(plans.getStarterPlan),
      setStarter: call(plans.setStarterPlan),
      sync: call(plans.syncPlan),
    }),
    subscriptions: ({ call }: CallContext) => ({
      get: call(subscriptions.getSubscription),
      list: call(subscriptions.listSubscriptions),
      change: call(subscriptions.changeSubscription),
      cancel: call(subscriptions.cancelSubscription),
      resume: call(subscriptions.resumeSubscription),
    }),
    appKeys: ({ call }: CallContext) => ({
      create: call(keys.createAppKey),
      list: call(keys.listAppKeys),
      revoke: call(keys.revokeAppKey),
      validate: call(keys.validateKey),
    }),
    users: ({ call, batched }: CallContext) => ({
      upsert: batched(batches.upsertUser),
      update: call(users.updateUser),
      deactivate: call(users.deactivateUser),
      list: call(users.listUsers),
    }),
    keys: ({ call, batched }: CallContext) => ({
      create: batched(batches.createKey),
      list: call(keys.listKeys),
      revoke: call(keys.revokeKey),
    }),
    registrations: ({ call }: CallContext) => ({
      register: call(registrations.registerClient),
      get: call(registrations.getRegistration),
      replace: call(registrations.replaceRegistration),
      delete: call(registrations.deleteRegistration),
    }),
    builder: ({ call, batched }: CallContext) => ({
      provisionUser: call(builderUsers.provisionUser, provisionDeadlineMs),
      exchange: apart(call(grants.exchangeBuilderToken), batched(batches.exchangeBuilderToken)),
      queryMeter: call(meters.queryMeter),
    }),
    tokens: ({ call, batched }: CallContext) => ({
      issueMachineToken: call(tokens.issueMachineToken),
      mintUserToken: batched(batches.mintUserToken),
      exchangeApiKey: call(tokens.exchangeApiKey),
      jwks: call(tokens.getJwks),
    }),
    allowances: ({ call, batched }: CallContext) => ({
      read: call(allowances.getAllowance),
      grant: batched(batches.createGrant),
      balance: batched(batches.getBalance),
      ownBalance: call(allowances.getOwnBalance),
    }),
    limits: ({ call }: CallContext) => ({
      get: call(limits.getLimits),
      set: call(limits.setLimits),
      clear: call(limits.clearLimits),
    }),
    accounts: ({ call }: CallContext) => ({
      logIn: call(accounts.logIn),
      logInWithIdentity: call(accounts.logInWithIdentity),
      linkIdentity: call(accounts.linkIdentity),
      logOut: call(accounts.logOut),
      logOutEverywhere: call(accounts.logOutEverywhere),
      session: call(accounts.getSession),
      checkReset: call(accounts.checkPasswordReset),
      resetPassword: call(accounts.resetPassword),
      listInvitations: call(accounts.listInvitations),
      acceptInvitation: call(accounts.acceptInvitation),
      declineInvitation: call(accounts.declineInvitation),
    }),
    quotas: ({ call }: CallContext) => ({
      getCredit: call(creditQuotas.getCreditQuota),
      setCredit: call(creditQuotas.setCreditQuota),
      getAccount: call(accounts.getAccountQuota),
      setAccount: call(accounts.setAccountQuota),
      getNetwork: call(networkQuotas.getNetworkQuota),
      setNetwork: call(networkQuotas.setNetworkQuota),
    }),
    billing: ({ call }: CallContext) => ({
      get: call(billing.getBilling),
      statement: call(billing.getStatement),
      getProcessor: call(billing.getProcessor),
      connectProcessor: call(billing.connectProcessor),
      disconnectProcessor: call(billing.disconnectProcessor),
      getSettings: call(billing.getBillingSettings),
      setSettings: call(billing.setBillingSettings),
    }),
    authorization: ({ call }: CallContext) => ({
      check: call(authorization.checkAuthorization),
      grant: call(authorization.grantAuthorization),
      checkLogout: call(authorization.checkLogout),
      initiateLogin: call(authorization.getInitiateLogin),
    }),
    devices: ({ call }: CallContext) => ({
      start: call(devices.startDevice),
      get: call(devices.getDevice),
      decide: call(devices.decideDevice),
    }),
    grants: ({ call, batched }: CallContext) => ({
      exchange: apart(call(grants.exchangeToken), batched(batches.exchangeToken)),
      mintSigner: call(grants.mintSignerToken),
      mintOwner: call(grants.mintOwnerToken),
      redeemDevice: call(grants.redeemDeviceCode),
      redeemCode: call(grants.redeemAuthorizationCode),
      redeemRefresh: call(grants.redeemRefreshToken),
      introspect: call(grants.introspectToken),
      revoke: call(grants.revokeToken),
      userInfo: call(grants.getUserInfo),
      exchangeDevice: call(grants.exchangeDeviceToken),
      sessions: call(grants.listSignerSessions),
      revokeSession: call(grants.revokeSignerSession),
    }),
    decisions: ({ call }: CallContext) => ({
      get: call(decisions.getAppDecision),
      list: call(decisions.listAppDecisions),
    }),
    signerSecrets: ({ call }: CallContext) => ({
      list: call(ownSigner.listOwnSecrets),
      create: call(ownSigner.createOwnSecret),
      revoke: call(ownSigner.revokeOwnSecret),
    }),
    losses: ({ call }: CallContext) => ({ list: call(losses.listLoss) }),
    testClock: ({ call }: CallContext) => ({
      get: call(testClock.getTestClock),
      advance: call(testClock.advanceTestClock, testClockDeadlineMs),
    }),
    tickets: ({ call }: CallContext) => ({
      explain: call(tickets.explainAppTicket),
      receipt: call(receipts.getAppReceipt),
      roots: call(receipts.listAppRoots),
    }),
    whatIf: ({ call }: CallContext) => ({ tryPlans: call(whatIf.tryPlans, whatIfDeadlineMs) }),
    usage: ({ call, stream }: CallContext) => ({
      query: call(usage.queryUsage),
      queryOwn: call(usage.queryOwnUsage),
      requests: call(usage.listUsageRequests),
      ownRequests: call(usage.listOwnUsageRequests),
      sessions: call(usage.listUsageSessions),
      ownSessions: call(usage.listOwnUsageSessions),
      follow: stream(usage.streamUsage),
      followOwn: stream(usage.streamOwnUsage),
    }),
  })

  const callsFor = (credential: CallerCredential) => callsOf(createCallContext(credential, options))

  return { callsFor, close: () => sessionManager.abort() }
}

export type Core = ReturnType<typeof connectCore>
export type CoreCalls = ReturnType<Core['callsFor']>

const openQuotas = (transport: Transport) => ({
  creditQuotas: createClient(CreditQuotaService, transport),
  networkQuotas: createClient(NetworkQuotaService, transport),
})

/** Clients for authentication checks and readiness. */
const openChecks = (transport: Transport) => ({
  callers: createClient(CallerService, transport),
  readiness: createClient(ReadinessService, transport),
})

const openLogins = (transport: Transport) => ({
  grants: createClient(GrantService, transport),
  authorization: createClient(AuthorizationService, transport),
  devices: createClient(DeviceService, transport),
  registrations: createClient(RegistrationService, transport),
})

const openReports = (transport: Transport) => ({
  usage: createClient(UsageService, transport),
  meters: createClient(MeterService, transport),
  tickets: createClient(TicketService, transport),
  receipts: createClient(ReceiptService, transport),
  losses: createClient(LossService, transport),
})

/**
 * Returns a field that core always sets. Throws INTERNAL if it is missing, which is a bug in core.
 */
export function requireField<T>(value: T | undefined, name: string): T {
  if (value === undefined) throw new DomainError('INTERNAL', `core's answer lacks ${name}`)
  return value
}

interface BatchedClients {
  readonly tokens: Client<typeof TokenService>
  readonly users: Client<typeof UserService>
  readonly keys: Client<typeof KeyService>
  readonly allowances: Client<typeof AllowanceService>
  readonly grants: Client<typeof GrantService>
}

/** Methods that are called so often that concurrent calls share an RPC. */
function batchedMethods(
  { tokens, users, keys, allowances, grants }: BatchedClients,
  { token, deadlineMs }: { readonly token: string; readonly deadlineMs: number },
) {
  // Three small batches at a time, so that core works on one while another is in transit.
  const inBatches = <Request, Response>(method: BatchedMethod<Request, Response>) =>
    batchCalls<Request, Response>(
      async (calls) => {
        const headers = { [serviceTokenHeader]: token }
        return (await method({ calls }, { headers, timeoutMs: deadlineMs }).catch(rethrow)).answers
      },
      { batchMax: 128, concurrency: 3, waitMs: deadlineMs },
    )
  const mintUserToken = inBatches<Init<typeof MintUserTokenRequestSchema>, MintUserTokenResponse>(
    tokens.mintUserTokens,
  )
  const upsertUser = inBatches<Init<typeof UpsertUserRequestSchema>, UpsertUserResponse>(
    users.upsertUsers,
  )
  const createKey = inBatches<Init<typeof CreateKeyRequestSchema>, CreateKeyResponse>(
    keys.createKeys,
  )
  const createGrant = inBatches<Init<typeof CreateGrantRequestSchema>, CreateGrantResponse>(
    allowances.createGrants,
  )
  const getBalance = inBatches<Init<typeof GetBalanceRequestSchema>, GetBalanceResponse>(
    allowances.getBalances,
  )
  const exchangeToken = inBatches<Init<typeof ExchangeTokenRequestSchema>, ExchangeTokenResponse>(
    grants.exchangeTokens,
  )
  const exchangeBuilderToken = inBatches<
    Init<typeof ExchangeBuilderTokenRequestSchema>,
    ExchangeBuilderTokenResponse
  >(grants.exchangeBuilderTokens)
  return {
    mintUserToken,
    upsertUser,
    createKey,
    createGrant,
    getBalance,
    exchangeToken,
    exchangeBuilderToken,
  }
}
