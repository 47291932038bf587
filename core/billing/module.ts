import {
  BillingServiceService,
  BillingSettingsServiceService,
} from '../../proto/gen/ts-proto/tollgate/billing/v1/billing.ts'
import type { Platform } from '../platform/platform.ts'
import { grpcService } from '../rpc/serve.ts'
import type { BillingConfig } from './config.ts'
import { type Cuts, createCuts } from './cuts.ts'
import { type Gate, type GateDeps, createGate } from './gate.ts'
import { type PaymentProcessor, unconnectedProcessor } from './processor.ts'
import { createBillingRpc, createSettingsRpc } from './rpc.ts'
import { type BillingSettings, type SettingsDeps, createSettings } from './settings.ts'
import { type Statements, createStatements } from './summary/statement.ts'
import { type BillingSummary, type SummaryDeps, createSummary } from './summary/summary.ts'
import type { RequireMetering } from '../rpc/callers.ts'
import { testClockParts } from './clock/module.ts'
import type { TestClockDeps } from './clock/clock.ts'
import { whatIfServices } from './whatif/module.ts'
import type { WhatIfDeps } from './whatif/whatif.ts'

export interface BillingOthers extends Pick<SummaryDeps, 'findOwner' | 'resubscribe'> {
  readonly ledger: GateDeps['ledger'] & SummaryDeps['ledger']
  readonly config: BillingConfig
  readonly chainCut: SettingsDeps['chainCut']
  /** Default: no processor. */
  readonly processor?: PaymentProcessor | undefined
}

/** Creates the parts of billing that other domains need, before all modules. */
export function openBilling(
  platform: Platform,
  { config, ledger, processor = unconnectedProcessor, ...others }: BillingOthers,
): BillingParts {
  const { pool, now, clocks } = platform
  const { endUserCap } = config
  const { chainCut, findOwner, resubscribe } = others
  const cuts = createCuts({ pool, now })
  const { publicUrl } = platform.config
  const shared = { ...platform, publicUrl, endUserCap, mode: config.gateMode }
  return {
    processor,
    cuts,
    gate: createGate({ ...shared, ledger, processor, findOwner }),
    settings: createSettings({ pool, now, cuts, chainCut, endUserCap }),
    summary: createSummary({ pool, now, clocks, cuts, ledger, findOwner, resubscribe }),
    statements: createStatements({ pool, now, clocks, cuts, ledger, findOwner }),
  }
}

interface BillingParts {
  readonly processor: PaymentProcessor
  readonly cuts: Cuts
  readonly gate: Gate
  readonly settings: BillingSettings
  readonly summary: BillingSummary
  readonly statements: Statements
}

/** Settings of apps, activation gate, billing summaries, what-ifs and test clocks. */
export function createBillingModule(
  platform: Platform,
  {
    drafts,
    simulateLedger,
    settling,
    ...parts
  }: BillingParts & { readonly requireMetering: RequireMetering } & Pick<
      WhatIfDeps,
      'drafts' | 'simulateLedger'
    > & {
      /** Does what is due by the clock of a test app. */
      readonly settling: Pick<TestClockDeps, 'ledger' | 'settlePlans'>
    },
) {
  const testClock = testClockParts({ ...platform, ...settling })
  return {
    api: {},
    services: [
      grpcService(
        BillingServiceService,
        createBillingRpc({ ...platform, ...parts }).billingService,
      ),
      grpcService(BillingSettingsServiceService, createSettingsRpc(parts).billingSettingsService),
      ...whatIfServices({ ...platform, drafts, simulateLedger }),
      ...testClock.services,
    ],
    upkeep: testClock.upkeep,
  }
}
