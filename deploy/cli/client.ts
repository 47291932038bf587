import { setTimeout as sleep } from 'node:timers/promises'
import { hostname, userInfo } from 'node:os'
import type { ChannelOptions, ChannelCredentials } from '@grpc/grpc-js'
import { backoffMs } from '../../core/lib/loop.ts'
import { type CallOptions, channelTo, streaming, unary } from '../../core/lib/grpc.ts'
import type { CoreAddress } from '../../core/lib/core-link/address.ts'
import { operatorHeader, serviceTokenHeader } from '../../proto/headers.ts'
import { DomainError } from '../../proto/errors.ts'
import {
  AllowanceServiceClient,
  OperatorAllowanceServiceClient,
} from '../../proto/gen/ts-proto/tollgate/allowances/v1/allowances.ts'
import {
  CreditQuotaServiceClient,
  NetworkQuotaServiceClient,
} from '../../proto/gen/ts-proto/tollgate/allowances/v1/quotas.ts'
import { OperatorLimitServiceClient } from '../../proto/gen/ts-proto/tollgate/allowances/v1/limits.ts'
import { HoldServiceClient } from '../../proto/gen/ts-proto/tollgate/allowances/v1/escrow.ts'
import { BillingSettingsServiceClient } from '../../proto/gen/ts-proto/tollgate/billing/v1/billing.ts'
import { OperatorTestClockServiceClient } from '../../proto/gen/ts-proto/tollgate/billing/v1/clock.ts'
import { OperatorWhatIfServiceClient } from '../../proto/gen/ts-proto/tollgate/billing/v1/whatif.ts'
import { BooksServiceClient } from '../../proto/gen/ts-proto/tollgate/books/v1/books.ts'
import { ReceiptServiceClient } from '../../proto/gen/ts-proto/tollgate/books/v1/receipts.ts'
import { AccountServiceClient } from '../../proto/gen/ts-proto/tollgate/identity/v1/accounts.ts'
import {
  AppServiceClient,
  CallerServiceClient,
  type CheckCallerRequest,
} from '../../proto/gen/ts-proto/tollgate/identity/v1/identity.ts'
import { OperatorTrustedIssuerServiceClient } from '../../proto/gen/ts-proto/tollgate/identity/v1/issuers.ts'
import { OperatorAppServiceClient } from '../../proto/gen/ts-proto/tollgate/identity/v1/operators.ts'
import { RegistrationTokenServiceClient } from '../../proto/gen/ts-proto/tollgate/identity/v1/registrations.ts'
import { TenantServiceClient } from '../../proto/gen/ts-proto/tollgate/identity/v1/tenants.ts'
import { LossServiceClient } from '../../proto/gen/ts-proto/tollgate/metering/v1/loss.ts'
import { MeteringServiceClient } from '../../proto/gen/ts-proto/tollgate/metering/v1/metering.ts'
import { OutboxServiceClient } from '../../proto/gen/ts-proto/tollgate/metering/v1/outbox.ts'
import { QuarantineServiceClient } from '../../proto/gen/ts-proto/tollgate/metering/v1/quarantine.ts'
import { ReconciliationServiceClient } from '../../proto/gen/ts-proto/tollgate/metering/v1/reconciliation.ts'
import { OperatorSubscriptionServiceClient } from '../../proto/gen/ts-proto/tollgate/plans/v1/subscriptions.ts'
import { DiscoveryServiceClient } from '../../proto/gen/ts-proto/tollgate/plans/v1/discovery.ts'
import { OperatorPlanServiceClient } from '../../proto/gen/ts-proto/tollgate/plans/v1/plans.ts'
import { AuditServiceClient } from '../../proto/gen/ts-proto/tollgate/platform/v1/audit.ts'
import { SealingServiceClient } from '../../proto/gen/ts-proto/tollgate/platform/v1/sealing.ts'
import { DecisionServiceClient } from '../../proto/gen/ts-proto/tollgate/signer/v1/decisions.ts'
import {
  OperatorSignerServiceClient,
  SignersServiceClient,
} from '../../proto/gen/ts-proto/tollgate/signer/v1/signers.ts'
import { TokenServiceClient } from '../../proto/gen/ts-proto/tollgate/tokens/v1/tokens.ts'
import { TicketServiceClient } from '../../proto/gen/ts-proto/tollgate/usage/v1/tickets.ts'

