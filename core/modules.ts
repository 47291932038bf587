import { createLedger } from './allowances/ledger.ts'
import { createAllowancesModule } from './allowances/module.ts'
import { createBillingModule, openBilling } from './billing/module.ts'
import { createBooksModule } from './books/module.ts'
import type { PaymentProcessor } from './billing/processor.ts'
import type { SettingsDeps } from './billing/settings.ts'
import type { CoreConfig } from './config.ts'
import { createIdentityModule, findOwnerUser, issuerCredentials } from './identity/module.ts'
import { createKeysModule, keyCredentials } from './keys/module.ts'
import { createBackendModule } from './metering/backend/module.ts'
import type { FindSubscriber } from './metering/backend/subscribers.ts'
import { createMeteringModule } from './metering/module.ts'
import type { Module } from './module.ts'
import { chainPrice, createPlansModule, cutItem } from './plans/module.ts'
import type { Resubscribe } from './plans/subscriptions/ports.ts'
import { createAuditModule } from './platform/audit-log/module.ts'
import { type Platform } from './platform/platform.ts'
import { createSealingModule } from './platform/sealing/module.ts'
import { createSignerModule, signerCredentials } from './signer/module.ts'
import { createTokensModule, tokenCredentials } from './tokens/module.ts'
import { createUsageModule } from './usage/module.ts'

/** Parts of core that represent external parties. */
export interface OutsideParts {
  /** Processor of the deployment's payments. Default is no processor. */
  readonly processor?: PaymentProcessor | undefined
}

/** Creates every module of core, each after the modules whose `api` it needs. */
export function createModules(platform: Platform, config: CoreConfig, outside: OutsideParts) {
  const modules: Module<unknown>[] = []
  function add<Api>(module: Module<Api>): Api {
    modules.push(module)
    return module.api
  }
  // Created first, because metering and plans, which come before allowances, write to it in their
  // own transactions.
  const resubscribe: Resubscribe = (db, users) => identity.users.resubscribe(db, users)
  const ledger = createLedger({ clocks: platform.clocks, resubscribe })
  // Created before identity, which uses the gate, and before metering, which uses the cuts.
  const findOwner = findOwnerUser
  const chainCut: SettingsDeps['chainCut'] = (db, app, since) => chainPrice(db, app, cutItem(since))
  const payers = { findOwner, resubscribe }
  const accounting = { ...outside, config: config.billing, ledger, ...payers, chainCut }
  const billing = openBilling(platform, accounting)
  const { gate, cuts, processor: cards } = billing
  const findSubscriber: FindSubscriber = (user) => plans.findSubscriber(user)
  const backend = add(createBackendModule(platform, { config: config.backend, findSubscriber }))
  const { selling } = gate
  const offering = { config: config.plans, ledger, resubscribe, selling, cards, backend }
  const plans = add(createPlansModule(platform, offering))
  const credentialIssuers = [keyCredentials, tokenCredentials, signerCredentials, issuerCredentials]
  const { mode: meteringMode } = config.metering
  const { ownByPlatform } = billing.settings
  const people = { config: config.identity, meteringMode, plans, backend, gate, ownByPlatform }
  const identity = add(createIdentityModule(platform, { ...people, credentialIssuers }))
  const tickets = { config: config.metering, backend, ledger, plans, cuts, users: identity.users }
  const metering = add(createMeteringModule(platform, tickets))
  const spending = { config: config.escrow, ledger, backend, plans, identity, metering }
  const allowances = add(createAllowancesModule(platform, spending))
  const keys = add(createKeysModule(platform, { identity }))
  const credentials = { config: config.tokens, identity, allowances, keys }
  const tokens = add(createTokensModule(platform, credentials))
  const trying = { drafts: plans.drafts, simulateLedger: ledger.simulateLedger }
  const { requireMetering } = backend
  const settling = { ledger, settlePlans: plans.settleClock }
  add(createBillingModule(platform, { ...billing, ...trying, settling, requireMetering }))
  const usage = add(createUsageModule(platform, { backend, identity, ledger, plans, cuts }))
  const records = { config: config.books, metering, ledger, plans, cuts }
  add(createBooksModule(platform, { ...records, usage, tokens, requireMetering }))
  add(createSealingModule(platform, tokens))
  add(createAuditModule(platform))
  add(createSignerModule(platform, { ledger, metering, identity, keys, tokens }))
  return { modules, authenticator: tokens.authenticator }
}
