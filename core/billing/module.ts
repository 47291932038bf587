import { OverageServiceService } from '../../proto/gen/ts-proto/tollgate/billing/v1/overage.ts'
import { BillingServiceService } from '../../proto/gen/ts-proto/tollgate/billing/v1/billing.ts'
import { OwnerAccountServiceService } from '../../proto/gen/ts-proto/tollgate/billing/v1/owners.ts'
import type { Shared } from '../shared/shared.ts'
import { SimulatedProcessorServiceService } from '../../proto/gen/ts-proto/tollgate/billing/v1/simulated.ts'
import type { PlanPayments } from '../plans/subscriptions/ports.ts'
import { grpcService } from '../rpc/serve.ts'
import type { BillingConfig } from './config.ts'
import { type Cuts, createCuts } from './cuts.ts'
import { type Gate, type GateDeps, createGate } from './gate.ts'
import { createMoneyFigures } from './figures.ts'
import { createCollectFinal } from './collection/requests.ts'
import type { CollectionDeps } from './collection/module.ts'
import { type PayingDeps, createPaying } from './paying.ts'
import { type Connections, createConnections } from './processor/connections.ts'
import { type TakeOrders, planPayments } from './orders/module.ts'
import { saveKind } from './processor/kind-store.ts'
import { type PayoutsDeps, createPayouts } from './processor/payouts.ts'
import type { PaymentProcessor, ProcessorEvent } from './processor/port.ts'
import { createSimulatedRpc } from './processor/simulated/rpc.ts'
import {
  type SimulatedProcessor,
  createSimulatedProcessor,
} from './processor/simulated/simulated.ts'
import { type RequireDeletable, createDeletion } from './owners/deletion.ts'
import { type OwnerAccountsDeps, createOwnerAccountService } from './owners/accounts.ts'
import { createOwnersRpc } from './owners/rpc.ts'
import { type ModesDeps, createModes } from './owners/modes.ts'
import { type Unpaid, createUnpaid } from './owners/unpaid.ts'
import { type BillingRpcDeps, createBillingRpc } from './rpc.ts'
import { type BillingSettings, type SettingsDeps, createSettings } from './settings.ts'
import { type Statements, createStatements } from './summary/statement.ts'
import { type BillingSummary, type SummaryDeps, createSummary } from './summary/summary.ts'
import type { RequireMetering } from '../rpc/guards.ts'
import { testClockParts } from './clock/module.ts'
import type { TestClockDeps } from './clock/clock.ts'
import {
  type Ceilings,
  type CeilingsDeps,
  createCeilings,
  minimumCharge,
} from './wallet/ceilings.ts'
import { createReconciliationPart } from './reconciliation/module.ts'
import { createOverageRpc } from './wallet/overage-rpc.ts'
import { createOverage } from './wallet/overage.ts'
import { whatIfServices } from './whatif/module.ts'
import type { WhatIfDeps } from './whatif/whatif.ts'

export interface BillingOthers extends Pick<
  SummaryDeps,
  'findOwner' | 'findOwnerAccount' | 'resubscribe'
> {
  readonly ledger: GateDeps['ledger'] &
    SummaryDeps['ledger'] &
    CeilingsDeps['ledger'] &
    ModesDeps['ledger'] &
    Parameters<typeof createCollectFinal>[0]
  readonly findCards: CeilingsDeps['findCards']
  readonly config: BillingConfig
  readonly chainCut: SettingsDeps['chainCut']
  /** Stores an event of the simulated processor. */
  readonly receive: (event: ProcessorEvent) => Promise<void>
  /** A processor outside. Without one, the simulated one runs if the settings name it. */
  readonly processor?: PaymentProcessor | null | undefined
  /** Takes orders for plans that must be paid. */
  readonly orders: () => TakeOrders
}

/** Creates the parts of billing that other domains need, before all modules. */
export function openBilling(
  shared: Shared,
  { config, ledger, findCards, orders, ...others }: BillingOthers,
): BillingParts {
  const { pool, now, clocks } = shared
  const { endUserCap } = config
  const { chainCut, findOwner, findOwnerAccount, resubscribe } = others
  const cuts = createCuts({ pool, now })
  const { publicUrl } = shared.config
  const gateDeps = { ...shared, publicUrl, endUserCap, mode: config.gateMode }
  const unpaid = createUnpaid({ findOwnerAccount })
  const ceilings = createCeilings({ ...shared, ledger, findCards })
  const { refreshApp: refreshCeilings } = ceilings
  const processing = openConnections(shared, { config, ...others, unpaid, refreshCeilings })
  const { connections } = processing
  const reads = { pool, now, clocks, cuts, ledger, findOwner, findOwnerAccount }
  const changing = { pool, now, modes: createModes({ pool, ledger, now }) }
  return {
    ...processing,
    payments: planPayments(orders),
    cuts,
    ceilings,
    gate: createGate({ ...gateDeps, ledger, connections, findOwnerAccount }),
    settings: createSettings({ ...changing, cuts, chainCut, endUserCap, refreshCeilings, unpaid }),
    summary: createSummary({ ...reads, resubscribe }),
    statements: createStatements(reads),
    findOwnerAccount,
    chargesAtOnce: config.chargesAtOnce,
    collectFinal: createCollectFinal(ledger),
    requireDeletable: createDeletion({ connections, unpaid }),
  }
}