const deadlineMs = 10_000
/** For one page of an export or import. */
const pageDeadlineMs = 60_000
const reconcileDeadlineMs = 3_600_000
/** For RPCs that read the whole ledger. */
const booksDeadlineMs = 86_400_000
const messageMaxBytes = 16 * 1024 * 1024

interface Client {
  close(): void
}
type ClientClass<C extends Client> = new (
  target: string,
  credentials: ChannelCredentials,
  options?: ChannelOptions,
) => C

/** One client for each service of core. */
function openClients({ target, tls }: Omit<CoreAddress, 'token'>) {
  const channel = channelTo(tls)
  const open = <C extends Client>(Service: ClientClass<C>, options: ChannelOptions = {}): C =>
    new Service(target, channel.credentials, { ...options, ...channel.options })
  return {
    accounts: open(AccountServiceClient),
    allowances: open(AllowanceServiceClient),
    anyAllowances: open(OperatorAllowanceServiceClient),
    anyApps: open(OperatorAppServiceClient),
    anyIssuers: open(OperatorTrustedIssuerServiceClient),
    anySigners: open(OperatorSignerServiceClient),
    apps: open(AppServiceClient),
    audit: open(AuditServiceClient),
    billing: open(BillingSettingsServiceClient),
    books: open(BooksServiceClient, { 'grpc.max_receive_message_length': messageMaxBytes }),
    callers: open(CallerServiceClient),
    decisions: open(DecisionServiceClient),
    discovery: open(DiscoveryServiceClient),
    plans: open(OperatorPlanServiceClient),
    creditQuotas: open(CreditQuotaServiceClient),
    networkQuotas: open(NetworkQuotaServiceClient),
    limits: open(OperatorLimitServiceClient),
    holds: open(HoldServiceClient),
    losses: open(LossServiceClient),
    metering: open(MeteringServiceClient),
    outbox: open(OutboxServiceClient),
    quarantine: open(QuarantineServiceClient),
    receipts: open(ReceiptServiceClient),
    reconciliation: open(ReconciliationServiceClient),
    sealing: open(SealingServiceClient),
    signers: open(SignersServiceClient),
    subscriptions: open(OperatorSubscriptionServiceClient),
    registrationTokens: open(RegistrationTokenServiceClient),
    tenants: open(TenantServiceClient),
    testClocks: open(OperatorTestClockServiceClient),
    tickets: open(TicketServiceClient),
    tokens: open(TokenServiceClient),
    whatIf: open(OperatorWhatIfServiceClient),
  }
}

/**
 * Connects to a running core as an operator, authenticated by the service token. Each function is
 * an RPC and rejects with core's DomainError. Close the connection when done.
 */
