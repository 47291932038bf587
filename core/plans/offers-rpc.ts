import type * as pb from '../../proto/gen/ts-proto/tollgate/plans/v1/plans.ts'
import { type UsdAttos, formatDecimal18, microsDown } from '../lib/money.ts'
import type { AppId } from '../shared/ids.ts'
import { toActor } from '../rpc/callers.ts'
import {
  appReader,
  appOperatorWrite,
  hiddenMember,
  m2mOrMember,
  orOperator,
} from '../rpc/guards.ts'
import { type Handlers, rpc } from '../rpc/serve.ts'
import { toRetailRate, retailRules } from './terms.ts'
import { parseBody } from './offers/input.ts'
import type { Bundle, Plan } from './offers/plan.ts'
import type { SyncResult } from './sync/run.ts'
import type { PlanSync } from './sync/service.ts'
import type { SyncState } from './sync/store.ts'
import type { Offers } from './offers/service.ts'

export interface OffersRpcDeps {
  readonly offers: Offers
  readonly sync: PlanSync
}

export function createOffersRpc({ offers, sync }: OffersRpcDeps) {
  const { showAll, show } = createViews(sync)
  const reader = orOperator(m2mOrMember(), appReader())
  const editor = orOperator(hiddenMember('edit'), appOperatorWrite())
  const planService: Handlers<pb.PlanServiceServer> = {
    listPlans: rpc(reader, async ({ knownVersion }: pb.ListPlansRequest, caller) => {
      // Read before the plans: if a change comes between, the version is too old and the list is
      // read again.
      const version = `${await offers.version(caller.appId)}.${await sync.version(caller.appId)}`
      if (version === knownVersion) return { plans: [], version, isKnown: true }
      const plans = await showAll(await offers.list(caller.appId), caller)
      return { plans, version, isKnown: false }
    }),
    createPlan: rpc(editor, async (request: pb.CreatePlanRequest, caller, context) => {
      const body = parseBody(request.planJson)
      const plan = await offers.create(caller.appId, body, toActor(caller, context))
      const syncError = await sync.syncChange(plan)
      return { id: plan.id, syncError, plan: await show(plan, caller) }
    }),
    updatePlan: rpc(editor, async (request: pb.UpdatePlanRequest, caller, context) => {
      const { planId } = request
      const body = {
        ...parseBody(request.planJson),
        ...(planId === undefined ? {} : { id: planId }),
      }
      // Members change Starter by its own RPC.
      const isStarter =
        caller.kind === 'operator' && (await offers.starter(caller.appId)).id === body.id
      const change = isStarter ? offers.setStarter : offers.update
      const plan = await change(caller.appId, body, toActor(caller, context))
      const syncError = await sync.syncChange(plan)
      return { id: plan.id, syncError, plan: await show(plan, caller) }
    }),
    deletePlan: rpc(editor, async ({ planId }: pb.DeletePlanRequest, caller, context) => {
      const { appId } = caller
      await offers.remove(appId, planId, toActor(caller, context))
      await sync.syncRemoval({ appId, planId })
      return {}
    }),
    getStarterPlan: rpc(hiddenMember('read'), async (_: pb.GetStarterPlanRequest, caller) => ({
      plan: await show(await offers.starter(caller.appId), caller),
    })),
    updateStarterPlan: rpc(
      hiddenMember('edit'),
      async (request: pb.UpdateStarterPlanRequest, caller, context) => {
        const body = parseBody(request.planJson)
        const plan = await offers.setStarter(caller.appId, body, toActor(caller, context))
        await sync.syncChange(plan)
        return { plan: await show(plan, caller) }
      },
    ),
    listPlanVersions: rpc(reader, async ({ planId }: pb.ListPlanVersionsRequest, caller) => ({
      versions: await showAll(await offers.versions(caller.appId, planId), caller),
    })),
    syncPlan: rpc(editor, async ({ planId }: pb.SyncPlanRequest, { appId }) =>
      renderSync(await sync.sync({ appId, planId })),
    ),
  }
  return { planService }
}

/** Renders plans with their state in the metering backend. */
function createViews(sync: PlanSync) {
  async function showAll(
    plans: readonly Plan[],
    { appId, clientId }: { readonly appId: AppId; readonly clientId: string },
  ): Promise<pb.Plan[]> {
    const states = await sync.states(appId)
    const { target } = sync
    return plans.map((plan) => renderPlan(plan, { clientId, target, state: states.get(plan.id) }))
  }

  async function show(plan: Plan, { clientId }: { readonly clientId: string }): Promise<pb.Plan> {
    const state = (await sync.states(plan.appId)).get(plan.id)
    return renderPlan(plan, { clientId, target: sync.target, state })
  }

  return { showAll, show }
}

const renderSync = ({ openmeterPlanId, syncedAt }: SyncResult) => ({
  openmeterPlanId: openmeterPlanId ?? undefined,
  syncedAt: syncedAt.toISOString(),
})

const renderMicros = (attos: UsdAttos | null): string | undefined =>
  attos === null ? undefined : microsDown(attos).toString()

const renderRate = (rate: bigint | null): string | undefined =>
  rate === null ? undefined : formatDecimal18(rate)

function renderPlan(
  plan: Plan,
  {
    clientId,
    target,
    state,
  }: {
    readonly clientId: string
    readonly target: PlanSync['target']
    readonly state: SyncState | undefined
  },
): pb.Plan {
  const { newest } = plan
  const rules = retailRules(newest)
  return {
    id: plan.id,
    clientId,
    name: plan.name,
    type: newest.type,
    priceAmount: newest.priceAmount,
    priceCurrency: newest.priceCurrency,
    status: plan.status,
    isNetworkDefault: plan.isNetworkDefault,
    isStarterDefault: plan.isStarterDefault,
    includedUnits: newest.includedUnits?.toString(),
    includedUsdMicros: renderMicros(newest.included),
    overageRateWei: newest.overageRateWei?.toString(),
    overageRateUsd: renderRate(newest.retailRate),
    billingCycle: newest.billingCycle,
    chargeThresholdUsdMicros: renderMicros(newest.chargeThreshold),
    version: newest.version,
    capabilities: newest.bundles.map((bundle) =>
      renderBundle(bundle, effectiveRate(rules, bundle)),
    ),
    createdAt: plan.createdAt.toISOString(),
    updatedAt: plan.updatedAt.toISOString(),
    ...renderState(state),
    syncTarget: target ?? undefined,
  }
}

const renderState = (state: SyncState | undefined) => ({
  openmeterPlanId: state?.openmeterPlanId ?? undefined,
  lastSyncedAt: state?.lastSyncedAt?.toISOString(),
  syncError: state?.syncError ?? undefined,
})

const microsPerUsd = 1_000_000n

/** USD per USD-micro, for the models that the bundle names. */
function effectiveRate(rules: ReturnType<typeof retailRules>, bundle: Bundle): string {
  const { rate } = toRetailRate({ rules }, bundle)
  return formatDecimal18(rate / microsPerUsd)
}

const renderBundle = (bundle: Bundle, effectiveRetailRateUsd: string): pb.PlanCapability => ({
  id: bundle.id,
  pipeline: bundle.pipeline,
  modelId: bundle.modelId,
  slaTargetScore: bundle.slaTargetScore ?? undefined,
  slaTargetP95Ms: bundle.slaTargetP95Ms ?? undefined,
  maxPricePerUnit: bundle.maxPricePerUnit?.toString(),
  retailRateUsd: renderRate(bundle.retailRate),
  effectiveRetailRateUsd,
})
