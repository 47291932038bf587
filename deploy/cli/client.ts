import { currentValue } from '../../core/lib/settings/reloadable.ts'
import { setTimeout as sleep } from 'node:timers/promises'
import { hostname, userInfo } from 'node:os'
import { Client } from '@grpc/grpc-js'
import { backoffMs } from '../../core/lib/loop.ts'
import { type CallOptions, channelTo, streaming, unary } from '../../core/lib/grpc.ts'
import type { CoreAddress } from '../../core/lib/core-link/address.ts'
import { operatorHeader, serviceTokenHeader } from '../../proto/headers.ts'
import { DomainError } from '../../proto/errors.ts'
import { AllowanceServiceService } from '../../proto/gen/ts-proto/tollgate/balances/v1/allowances.ts'
import {
  CreditQuotaServiceService,
  NetworkQuotaServiceService,
} from '../../proto/gen/ts-proto/tollgate/balances/v1/quotas.ts'
import { LimitServiceService } from '../../proto/gen/ts-proto/tollgate/balances/v1/limits.ts'
import { HoldServiceService } from '../../proto/gen/ts-proto/tollgate/balances/v1/escrow.ts'
import { BillingServiceService } from '../../proto/gen/ts-proto/tollgate/billing/v1/billing.ts'
import { InvoiceServiceService } from '../../proto/gen/ts-proto/tollgate/billing/v1/invoices.ts'
import { CollectionServiceService } from '../../proto/gen/ts-proto/tollgate/billing/v1/collections.ts'
import { OverageServiceService } from '../../proto/gen/ts-proto/tollgate/billing/v1/overage.ts'
import { OwnerAccountServiceService } from '../../proto/gen/ts-proto/tollgate/billing/v1/owners.ts'
import { PaymentServiceService } from '../../proto/gen/ts-proto/tollgate/billing/v1/payments.ts'
import { ProcessorReconciliationServiceService } from '../../proto/gen/ts-proto/tollgate/billing/v1/reconciliation.ts'
import { TestClockServiceService } from '../../proto/gen/ts-proto/tollgate/billing/v1/clock.ts'
import { WalletServiceService } from '../../proto/gen/ts-proto/tollgate/billing/v1/wallet.ts'
import { WhatIfServiceService } from '../../proto/gen/ts-proto/tollgate/billing/v1/whatif.ts'
import { BooksServiceService } from '../../proto/gen/ts-proto/tollgate/books/v1/books.ts'
import { ReceiptServiceService } from '../../proto/gen/ts-proto/tollgate/books/v1/receipts.ts'
import { AccountServiceService } from '../../proto/gen/ts-proto/tollgate/identity/v1/accounts.ts'
import {
  AppServiceService,
  CallerServiceService,
  UserServiceService,
} from '../../proto/gen/ts-proto/tollgate/identity/v1/identity.ts'
import { TrustedIssuerServiceService } from '../../proto/gen/ts-proto/tollgate/identity/v1/issuers.ts'
import { ManagementServiceService } from '../../proto/gen/ts-proto/tollgate/identity/v1/management.ts'
import { RedirectUriServiceService } from '../../proto/gen/ts-proto/tollgate/identity/v1/redirects.ts'
import { RegistrationTokenServiceService } from '../../proto/gen/ts-proto/tollgate/identity/v1/registrations.ts'
import { TenantServiceService } from '../../proto/gen/ts-proto/tollgate/identity/v1/tenants.ts'
import { LossServiceService } from '../../proto/gen/ts-proto/tollgate/metering/v1/loss.ts'
import { MeteringServiceService } from '../../proto/gen/ts-proto/tollgate/metering/v1/metering.ts'
import { OutboxServiceService } from '../../proto/gen/ts-proto/tollgate/metering/v1/outbox.ts'
import { QuarantineServiceService } from '../../proto/gen/ts-proto/tollgate/metering/v1/quarantine.ts'
import { ReconciliationServiceService } from '../../proto/gen/ts-proto/tollgate/metering/v1/reconciliation.ts'
import { SubscriptionServiceService } from '../../proto/gen/ts-proto/tollgate/plans/v1/subscriptions.ts'
import { DiscoveryServiceService } from '../../proto/gen/ts-proto/tollgate/plans/v1/discovery.ts'
import { PlanServiceService } from '../../proto/gen/ts-proto/tollgate/plans/v1/plans.ts'
import { AuditServiceService } from '../../proto/gen/ts-proto/tollgate/shared/v1/audit.ts'
import { SealingServiceService } from '../../proto/gen/ts-proto/tollgate/shared/v1/sealing.ts'
import { DecisionServiceService } from '../../proto/gen/ts-proto/tollgate/signer/v1/decisions.ts'
import {
  AppSecretServiceService,
  SignersServiceService,
} from '../../proto/gen/ts-proto/tollgate/signer/v1/signers.ts'
import { TokenServiceService } from '../../proto/gen/ts-proto/tollgate/tokens/v1/tokens.ts'
import { WebhookEndpointServiceService } from '../../proto/gen/ts-proto/tollgate/webhooks/v1/webhooks.ts'
import { TicketServiceService } from '../../proto/gen/ts-proto/tollgate/usage/v1/tickets.ts'

const messageMaxBytes = 16 * 1024 * 1024