export function connectCore({ token, ...address }: CoreAddress) {
  const clients = openClients(address)
  const { accounts, allowances, apps, books, callers, decisions } = clients
  const { limits, losses, metering, outbox, quarantine, reconciliation } = clients
  const headers = { [serviceTokenHeader]: token, [operatorHeader]: operatorOf() }
  const operator: CallOptions = { deadlineMs, headers }
  const forPages: CallOptions = { deadlineMs: pageDeadlineMs, headers }
  const forBooks: CallOptions = { deadlineMs: booksDeadlineMs, headers }
  const forReconciling: CallOptions = { deadlineMs: reconcileDeadlineMs, headers }

  return {
    createApp: bound(unary(apps.createApp.bind(apps)), operator),
    listApps: bound(unary(apps.listApps.bind(apps)), operator),
    ...accountCalls(accounts, operator),
    checkCaller: (request: CheckCallerRequest, authorization: string) =>
      unary(callers.checkCaller.bind(callers))(request, {
        deadlineMs,
        headers: { ...headers, authorization },
      }),
    createAdjustment: bound(unary(allowances.createAdjustment.bind(allowances)), operator),
    ...quotaCalls(clients, operator),
    ...appCalls(clients, operator),
    ...grantCalls(clients.anyAllowances, operator),
    ...billingCalls(clients, operator),
    ...planCalls(clients, operator),
    exportAudit: bound(unary(clients.audit.exportAudit.bind(clients.audit)), forPages),
    ...limitCalls(limits, operator),
    ...signerCalls(clients.signers, operator),
    ...secretCalls(clients.anySigners, operator),
    ...subscriptionCalls(clients.subscriptions, operator),
    listHolds: bound(unary(clients.holds.listHolds.bind(clients.holds)), operator),
    recordRate: bound(unary(metering.recordRate.bind(metering)), operator),
    meteringStatus: () => unary(metering.getMeteringStatus.bind(metering))({}, operator),
    ...decisionCalls(decisions, operator),
    lossReport: bound(unary(losses.getLossReport.bind(losses)), operator),
    ...ticketCalls(clients, operator),
    ...quarantineCalls(quarantine, operator),
    ...outboxCalls(outbox, operator),
    reconcile: bound(streaming(reconciliation.reconcile.bind(reconciliation)), forReconciling),
    ...keyCalls(clients, operator),
    ...bookCalls(clients, forBooks),
    exportTickets: bound(unary(books.exportTickets.bind(books)), forPages),
    importTickets: bound(unary(books.importTickets.bind(books)), forPages),
    close: () => Object.values(clients).forEach((client) => client.close()),
  }
}

export type CoreClient = ReturnType<typeof connectCore>

/** The read-only RPCs. All others write, and need the consent of `changeCore`. */
export type CoreReader = Pick<
  CoreClient,
  | 'checkAppForeignToken'
  | 'countSealed'
  | 'exportAudit'
  | 'explainTicket'
  | 'exportTickets'
  | 'getAppUser'
  | 'getDecision'
  | 'getOutbox'
  | 'getQuarantined'
  | 'getReceipt'
  | 'listAccounts'
  | 'listAppMembers'
  | 'listAppSecrets'
  | 'listAppTrustedIssuers'
  | 'listAppUsers'
  | 'listApps'
  | 'listDecisions'
  | 'listHolds'
  | 'listQuarantined'
  | 'listRedirectUris'
  | 'listRoots'
  | 'listSigners'
  | 'listSigningKeys'
  | 'listTenants'
  | 'listRegistrationTokens'
  | 'listOffers'
  | 'lossReport'
  | 'meteringStatus'
  | 'readAccountQuota'
  | 'readApp'
  | 'readAllowance'
  | 'readBillingSettings'
  | 'readCreditQuota'
  | 'readNetworkQuota'
  | 'listReachedNetworkQuotas'
  | 'readLimits'
  | 'readPlans'
  | 'readSubscription'
  | 'readTestClock'
  | 'reconcile'
  // Records the current head, which has no other effect.
  | 'sealBooks'
  | 'tryAppPlans'
  | 'verifyBooks'
>

/** OS user and host, percent-encoded, for core's audit log. */
const operatorOf = (): string => encodeURIComponent(`${userName()}@${hostname()}`)

// In a container the user may have no name.
function userName(): string {
  try {
    return userInfo().username
  } catch {
    return String(process.getuid?.() ?? 'unknown')
  }
}

