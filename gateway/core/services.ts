import { AllowanceService } from '../../proto/gen/es/tollgate/balances/v1/allowances_pb.ts'
import { LimitService } from '../../proto/gen/es/tollgate/balances/v1/limits_pb.ts'
import { HoldService } from '../../proto/gen/es/tollgate/balances/v1/escrow_pb.ts'
import {
  CreditQuotaService,
  NetworkQuotaService,
} from '../../proto/gen/es/tollgate/balances/v1/quotas_pb.ts'
import { BillingService } from '../../proto/gen/es/tollgate/billing/v1/billing_pb.ts'
import { InvoiceService } from '../../proto/gen/es/tollgate/billing/v1/invoices_pb.ts'
import { CollectionService } from '../../proto/gen/es/tollgate/billing/v1/collections_pb.ts'
import { OverageService } from '../../proto/gen/es/tollgate/billing/v1/overage_pb.ts'
import { OwnerAccountService } from '../../proto/gen/es/tollgate/billing/v1/owners_pb.ts'
import { SimulatedProcessorService } from '../../proto/gen/es/tollgate/billing/v1/simulated_pb.ts'
import { ProcessorReconciliationService } from '../../proto/gen/es/tollgate/billing/v1/reconciliation_pb.ts'
import { PaymentService } from '../../proto/gen/es/tollgate/billing/v1/payments_pb.ts'
import { TestClockService } from '../../proto/gen/es/tollgate/billing/v1/clock_pb.ts'
import { WalletService } from '../../proto/gen/es/tollgate/billing/v1/wallet_pb.ts'
import { WhatIfService } from '../../proto/gen/es/tollgate/billing/v1/whatif_pb.ts'
import { ReceiptService } from '../../proto/gen/es/tollgate/books/v1/receipts_pb.ts'
import { AccountService } from '../../proto/gen/es/tollgate/identity/v1/accounts_pb.ts'
import {
  AppService,
  CallerService,
  UserService,
} from '../../proto/gen/es/tollgate/identity/v1/identity_pb.ts'
import { TrustedIssuerService } from '../../proto/gen/es/tollgate/identity/v1/issuers_pb.ts'
import { ManagementService } from '../../proto/gen/es/tollgate/identity/v1/management_pb.ts'
import { RegistrationService } from '../../proto/gen/es/tollgate/identity/v1/registrations_pb.ts'
import { BuilderUserService } from '../../proto/gen/es/tollgate/keys/v1/builder_pb.ts'
import { KeyService } from '../../proto/gen/es/tollgate/keys/v1/keys_pb.ts'
import { MailService } from '../../proto/gen/es/tollgate/mail/v1/mail_pb.ts'
import { LossService } from '../../proto/gen/es/tollgate/metering/v1/loss_pb.ts'
import { MeteringService } from '../../proto/gen/es/tollgate/metering/v1/metering_pb.ts'
import { CheckService } from '../../proto/gen/es/tollgate/books/v1/checks_pb.ts'
import { OutboxService } from '../../proto/gen/es/tollgate/metering/v1/outbox_pb.ts'
import { QuarantineService } from '../../proto/gen/es/tollgate/metering/v1/quarantine_pb.ts'
import { CatalogService } from '../../proto/gen/es/tollgate/plans/v1/catalog_pb.ts'
import { DiscoveryService } from '../../proto/gen/es/tollgate/plans/v1/discovery_pb.ts'
import { PlanService } from '../../proto/gen/es/tollgate/plans/v1/plans_pb.ts'
import { SubscriptionService } from '../../proto/gen/es/tollgate/plans/v1/subscriptions_pb.ts'
import { ReadinessService } from '../../proto/gen/es/tollgate/shared/v1/readiness_pb.ts'
import { SettingService } from '../../proto/gen/es/tollgate/shared/v1/settings_pb.ts'
import { DecisionService } from '../../proto/gen/es/tollgate/signer/v1/decisions_pb.ts'
import {
  AppSecretService,
  SignersService,
} from '../../proto/gen/es/tollgate/signer/v1/signers_pb.ts'
import { AuthorizationService } from '../../proto/gen/es/tollgate/tokens/v1/authorization_pb.ts'
import { DeviceService } from '../../proto/gen/es/tollgate/tokens/v1/devices_pb.ts'
import { GrantService } from '../../proto/gen/es/tollgate/tokens/v1/grants_pb.ts'
import { TokenService } from '../../proto/gen/es/tollgate/tokens/v1/tokens_pb.ts'
import { MeterService } from '../../proto/gen/es/tollgate/usage/v1/meters_pb.ts'
import { TicketService } from '../../proto/gen/es/tollgate/usage/v1/tickets_pb.ts'
import { UsageService } from '../../proto/gen/es/tollgate/usage/v1/usage_pb.ts'
import { WebhookEndpointService } from '../../proto/gen/es/tollgate/webhooks/v1/webhooks_pb.ts'

/** Core's services that the gateway calls, by the name of the member of `request.core`. */
export const services = {
  accounts: AccountService,
  allowances: AllowanceService,
  apps: AppService,
  authorization: AuthorizationService,
  billing: BillingService,
  collections: CollectionService,
  overage: OverageService,
  builderUsers: BuilderUserService,
  callers: CallerService,
  catalog: CatalogService,
  creditQuotas: CreditQuotaService,
  decisions: DecisionService,
  devices: DeviceService,
  discovery: DiscoveryService,
  grants: GrantService,
  holds: HoldService,
  invoices: InvoiceService,
  keys: KeyService,
  limits: LimitService,
  losses: LossService,
  mail: MailService,
  management: ManagementService,
  metering: MeteringService,
  meters: MeterService,
  networkQuotas: NetworkQuotaService,
  checks: CheckService,
  outbox: OutboxService,
  ownerAccounts: OwnerAccountService,
  appSecrets: AppSecretService,
  payments: PaymentService,
  plans: PlanService,
  processorReconciliation: ProcessorReconciliationService,
  quarantine: QuarantineService,
  readiness: ReadinessService,
  receipts: ReceiptService,
  registrations: RegistrationService,
  simulatedProcessor: SimulatedProcessorService,
  settings: SettingService,
  signers: SignersService,
  subscriptions: SubscriptionService,
  testClock: TestClockService,
  tickets: TicketService,
  tokens: TokenService,
  trustedIssuers: TrustedIssuerService,
  usage: UsageService,
  users: UserService,
  webhookEndpoints: WebhookEndpointService,
  wallets: WalletService,
  whatIf: WhatIfService,
}