/** The services of core. Operators share some of them with the members of an app. */
const services = {
  accounts: AccountServiceService,
  allowances: AllowanceServiceService,
  apps: AppServiceService,
  appSecrets: AppSecretServiceService,
  audit: AuditServiceService,
  billing: BillingServiceService,
  invoices: InvoiceServiceService,
  collections: CollectionServiceService,
  overage: OverageServiceService,
  books: BooksServiceService,
  callers: CallerServiceService,
  creditQuotas: CreditQuotaServiceService,
  decisions: DecisionServiceService,
  discovery: DiscoveryServiceService,
  holds: HoldServiceService,
  issuers: TrustedIssuerServiceService,
  limits: LimitServiceService,
  losses: LossServiceService,
  management: ManagementServiceService,
  metering: MeteringServiceService,
  networkQuotas: NetworkQuotaServiceService,
  outbox: OutboxServiceService,
  ownerAccounts: OwnerAccountServiceService,
  payments: PaymentServiceService,
  plans: PlanServiceService,
  processorReconciliation: ProcessorReconciliationServiceService,
  quarantine: QuarantineServiceService,
  receipts: ReceiptServiceService,
  redirectUris: RedirectUriServiceService,
  reconciliation: ReconciliationServiceService,
  registrationTokens: RegistrationTokenServiceService,
  sealing: SealingServiceService,
  signers: SignersServiceService,
  subscriptions: SubscriptionServiceService,
  tenants: TenantServiceService,
  testClocks: TestClockServiceService,
  tickets: TicketServiceService,
  tokens: TokenServiceService,
  users: UserServiceService,
  webhookEndpoints: WebhookEndpointServiceService,
  wallets: WalletServiceService,
  whatIf: WhatIfServiceService,
}

const deadlineMs = 10_000
/** For one page of an export or import. */
const pageDeadlineMs = 60_000
/** For RPCs that read the whole ledger. */
const booksDeadlineMs = 86_400_000

/** The deadlines of RPCs that may take more than `deadlineMs`. */
const deadlinesMs: { readonly [Name in RpcName]?: number } = {
  archiveMonths: booksDeadlineMs,
  exportAudit: pageDeadlineMs,
  exportTickets: pageDeadlineMs,
  importTickets: pageDeadlineMs,
  advanceTestClock: pageDeadlineMs,
  replayWebhookDeliveries: pageDeadlineMs,
  rebuildBooks: booksDeadlineMs,
  // Core works for three seconds, then finishes its page.
  redriveReason: 30_000,
  reconcile: 3_600_000,
  reconcileProcessor: 3_600_000,
  sealBooks: booksDeadlineMs,
  simulatePlans: booksDeadlineMs,
  verifyBooks: booksDeadlineMs,
}

type Services = typeof services
type RpcName = { [Name in keyof Services]: keyof Services[Name] }[keyof Services]
type Headers = Readonly<Record<string, string>>

/** The parts of a generated method that a call needs. */
interface Rpc<Request, Response> {
  readonly path: string
  readonly responseStream: boolean
  requestSerialize(value: Request): Buffer
  responseDeserialize(bytes: Buffer): Response
}

/** A generated method as a function. It rejects with core's DomainError. */
type Call<Method> =
  Method extends Rpc<infer Request, infer Response>
    ? (
        request: Request,
        headers?: Headers,
      ) => Method extends { readonly responseStream: true }
        ? AsyncGenerator<Response>
        : Promise<Response>
    : never

type Calls = {
  readonly [Name in keyof Services]: {
    readonly [Method in keyof Services[Name]]: Call<Services[Name][Method]>
  }
}

/**
 * Connects to a running core as an operator, authenticated by the service token. Each service has
 * its RPCs as functions. Close the connection when done.
 */
export function connectCore({ target, tls, token }: CoreAddress) {
  const channel = channelTo(tls)
  const client = new Client(target, channel.credentials, {
    'grpc.max_receive_message_length': messageMaxBytes,
    ...channel.options,
  })
  const operator = { [serviceTokenHeader]: currentValue(token), [operatorHeader]: operatorOf() }
  const calls = Object.entries(services).map(([service, methods]) => [
    service,
    Object.fromEntries(
      Object.entries<Rpc<unknown, unknown>>(methods).map(([name, rpc]) => [
        name,
        callOf(client, rpc, {
          deadlineMs: deadlinesMs[name as RpcName] ?? deadlineMs,
          headers: operator,
        }),
      ]),
    ),
  ])
  return { ...(Object.fromEntries(calls) as Calls), close: () => client.close() }
}

function callOf(client: Client, rpc: Rpc<unknown, unknown>, options: CallOptions) {
  const { path, responseStream, requestSerialize, responseDeserialize } = rpc
  const send = responseStream
    ? streaming((request: unknown, ...call) =>
        client.makeServerStreamRequest(
          path,
          requestSerialize,
          responseDeserialize,
          request,
          ...call,
        ),
      )
    : unary((request: unknown, ...call) =>
        client.makeUnaryRequest(path, requestSerialize, responseDeserialize, request, ...call),
      )
  return (request: unknown, headers?: Headers) =>
    send(request, { ...options, headers: { ...options.headers, ...headers } })
}

export type CoreClient = ReturnType<typeof connectCore>

// `sealBooks` records the current head, which has no other effect.
type ReadVerb =
  | 'check'
  | 'count'
  | 'explain'
  | 'export'
  | 'get'
  | 'list'
  | 'reconcile'
  | 'seal'
  | 'simulate'
  | 'verify'

/** The read-only RPCs. All others write, and need the consent of `changeCore`. */
export type CoreReader = {
  readonly [Name in keyof Calls]: Pick<
    Calls[Name],
    Extract<keyof Calls[Name], `${ReadVerb}${string}`>
  >
}

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