const ticketCalls = (
  { tickets, receipts }: Pick<ReturnType<typeof openClients>, 'tickets' | 'receipts'>,
  options: CallOptions,
) => ({
  explainTicket: bound(unary(tickets.explainTicket.bind(tickets)), options),
  getReceipt: bound(unary(receipts.getReceipt.bind(receipts)), options),
  listRoots: bound(unary(receipts.listRoots.bind(receipts)), options),
})

const quarantineCalls = (quarantine: QuarantineServiceClient, options: CallOptions) => ({
  listQuarantined: bound(unary(quarantine.listQuarantined.bind(quarantine)), options),
  getQuarantined: bound(unary(quarantine.getQuarantined.bind(quarantine)), options),
  attributeQuarantined: bound(unary(quarantine.attributeQuarantined.bind(quarantine)), options),
  redriveQuarantined: bound(unary(quarantine.redriveQuarantined.bind(quarantine)), options),
  discardQuarantined: bound(unary(quarantine.discardQuarantined.bind(quarantine)), options),
})

const outboxCalls = (outbox: OutboxServiceClient, options: CallOptions) => ({
  getOutbox: () => unary(outbox.getOutbox.bind(outbox))({}, options),
  retryOutbox: () => unary(outbox.retryOutbox.bind(outbox))({}, options),
})

const planCalls = (
  { plans, discovery }: Pick<ReturnType<typeof openClients>, 'plans' | 'discovery'>,
  options: CallOptions,
) => ({
  readPlans: bound(unary(plans.readPlans.bind(plans)), options),
  addPlan: bound(unary(plans.addPlan.bind(plans)), options),
  changePlan: bound(unary(plans.changePlan.bind(plans)), options),
  removePlan: bound(unary(plans.removePlan.bind(plans)), options),
  resyncPlan: bound(unary(plans.resyncPlan.bind(plans)), options),
  listOffers: bound(unary(discovery.listOffers.bind(discovery)), options),
  refreshOffers: bound(unary(discovery.refreshOffers.bind(discovery)), options),
  addOffer: bound(unary(discovery.addOffer.bind(discovery)), options),
  removeOffer: bound(unary(discovery.removeOffer.bind(discovery)), options),
})

const billingCalls = (
  { billing, testClocks }: Pick<ReturnType<typeof openClients>, 'billing' | 'testClocks'>,
  options: CallOptions,
) => ({
  ...testClockCalls(testClocks, { ...options, deadlineMs: pageDeadlineMs }),
  readBillingSettings: bound(unary(billing.readBillingSettings.bind(billing)), options),
  replaceBillingSettings: bound(unary(billing.replaceBillingSettings.bind(billing)), options),
})

const testClockCalls = (clocks: OperatorTestClockServiceClient, options: CallOptions) => ({
  readTestClock: bound(unary(clocks.readTestClock.bind(clocks)), options),
  moveTestClock: bound(unary(clocks.moveTestClock.bind(clocks)), options),
})

const accountCalls = (accounts: AccountServiceClient, options: CallOptions) => ({
  createAccount: bound(unary(accounts.createAccount.bind(accounts)), options),
  listAccounts: bound(unary(accounts.listAccounts.bind(accounts)), options),
  changeAccount: bound(unary(accounts.changeAccount.bind(accounts)), options),
  startPasswordReset: bound(unary(accounts.startPasswordReset.bind(accounts)), options),
  // Requires the gateway's token.
  resetPassword: bound(unary(accounts.resetPassword.bind(accounts)), options),
})