/** Opens the deployment's payment processor and the connections of apps to it. */
function openConnections(
  shared: Shared,
  {
    config,
    processor,
    receive,
    unpaid,
    refreshCeilings,
  }: Pick<BillingOthers, 'config' | 'processor' | 'receive'> & {
    readonly unpaid: Unpaid
    readonly refreshCeilings: Ceilings['refreshApp']
  },
): ProcessorParts {
  const { publicUrl } = shared.config
  const simulated =
    !processor && config.processor.kind === 'simulated'
      ? createSimulatedProcessor({ ...shared, publicUrl, receive })
      : null
  const used = processor ?? simulated?.processor ?? null
  const connections = createConnections({
    ...shared,
    publicUrl,
    processor: used,
    hasUnpaid: unpaid.hasUnpaid,
    // Users of an app without an account have no card that counts.
    onChange: refreshCeilings,
  })
  return { connections, simulated, processor: used }
}

interface ProcessorParts {
  readonly connections: Connections
  /** Null unless the deployment runs it. */
  readonly simulated: SimulatedProcessor | null
  /** Null if the deployment has none. */
  readonly processor: PaymentProcessor | null
}

interface BillingParts extends ProcessorParts {
  readonly payments: PlanPayments
  readonly cuts: Cuts
  readonly ceilings: Ceilings
  readonly gate: Gate
  readonly settings: BillingSettings
  readonly summary: BillingSummary
  readonly statements: Statements
  readonly requireDeletable: RequireDeletable
  readonly chargesAtOnce: number
  readonly collectFinal: ReturnType<typeof createCollectFinal>
  /** Returns the owner's account in the platform app; null before its first charge. */
  readonly findOwnerAccount: CollectionDeps['findOwner']
}

interface BillingModuleOthers
  extends BillingParts, PayingDeps, Pick<WhatIfDeps, 'drafts' | 'simulateLedger'> {
  readonly requireMetering: RequireMetering
  /** Does what is due by the clock of a test app. */
  readonly plans: PayingDeps['plans'] & { readonly settleClock: TestClockDeps['settlePlans'] }
  readonly owning: Pick<OwnerAccountsDeps, 'ledger' | 'owners' | 'plans'>
}

/** Settings of apps, activation gate, billing summaries, what-ifs and test clocks. */
export function createBillingModule(
  shared: Shared,
  { drafts, simulateLedger, simulated, owning, ...parts }: BillingModuleOthers,
) {
  const paying = createPaying(shared, parts)
  const clockDeps = { ...parts, settlePlans: parts.plans.settleClock, collect: paying.collect }
  const testClock = testClockParts({ ...shared, ...clockDeps })
  const { overageService } = createOverageRpc({ overage: createOverage({ ...shared, ...parts }) })
  const figures = createMoneyFigures(shared)
  const reconciling = createReconciliationPart(shared, { ...parts, ...paying })
  return {
    api: {
      receive: paying.receive,
      orders: paying.planOrders,
      recomputeInvoices: paying.recomputeInvoices,
      minimumCharge,
      processorReconciliation: reconciling.reconciliation,
    },
    services: [
      billingService({ ...shared, ...parts }),
      ownerAccountService({ ...shared, ...owning }),
      grpcService(OverageServiceService, overageService),
      ...whatIfServices({ ...shared, drafts, simulateLedger }),
      ...testClock.services,
      ...paying.services,
      ...reconciling.services,
      ...(simulated ? [simulatedService(simulated)] : []),
    ],
    lifecycle: {
      prepare: () => saveKind(shared.pool, parts.processor?.kind ?? 'none'),
      start: () => {
        paying.lifecycle.start()
        reconciling.start()
        figures.start()
      },
      stop: () => Promise.all([paying.lifecycle.stop(), reconciling.stop(), figures.stop()]),
    },
    upkeep: [
      ...testClock.upkeep,
      ...parts.connections.upkeep,
      ...(simulated?.upkeep ?? []),
      ...paying.upkeep,
    ],
  }
}

function billingService(deps: Omit<BillingRpcDeps, 'payouts'> & PayoutsDeps) {
  const rpc = createBillingRpc({ ...deps, payouts: createPayouts(deps) })
  return grpcService(BillingServiceService, rpc.billingService)
}

const simulatedService = ({ pages }: SimulatedProcessor) =>
  grpcService(SimulatedProcessorServiceService, createSimulatedRpc(pages).simulatedProcessorService)

function ownerAccountService(deps: OwnerAccountsDeps) {
  const rpc = createOwnersRpc({ ownerAccounts: createOwnerAccountService(deps) })
  return grpcService(OwnerAccountServiceService, rpc.ownerAccountService)
}
