import type * as pb from '../../../proto/gen/ts-proto/tollgate/billing/v1/wallet.ts'
import {
  type UsdAttos,
  formatDollars,
  microsDown,
  microsToAttos,
  microsUp,
  usdAttos,
  usdMicros,
} from '../../lib/money.ts'
import type { Card } from '../processor/port.ts'
import type { BillingState } from './billing-state.ts'

/** Renders billing states. Money of the payer is rounded down, debts up. */

export function renderState(state: BillingState, docsUrl: string): pb.BillingState {
  const { money, isOwner, externalUserId, billingMode, status, reason, explanation } = state
  return {
    asOf: money.at.toISOString(),
    subject: { type: isOwner ? 'owner' : 'end_user', externalUserId, billingMode },
    status,
    canSpend: money.canSpend,
    reason: reason ?? undefined,
    funding: renderFunding(state),
    collection: renderCollection(state),
    explain: { ...explanation, docsUrl },
  }
}

function renderFunding({ money, standing, utilizationBps }: BillingState): pb.BillingFunding {
  const { included, ceiling, creditLine } = money
  const isEligible = ceiling > 0n
  return {
    prepaid: down(money.prepaid),
    includedUsage: {
      total: down(included.total),
      remaining: down(included.remaining),
      consumed: toMoney(microsDown(included.total) - microsDown(included.remaining)),
      resetsAt: money.periodEnd.toISOString(),
      sourcePlan: standing?.planName,
    },
    spendable: down(money.spendable),
    net: down(money.net),
    overage: {
      eligible: isEligible,
      ceiling: isEligible ? down(ceiling) : undefined,
      unbilledDebt: up(money.uninvoiced > 0n ? money.uninvoiced : usdAttos(0n)),
      remaining: isEligible ? down(creditLine) : undefined,
      utilizationBps: utilizationBps ?? undefined,
      debtSource: 'gathering_invoice',
    },
  }
}

const renderCollection = (state: BillingState): pb.BillingCollection => ({
  mode: state.mode,
  collector: state.isOwner ? 'platform' : 'app',
  paymentMethod: renderCard(state.card),
  nextAction: state.nextAction,
  leadThreshold: state.money.raisesAt === null ? undefined : down(state.money.raisesAt),
  minimumCharge: up(state.minimumCharge),
  cycle: state.standing?.cycle,
  collectionInterval: state.collectionInterval ?? undefined,
  lastRaisedAt: state.standing?.lastRaisedAt?.toISOString(),
  nextRaiseEligibleAt: state.standing?.nextRaiseAt?.toISOString(),
})

/** Undefined is unknown, which is not the same as no card. */
export const renderCard = (card: Card | null | undefined): pb.WalletCard | undefined =>
  card === undefined
    ? undefined
    : { hasDefault: card !== null, brand: card?.brand, last4: card?.last4 }

const down = (amount: UsdAttos): pb.BillingMoney => toMoney(microsDown(amount))
const up = (amount: UsdAttos): pb.BillingMoney => toMoney(microsUp(amount))

const toMoney = (micros: bigint): pb.BillingMoney => ({
  usdMicros: micros.toString(),
  usd: formatDollars(microsToAttos(usdMicros(micros))),
  currency: 'USD',
})