const appCalls = (
  {
    anyApps: apps,
    anyIssuers,
    tenants,
    registrationTokens: initial,
  }: Pick<
    ReturnType<typeof openClients>,
    'anyApps' | 'anyIssuers' | 'tenants' | 'registrationTokens'
  >,
  options: CallOptions,
) => ({
  ...issuerCalls(anyIssuers, options),
  readApp: bound(unary(apps.readApp.bind(apps)), options),
  rotateAppSecret: bound(unary(apps.rotateAppSecret.bind(apps)), options),
  listAppUsers: bound(unary(apps.listAppUsers.bind(apps)), options),
  getAppUser: bound(unary(apps.getAppUser.bind(apps)), options),
  putAppUser: bound(unary(apps.putAppUser.bind(apps)), options),
  deactivateAppUser: bound(unary(apps.deactivateAppUser.bind(apps)), options),
  activateAppUser: bound(unary(apps.activateAppUser.bind(apps)), options),
  listRedirectUris: bound(unary(apps.listRedirectUris.bind(apps)), options),
  addRedirectUri: bound(unary(apps.addRedirectUri.bind(apps)), options),
  removeRedirectUri: bound(unary(apps.removeRedirectUri.bind(apps)), options),
  listAppMembers: bound(unary(apps.listAppMembers.bind(apps)), options),
  putAppMember: bound(unary(apps.putAppMember.bind(apps)), options),
  removeAppMember: bound(unary(apps.removeAppMember.bind(apps)), options),
  withdrawAppInvitation: bound(unary(apps.withdrawAppInvitation.bind(apps)), options),
  createRegistrationToken: bound(unary(initial.createRegistrationToken.bind(initial)), options),
  listRegistrationTokens: bound(unary(initial.listRegistrationTokens.bind(initial)), options),
  revokeRegistrationToken: bound(unary(initial.revokeRegistrationToken.bind(initial)), options),
  createTenant: bound(unary(tenants.createTenant.bind(tenants)), options),
  listTenants: bound(unary(tenants.listTenants.bind(tenants)), options),
  rotateTenantSecret: bound(unary(tenants.rotateTenantSecret.bind(tenants)), options),
  disableTenant: bound(unary(tenants.disableTenant.bind(tenants)), options),
  enableTenant: bound(unary(tenants.enableTenant.bind(tenants)), options),
})

const issuerCalls = (issuers: OperatorTrustedIssuerServiceClient, options: CallOptions) => ({
  listAppTrustedIssuers: bound(unary(issuers.listAppTrustedIssuers.bind(issuers)), options),
  addAppTrustedIssuer: bound(unary(issuers.addAppTrustedIssuer.bind(issuers)), options),
  removeAppTrustedIssuer: bound(unary(issuers.removeAppTrustedIssuer.bind(issuers)), options),
  checkAppForeignToken: bound(unary(issuers.checkAppForeignToken.bind(issuers)), options),
})

const grantCalls = (allowances: OperatorAllowanceServiceClient, options: CallOptions) => ({
  readAllowance: bound(unary(allowances.readAllowance.bind(allowances)), options),
  giveGrant: bound(unary(allowances.giveGrant.bind(allowances)), options),
})

const bookCalls = (
  { books, whatIf }: Pick<ReturnType<typeof openClients>, 'books' | 'whatIf'>,
  options: CallOptions,
) => ({
  sealBooks: bound(unary(books.sealBooks.bind(books)), options),
  verifyBooks: bound(streaming(books.verifyBooks.bind(books)), options),
  rebuildBooks: bound(streaming(books.rebuildBooks.bind(books)), options),
  tryAppPlans: bound(unary(whatIf.tryAppPlans.bind(whatIf)), options),
  archiveMonths: bound(streaming(books.archiveMonths.bind(books)), options),
})

const keyCalls = (
  { tokens, sealing }: Pick<ReturnType<typeof openClients>, 'tokens' | 'sealing'>,
  options: CallOptions,
) => ({
  rotateSigningKeys: bound(unary(tokens.rotateSigningKeys.bind(tokens)), options),
  listSigningKeys: () => unary(tokens.listSigningKeys.bind(tokens))({}, options),
  rewrapSealed: bound(unary(sealing.rewrap.bind(sealing)), options),
  countSealed: () => unary(sealing.countSealed.bind(sealing))({}, options),
})

