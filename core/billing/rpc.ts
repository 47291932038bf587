import type * as pb from '../../proto/gen/ts-proto/tollgate/billing/v1/billing.ts'
import type { Pool } from '../lib/sql.ts'
import type { Now } from '../lib/time.ts'
import { audit } from '../platform/audit.ts'
import {
  type MemberCaller,
  type RequireMetering,
  hidden,
  m2mOrMember,
  member,
  operator,
  operatorWrite,
  platformAdmin,
} from '../rpc/callers.ts'
import { type Context, type Handlers, rpc } from '../rpc/serve.ts'
import { formatEth, microsDown } from '../lib/money.ts'
import type { BilledPlan } from './summary/store.ts'
import type { Statement, Statements } from './summary/statement.ts'
import type { BilledUsage, BillingSummary, Summary } from './summary/summary.ts'
import { type Admission, type Gate, details } from './gate.ts'
import type { PaymentProcessor } from './processor.ts'
import {
  type AppSettings,
  type BillingSettings,
  type SettingsChange,
  formatPercent,
  parseBillingMode,
  parseCap,
  parsePercent,
} from './settings.ts'

export interface BillingRpcDeps {
  readonly pool: Pool
  readonly settings: BillingSettings
  readonly processor: PaymentProcessor
  readonly gate: Gate
  readonly summary: BillingSummary
  readonly statements: Statements
  readonly requireMetering: RequireMetering
  readonly now: Now
}

/** Billing of an app, its settings, and the state of its activation gate. */
export function createBillingRpc({
  pool,
  settings,
  processor,
  gate,
  summary,
  statements,
  requireMetering,
  now,
}: BillingRpcDeps) {
  const note = (caller: MemberCaller, context: Context, action: string): Promise<void> =>
    audit(pool, {
      appId: caller.appId,
      actor: caller.accountId,
      action,
      status: 'success',
      correlationId: context.correlationId,
      at: now(),
    })

  const billingService: Handlers<pb.BillingServiceServer> = {
    getBilling: rpc(
      requireMetering(hidden(m2mOrMember())),
      async (_: pb.GetBillingRequest, { appId }) => toBilling(await summary.read(appId)),
    ),
    getStatement: rpc(hidden(m2mOrMember()), async ({ month }: pb.GetStatementRequest, { appId }) =>
      toStatement(await statements.read(appId, month)),
    ),
    getProcessor: rpc(m2mOrMember(), async ({ clientId }: pb.GetProcessorRequest, { appId }) => {
      const [connection, app] = [await processor.connectionOf(appId), await settings.read(clientId)]
      const { provisioning, selling } = await gate.read(appId, app)
      return {
        status: connection.status,
        connectedAt: connection.connectedAt?.toISOString(),
        settings: toSettings(app),
        provisioning: toAdmission(provisioning),
        selling: toAdmission(selling),
      }
    }),
    connectProcessor: rpc(member('own'), async (_: pb.ConnectProcessorRequest, caller, context) => {
      const { url } = await processor.connect(caller.appId)
      await note(caller, context, 'processor_connection_started')
      return { url }
    }),
    disconnectProcessor: rpc(
      member('own'),
      async (_: pb.DisconnectProcessorRequest, caller, context) => {
        await processor.disconnect(caller.appId)
        await note(caller, context, 'processor_disconnected')
        return {}
      },
    ),
    getBillingSettings: rpc(m2mOrMember(), async ({ clientId }: pb.GetBillingSettingsRequest) => ({
      settings: toSettings(await settings.read(clientId)),
    })),
    setBillingSettings: rpc(
      platformAdmin(),
      async (request: pb.SetBillingSettingsRequest, { accountId }, { correlationId }) => {
        const actor = { name: accountId, correlationId }
        return {
          settings: toSettings(await settings.change(request.clientId, changeOf(request), actor)),
        }
      },
    ),
  }
  return { billingService }
}

const lastMs = (end: Date): string => new Date(end.getTime() - 1).toISOString()

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
  subscription:
    subscription === null
      ? undefined
      : {
          id: subscription.subscriptionId,
          status: subscription.status,
          currentPeriodStart: subscription.start.toISOString(),
          currentPeriodEnd: lastMs(subscription.end),
        },
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

const toPlan = (plan: BilledPlan): pb.BilledPlan => ({
  id: plan.id,
  type: plan.type,
  name: plan.name,
  priceAmount: plan.priceAmount,
  priceCurrency: plan.priceCurrency,
  includedUnits: plan.includedUnits?.toString(),
  includedUsdMicros: plan.included === null ? undefined : String(microsDown(plan.included)),
  overageRateWei: plan.overageRateWei?.toString(),
  billingCycle: plan.billingCycle,
  status: plan.status,
})

const toAdmission = ({ reason, isEnforced }: Admission): pb.Admission => ({
  code: reason?.toLowerCase(),
  detail: reason === null ? '' : details[reason],
  isEnforced,
})

/** Settings service for operators. */
export function createSettingsRpc({ settings }: { readonly settings: BillingSettings }) {
  const billingSettingsService: Handlers<pb.BillingSettingsServiceServer> = {
    readBillingSettings: rpc(operator(), async ({ clientId }: pb.ReadBillingSettingsRequest) => ({
      settings: toSettings(await settings.read(clientId)),
    })),
    replaceBillingSettings: rpc(
      operatorWrite(),
      async (request: pb.ReplaceBillingSettingsRequest, _caller, { correlationId }) => {
        const actor = { name: 'operator', correlationId }
        return {
          settings: toSettings(await settings.change(request.clientId, changeOf(request), actor)),
        }
      },
    ),
  }
  return { billingSettingsService }
}

const changeOf = ({
  billingMode,
  endUserCap,
  isPlatformOwned,
  servesEveryApp,
  platformCutPercent,
}: Omit<pb.ReplaceBillingSettingsRequest, 'clientId'>): SettingsChange => ({
  ...(billingMode === undefined ? {} : { billingMode: parseBillingMode(billingMode) }),
  ...(endUserCap === undefined ? {} : { endUserCap: parseCap(endUserCap) }),
  ...(isPlatformOwned === undefined ? {} : { isPlatformOwned }),
  ...(servesEveryApp === undefined ? {} : { servesEveryApp }),
  ...(platformCutPercent === undefined ? {} : { cut: parsePercent(platformCutPercent) }),
})

const toSettings = (settings: AppSettings): pb.BillingSettings => ({
  clientId: settings.clientId,
  billingMode: settings.billingMode,
  endUserCap: settings.cap,
  isDefaultCap: settings.endUserCap === null,
  isPlatformOwned: settings.isPlatformOwned,
  servesEveryApp: settings.servesEveryApp,
  platformCutPercent: formatPercent(settings.cut),
  plannedCuts: settings.plannedCuts.map(({ since, basisPoints }) => ({
    since: since.toISOString(),
    percent: formatPercent(basisPoints),
  })),
})
