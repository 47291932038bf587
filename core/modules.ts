import { type EscrowConfig, longestBooking } from './balances/config.ts'
import type { FindPayingOwners } from './balances/exposure/exposure.ts'
import { createAllowancesModule } from './balances/module.ts'
import { createBillingModule, openBilling } from './billing/module.ts'
import { createBooksModule } from './books/module.ts'
import type { PaymentProcessor, ProcessorEvent } from './billing/processor/port.ts'
import type { SettingsDeps } from './billing/settings.ts'
import { requireThreshold } from './billing/wallet/overage.ts'
import type { CoreConfig } from './config.ts'
import {
  type IdentityApi,
  createIdentityModule,
  findOwnerAccountUser,
  findOwnerUser,
  issuerCredentials,
  linkRequestDestination,
} from './identity/module.ts'
import { createKeysModule, keyCredentials } from './keys/module.ts'
import type { OwnSettings } from './lib/settings/redacted.ts'
import type { MailConfig } from './mail/config.ts'
import { createMailModule } from './mail/module.ts'
import { createBackendModule } from './metering/backend/module.ts'
import type { FindSubscriber } from './metering/backend/subscribers.ts'
import { createMeteringModule } from './metering/module.ts'
import type { Module } from './module.ts'
import { openLedger } from './open-ledger.ts'
import { createOperationsModule } from './operations/module.ts'
import { chainPrice, createPlansModule, cutItem } from './plans/module.ts'
import type { Resubscribe } from './plans/subscriptions/ports.ts'
import { sealedTables } from './sealed-tables.ts'
import { type Shared } from './shared/shared.ts'
import { createSignerModule, signerCredentials } from './signer/module.ts'
import { createTokensModule, tokenCredentials } from './tokens/module.ts'
import { createUsageModule } from './usage/module.ts'
import { createWebhooksModule, webhookCredentials } from './webhooks/module.ts'

/** Parts of core that come from its starter. */
export interface OutsideParts {
  /** Adapter of a payment processor. */
  readonly processor?: PaymentProcessor | null | undefined
  /** The settings of this process, for platform admins. */
  readonly settings?: OwnSettings | undefined
}

/** In the order in which they lock their rows. */
const credentialIssuers = [
  keyCredentials,
  tokenCredentials,
  signerCredentials,
  issuerCredentials,
  webhookCredentials,
]

/** Creates every module of core, each after the modules whose `api` it needs. */
export function createModules(shared: Shared, config: CoreConfig, outside: OutsideParts) {
  const modules: Module<unknown>[] = []
  function add<Api>(module: Module<Api>): Api {
    modules.push(module)
    return module.api
  }
  // Created first, because metering and plans, which come before allowances, write to it in their
  // own transactions.
  const laterIdentity: () => IdentityApi = () => identity
  const opened = openCoreLedger(shared, config.escrow, laterIdentity)
  const { ledger, resubscribe } = opened
  // Created before identity, which uses the gate, and before metering, which uses the cuts.
  const receive = (event: ProcessorEvent): Promise<void> => collecting.receive(event)
  const later = { receive, orders: () => collecting.orders }
  const billing = openBilling(shared, { ...billingPorts(config, outside), ...opened, ...later })
  const { gate, cuts, payments, requireDeletable, collectFinal } = billing
  const findSubscriber: FindSubscriber = (user) => plans.findSubscriber(user)
  const { mails, destinations } = addMessages(add, { shared, config: config.mail }, laterIdentity)
  const outgoing = { destinations, config: config.backend, findSubscriber }
  const backend = add(createBackendModule(shared, outgoing))
  const selling = { ...gate.selling, requireThreshold }
  const offering = { config: config.plans, ledger, resubscribe, selling, payments, backend }
  const plans = add(createPlansModule(shared, offering))
  const { mode: meteringMode } = config.metering
  const people = { ...billing.settings, mails, meteringMode, plans, backend, gate }
  const ending = { config: config.identity, credentialIssuers, requireDeletable, collectFinal }
  const identity = add(createIdentityModule(shared, { ...people, ...ending }))
  const tickets = { config: config.metering, backend, ledger, plans, cuts, users: identity.users }
  const metering = add(createMeteringModule(shared, tickets))
  const spending = { ...billing, config: config.escrow, ledger, backend, plans, identity, metering }
  const allowances = add(createAllowancesModule(shared, spending))
  const keys = add(createKeysModule(shared, { identity }))
  const credentials = { config: config.tokens, identity, allowances, keys }
  const tokens = add(createTokensModule(shared, credentials))
  const trying = { drafts: plans.drafts, simulateLedger: ledger.simulateLedger, ledger, plans }
  const { requireMetering } = backend
  const owning = { ledger, owners: identity.ownerAccounts, plans }
  const parts = { ...billing, ...trying, identity, allowances, owning, requireMetering }
  const collecting = add(createBillingModule(shared, parts))
  const usage = add(createUsageModule(shared, { backend, identity, ledger, plans, cuts }))
  const records = { config: config.books, metering, ledger, plans, cuts, backend, ...collecting }
  add(createBooksModule(shared, { ...records, usage, tokens, requireMetering }))
  add(createOperationsModule(shared, { sealedTables, settings: outside.settings }))
  add(createSignerModule(shared, { ledger, metering, identity, keys, tokens }))
  return { modules, authenticator: tokens.authenticator }
}

/** Adds mails and webhooks. Returns the destinations of what the outbox has for people and apps. */
function addMessages(
  add: <Api>(module: Module<Api>) => Api,
  { shared, config }: { readonly shared: Shared; readonly config: MailConfig },
  identity: () => IdentityApi,
) {
  const { mails, destinations } = add(createMailModule(shared, config))
  const webhooks = add(createWebhooksModule(shared))
  const links = [
    linkRequestDestination('password_reset', () => identity().accounts.deliverResets),
    linkRequestDestination('sign_up', () => identity().accounts.deliverSignUps),
  ]
  return { mails, destinations: [...webhooks.destinations, ...destinations, ...links] }
}

const chainCut: SettingsDeps['chainCut'] = (db, app, since) => chainPrice(db, app, cutItem(since))

/** Functions that billing gets from other domains. */
const billingPorts = ({ billing: config }: CoreConfig, outside: OutsideParts) => ({
  ...outside,
  config,
  findOwner: findOwnerUser,
  findOwnerAccount: findOwnerAccountUser,
  chainCut,
})

/** Opens the ledger, which calls functions of identity only after identity is created. */
function openCoreLedger(shared: Shared, escrow: EscrowConfig, identity: () => IdentityApi) {
  const resubscribe: Resubscribe = (db, users) => identity().users.resubscribe(db, users)
  const findPayingOwners: FindPayingOwners = (db, apps) =>
    identity().ownerAccounts.payingOwners(db, apps)
  const bounding = { horizonSeconds: longestBooking(escrow) }
  return { ...openLedger(shared, { resubscribe, findPayingOwners }, bounding), resubscribe }
}
