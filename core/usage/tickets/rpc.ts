import type * as pb from '../../../proto/gen/ts-proto/tollgate/usage/v1/tickets.ts'
import { DomainError } from '../../../proto/errors.ts'
import type { CreditDebit } from '../../balances/accounts/chain.ts'
import { formatDecimal18 as decimal } from '../../lib/money.ts'
import type { AppId } from '../../shared/ids.ts'
import { type RequireMetering, m2mOrMember, orOperator, reader } from '../../rpc/guards.ts'
import { type Handlers, rpc } from '../../rpc/serve.ts'
import type { Explain, ExplainedCharge, ExplainedSale, Explanation } from './explain.ts'
import { toFormula } from './formula.ts'

export interface TicketRpcDeps {
  readonly explain: Explain['explain']
  /** Returns the app of a public client id; null without one. */
  readonly findApp: (clientId: string) => Promise<AppId | null>
  readonly requireMetering: RequireMetering
}

export function createTicketRpc({ explain, findApp, requireMetering }: TicketRpcDeps) {
  async function appOf(clientId: string | undefined): Promise<AppId | null> {
    if (clientId === undefined) return null
    const app = await findApp(clientId)
    if (!app) throw new DomainError('NOT_FOUND', 'no such app')
    return app
  }

  const ticketService: Handlers<pb.TicketServiceServer> = {
    explainTicket: rpc(
      orOperator(requireMetering(m2mOrMember()), reader()),
      async ({ clientId, eventId }: pb.ExplainTicketRequest, caller) => {
        const app = caller.kind === 'operator' ? await appOf(clientId) : caller.appId
        return { ticket: toTicket(await explain(eventId, app)) }
      },
    ),
  }
  return { ticketService }
}

/** Formats a ticket for responses and receipts. */
export const toTicket = (ticket: Explanation): pb.Ticket => ({
  clientId: ticket.clientId,
  eventId: ticket.eventId,
  gatewayRequestId: ticket.requestId,
  endUserId: ticket.userId,
  externalUserId: ticket.externalUserId ?? undefined,
  sessionId: ticket.sessionId,
  sequenceNumber: String(ticket.sequenceNumber),
  manifestId: ticket.manifestId,
  pipeline: ticket.pipeline,
  modelId: ticket.modelId,
  signedAt: ticket.signedAt,
  receivedAt: ticket.receivedAt.toISOString(),
  clockAheadMs: ticket.aheadMs === 0 ? undefined : String(ticket.aheadMs),
  feeWei: String(ticket.fee),
  sale: ticket.sale ? toSale(ticket.sale) : undefined,
  formula: toFormula(ticket),
})

const microsPerUsd = 1_000_000n

const toSale = ({ rate, plan, rule, cut, period, charge, ...sale }: ExplainedSale) => ({
  rate: {
    id: String(rate.id),
    source: rate.source,
    observedAt: rate.observedAt.toISOString(),
    usdPerEth: decimal(rate.usdAttosPerEth),
  },
  networkCostUsd: decimal(sale.cost),
  plan: plan ? { ...plan, termsId: String(plan.termsId) } : undefined,
  rule: rule
    ? {
        name: rule.name,
        bundleId: rule.bundleId ?? undefined,
        retailRateUsd: decimal(rule.ratio / microsPerUsd),
        multiple: decimal(rule.ratio),
      }
    : undefined,
  retailCostUsd: decimal(sale.retail),
  cut: cut ? { percent: decimal(cut.percent), since: cut.since.toISOString() } : undefined,
  platformFeeUsd: decimal(sale.platformFee),
  platformFeeWei: String(sale.platformWei),
  ownerChargeUsd: decimal(sale.cost + sale.platformFee),
  period: period ? { start: period.start.toISOString(), end: period.end.toISOString() } : undefined,
  charge: charge ? toCharge(charge) : undefined,
})

function toCharge({ share, credits, ...charge }: ExplainedCharge): pb.TicketCharge {
  const toDraw = ({ creditId, amount }: CreditDebit): pb.TicketDraw => {
    const credit = credits.find(({ id }) => id === creditId)
    return {
      creditId,
      kind: credit?.kind ?? '',
      source: credit?.source ?? '',
      amountUsd: decimal(-amount),
    }
  }
  return {
    id: charge.id,
    seq: String(charge.seq),
    bookedAt: charge.bookedAt.toISOString(),
    ticketCount: charge.ticketCount,
    paidUsd: decimal(charge.paid),
    overageUsd: decimal(charge.overage),
    draws: charge.draws.map(toDraw),
    share: share
      ? { draws: share.draws.map(toDraw), overageUsd: decimal(share.overage) }
      : undefined,
  }
}
