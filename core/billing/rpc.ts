import { DomainError } from '../../proto/errors.ts'
import type * as pb from '../../proto/gen/ts-proto/tollgate/billing/v1/billing.ts'
import { type MemberCaller, type OperatorCaller, callerName } from '../rpc/callers.ts'
import {
  type RequireMetering,
  hidden,
  m2mOrMember,
  member,
  operator,
  operatorWrite,
  orOperator,
} from '../rpc/guards.ts'
import { type Handlers, rpc } from '../rpc/serve.ts'
import { formatEth } from '../lib/money.ts'
import type { Shared } from '../shared/shared.ts'
import { lastMs, toPlan, toSubscription } from './summary/render.ts'
import type { Statement, Statements } from './summary/statement.ts'
import type { BilledUsage, BillingSummary, Summary } from './summary/summary.ts'
import type { Gate } from './gate.ts'
import { toSettings } from './messages.ts'
import type { Connections } from './processor/connections.ts'
import { createPayoutHandlers } from './processor/payouts-rpc.ts'
import type { Payouts } from './processor/payouts.ts'
import { createProcessorHandlers } from './processor/rpc.ts'
import {
  type BillingSettings,
  type SettingsChange,
  formatPercent,
  parseBillingMode,
  parseCap,
  parsePercent,
} from './settings.ts'

export interface BillingRpcDeps extends Pick<Shared, 'pool' | 'now'> {
  readonly settings: BillingSettings
  readonly connections: Connections
  readonly gate: Gate
  readonly payouts: Payouts
  readonly summary: BillingSummary
  readonly statements: Statements
  readonly requireMetering: RequireMetering
}

/** Billing of an app, its settings, and the state of its activation gate. */
export function createBillingRpc({
  pool,
  settings,
  connections,
  gate,
  payouts,
  summary,
  statements,
  requireMetering,
  now,
}: BillingRpcDeps) {
  const billingService: Handlers<pb.BillingServiceServer> = {
    getBilling: rpc(
      requireMetering(hidden(m2mOrMember())),
      async (_: pb.GetBillingRequest, { appId }) => toBilling(await summary.read(appId)),
    ),
    getStatement: rpc(hidden(m2mOrMember()), async ({ month }: pb.GetStatementRequest, { appId }) =>
      toStatement(await statements.read(appId, month)),
    ),
    ...createProcessorHandlers({ pool, now, settings, connections, gate }),
    ...createPayoutHandlers({ payouts }),
    getBillingSettings: rpc(
      orOperator(m2mOrMember(), operator()),
      async ({ clientId }: pb.GetBillingSettingsRequest) => ({
        settings: toSettings(await settings.read(clientId)),
      }),
    ),
    updateBillingSettings: rpc(
      orOperator(member('own'), operatorWrite()),
      async (request: pb.UpdateBillingSettingsRequest, caller, { correlationId }) => {
        requireRights(caller, request)
        const actor = { name: callerName(caller), correlationId }
        return {
          settings: toSettings(await settings.change(request.clientId, changeOf(request), actor)),
        }
      },
    ),
  }
  return { billingService }
}

const toUsage = (usage: BilledUsage): pb.BilledUsage => ({
  requestCount: String(usage.requests),
  unpricedCount: String(usage.unpriced),
  totalFeeWei: String(usage.fee),
  totalFeeEth: formatEth(usage.fee),
  networkFeeUsdMicros: String(usage.networkMicros),
  ownerChargeWei: String(usage.ownerWei),
  ownerChargeUsdMicros: String(usage.ownerMicros),
  platformFeeWei: String(usage.platformWei),
  totalUnits: String(usage.units),
})

const toStatement = ({
  plan,
  period,
  usage,
  days,
  overage,
  cut,
}: Statement): pb.GetStatementResponse => ({
  plan: plan === null ? undefined : toPlan(plan),
  periodStart: period.start.toISOString(),
  periodEnd: lastMs(period.end),
  usage: toUsage(usage),
  days: days.map((each) => ({ date: each.day, usage: toUsage(each.usage) })),
  overageUnits: String(overage.units),
  overageWei: String(overage.wei),
  platformCutPercent: formatPercent(cut),
})

const toBilling = ({ plan, subscription, period, ...summary }: Summary): pb.GetBillingResponse => ({
  plan: plan === null ? undefined : toPlan(plan),
  subscription: subscription === null ? undefined : toSubscription(subscription),
  periodStart: period.start.toISOString(),
  periodEnd: lastMs(period.end),
  usage: toUsage(summary.usage),
  timeline: summary.timeline.map(({ day, requests, fee }) => ({
    date: day,
    requestCount: String(requests),
    feeWei: String(fee),
  })),
  overageUnits: String(summary.overage.units),
  overageWei: String(summary.overage.wei),
  platformCutPercent: formatPercent(summary.cut),
})

const ownersSettings: ReadonlySet<string> = new Set(['clientId', 'billingMode'])

/** Owners set the billing mode; the other settings protect the platform from them. */
function requireRights(
  caller: MemberCaller | OperatorCaller,
  request: pb.UpdateBillingSettingsRequest,
): void {
  if (caller.kind === 'operator' || caller.isPlatformAdmin) return
  const refused = Object.entries(request).flatMap(([name, value]) =>
    value === undefined || ownersSettings.has(name) ? [] : [name],
  )
  if (refused.length > 0)
    throw new DomainError(
      'EDIT_FORBIDDEN',
      `only a platform admin may change ${refused.join(', ')}; an owner may change billingMode`,
    )
}

const changeOf = ({
  billingMode,
  endUserCap,
  isPlatformOwned,
  servesEveryApp,
  platformCutPercent,
}: pb.UpdateBillingSettingsRequest): SettingsChange => ({
  ...(billingMode === undefined ? {} : { billingMode: parseBillingMode(billingMode) }),
  ...(endUserCap === undefined ? {} : { endUserCap: parseCap(endUserCap) }),
  ...(isPlatformOwned === undefined ? {} : { isPlatformOwned }),
  ...(servesEveryApp === undefined ? {} : { servesEveryApp }),
  ...(platformCutPercent === undefined ? {} : { cut: parsePercent(platformCutPercent) }),
})
