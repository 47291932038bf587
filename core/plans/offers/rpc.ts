import { DomainError } from '../../../proto/errors.ts'
import type * as pb from '../../../proto/gen/ts-proto/tollgate/plans/v1/plans.ts'
import { type UsdAttos, formatDecimal18, microsDown } from '../../lib/money.ts'
import type { AppId } from '../../platform/ids.ts'
import {
  type MemberCaller,
  hiddenMember,
  m2mOrMember,
  operator,
  operatorActor,
  operatorWrite,
} from '../../rpc/callers.ts'
import { type Context, type Handlers, rpc } from '../../rpc/serve.ts'
import { toRetailRate, retailRules } from '../terms.ts'
import { parseBody } from './input.ts'
import type { Bundle, Plan } from './plan.ts'
import type { PlanSync, SyncResult } from '../sync/service.ts'
import type { SyncState } from '../sync/store.ts'
import type { Offers } from './service.ts'

export interface OffersRpcDeps {
  readonly offers: Offers
  readonly sync: PlanSync
}

export function createOffersRpc({ offers, sync }: OffersRpcDeps) {
  const { showAll, show } = createViews(sync)
  const planService: Handlers<pb.PlanServiceServer> = {
    listPlans: rpc(m2mOrMember(), async ({ knownVersion }: pb.ListPlansRequest, caller) => {
      // Read before the plans: if a change comes between, the version is too old and the list is
      // read again.
      const version = `${await offers.version(caller.appId)}.${await sync.version(caller.appId)}`
      if (version === knownVersion) return { plans: [], version, isKnown: true }
      const plans = await showAll(await offers.list(caller.appId), caller)
      return { plans, version, isKnown: false }
    }),
    createPlan: rpc(
      hiddenMember('edit'),
      async (request: pb.CreatePlanRequest, caller, context) => {
        const body = parseBody(request.planJson)
        const plan = await offers.create(caller.appId, body, actorOf(caller, context))
        return { id: plan.id, syncError: await sync.syncChange(plan) }
      },
    ),
    updatePlan: rpc(
      hiddenMember('edit'),
      async (request: pb.UpdatePlanRequest, caller, context) => {
        const body = parseBody(request.planJson)
        const plan = await offers.update(caller.appId, body, actorOf(caller, context))
        return { id: plan.id, syncError: await sync.syncChange(plan) }
      },
    ),
    deletePlan: rpc(
      hiddenMember('edit'),
      async (request: pb.DeletePlanRequest, caller, context) => {
        const { appId } = caller
        await offers.remove(appId, request.planId, actorOf(caller, context))
        await sync.syncRemoval({ appId, planId: request.planId })
        return {}
      },
    ),
    getStarterPlan: rpc(hiddenMember('read'), async (_: pb.GetStarterPlanRequest, caller) => ({
      plan: await show(await offers.starter(caller.appId), caller),
    })),
    setStarterPlan: rpc(
      hiddenMember('edit'),
      async (request: pb.SetStarterPlanRequest, caller, context) => {
        const body = parseBody(request.planJson)
        const plan = await offers.setStarter(caller.appId, body, actorOf(caller, context))
        await sync.syncChange(plan)
        return { plan: await show(plan, caller) }
      },
    ),
    syncPlan: rpc(hiddenMember('edit'), async ({ planId }: pb.SyncPlanRequest, { appId }) =>
      renderSync(await sync.sync({ appId, planId })),
    ),
  }
  return { planService }
}

/** The same service for operators, in any app. */
export function createOperatorOffersRpc({
  offers,
  sync,
  appOf,
}: OffersRpcDeps & {
  /** Throws NOT_FOUND for an unknown client id. */
  readonly appOf: (clientId: string) => Promise<AppId>
}) {
  const { showAll, show } = createViews(sync)
  const operatorPlanService: Handlers<pb.OperatorPlanServiceServer> = {
    readPlans: rpc(operator(), async ({ clientId }: pb.ReadPlansRequest) => {
      const appId = await appOf(clientId)
      return { plans: await showAll(await offers.list(appId), { appId, clientId }) }
    }),
    addPlan: rpc(operatorWrite(), async (request: pb.AddPlanRequest, _caller, context) => {
      const body = parseBody(request.planJson)
      const plan = await offers.create(await appOf(request.clientId), body, operatorActor(context))
      await sync.syncChange(plan)
      return { plan: await show(plan, request) }
    }),
    changePlan: rpc(operatorWrite(), async (request: pb.ChangePlanRequest, _caller, context) => {
      const app = await appOf(request.clientId)
      const body = { ...parseBody(request.planJson), id: request.planId }
      const { id } = await offers.starter(app)
      const change = id === request.planId ? offers.setStarter : offers.update
      const plan = await change(app, body, operatorActor(context))
      await sync.syncChange(plan)
      return { plan: await show(plan, request) }
    }),
    removePlan: rpc(operatorWrite(), async (request: pb.RemovePlanRequest, _caller, context) => {
      const { planId } = request
      const appId = await appOf(request.clientId)
      await offers.remove(appId, planId, operatorActor(context))
      await sync.syncRemoval({ appId, planId })
      return {}
    }),
    resyncPlan: rpc(operatorWrite(), async ({ clientId, planId }: pb.ResyncPlanRequest) =>
      renderSync(await sync.sync({ appId: await appOf(clientId), planId })),
    ),
  }
  return { operatorPlanService }
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

export const noSuchApp = (): DomainError =>
  new DomainError(
    'NOT_FOUND',
    'no app has this client id; it begins with app_, and ./tollgate app list shows it',
  )

const actorOf = ({ accountId }: MemberCaller, context: Context) => ({ name: accountId, context })

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