const quotaCalls = (
  { accounts, creditQuotas, networkQuotas }: ReturnType<typeof openClients>,
  options: CallOptions,
) => ({
  readAccountQuota: bound(unary(accounts.readAccountQuota.bind(accounts)), options),
  replaceAccountQuota: bound(unary(accounts.replaceAccountQuota.bind(accounts)), options),
  readCreditQuota: bound(unary(creditQuotas.readCreditQuota.bind(creditQuotas)), options),
  replaceCreditQuota: bound(unary(creditQuotas.replaceCreditQuota.bind(creditQuotas)), options),
  readNetworkQuota: bound(unary(networkQuotas.readNetworkQuota.bind(networkQuotas)), options),
  replaceNetworkQuota: bound(unary(networkQuotas.replaceNetworkQuota.bind(networkQuotas)), options),
  listReachedNetworkQuotas: () =>
    unary(networkQuotas.listReachedNetworkQuotas.bind(networkQuotas))({}, options),
})

const limitCalls = (limits: OperatorLimitServiceClient, options: CallOptions) => ({
  readLimits: bound(unary(limits.readLimits.bind(limits)), options),
  replaceLimits: bound(unary(limits.replaceLimits.bind(limits)), options),
  removeLimits: bound(unary(limits.removeLimits.bind(limits)), options),
})

const signerCalls = (signers: SignersServiceClient, options: CallOptions) => ({
  createSigner: bound(unary(signers.createSigner.bind(signers)), options),
  listSigners: bound(unary(signers.listSigners.bind(signers)), options),
  rotateSigner: bound(unary(signers.rotateSigner.bind(signers)), options),
  setSignerApps: bound(unary(signers.setSignerApps.bind(signers)), options),
  removeSigner: bound(unary(signers.removeSigner.bind(signers)), options),
})

const secretCalls = (signers: OperatorSignerServiceClient, options: CallOptions) => ({
  listAppSecrets: bound(unary(signers.listAppSecrets.bind(signers)), options),
  createAppSecret: bound(unary(signers.createAppSecret.bind(signers)), options),
  revokeAppSecret: bound(unary(signers.revokeAppSecret.bind(signers)), options),
})

const subscriptionCalls = (
  subscriptions: OperatorSubscriptionServiceClient,
  options: CallOptions,
) => ({
  readSubscription: bound(unary(subscriptions.readSubscription.bind(subscriptions)), options),
  switchSubscription: bound(unary(subscriptions.switchSubscription.bind(subscriptions)), options),
  endSubscription: bound(unary(subscriptions.endSubscription.bind(subscriptions)), options),
  keepSubscription: bound(unary(subscriptions.keepSubscription.bind(subscriptions)), options),
})

const decisionCalls = (decisions: DecisionServiceClient, operator: CallOptions) => ({
  getDecision: bound(unary(decisions.getDecision.bind(decisions)), operator),
  listDecisions: bound(unary(decisions.listDecisions.bind(decisions)), operator),
})

const bound =
  <Request, Answer>(
    call: (request: Request, options: CallOptions) => Answer,
    options: CallOptions,
  ) =>
  (request: Request): Answer =>
    call(request, options)

const attempts = 5
// At least 200, 400, 800 and 1600 ms: a restart of core takes a few seconds.
const pause = { firstMs: 400, lastMs: 3_200 }

/**
 * Repeats a call while core or its database does not answer, five times in total. Only for
 * idempotent requests.
 */
export async function retry<T>(call: () => Promise<T>): Promise<T> {
  for (let failures = 1; ; failures++) {
    try {
      return await call()
    } catch (error) {
      const isPassing = error instanceof DomainError && error.reason === 'UNAVAILABLE'
      if (!isPassing || failures === attempts) throw error
      await sleep(backoffMs(failures, pause))
    }
  }
}

/** `Basic …` of a client's id and secret (RFC 7617). */
export const basic = (id: string, secret: string): string =>
  `Basic ${Buffer.from(`${id}:${secret}`).toString('base64')}`
