import type * as pb from '../../../proto/gen/ts-proto/tollgate/billing/v1/billing.ts'
import { appOperator, member, orOperator } from '../../rpc/guards.ts'
import { type Handlers, rpc } from '../../rpc/serve.ts'
import { formatUnits } from '../../lib/money.ts'
import { parseLimit } from '../../shared/cursor.ts'
import type { Payouts } from './payouts.ts'
import type { Balance, Payout } from './port.ts'

export interface PayoutHandlersDeps {
  readonly payouts: Payouts
}

const reading = orOperator(member('read'), appOperator())
const pageMax = 50

/** RPCs about what the processor holds for an app and pays out. */
export const createPayoutHandlers = ({
  payouts,
}: PayoutHandlersDeps): Pick<
  Handlers<pb.BillingServiceServer>,
  'getProcessorBalance' | 'listPayouts'
> => ({
  getProcessorBalance: rpc(reading, async (_: pb.GetProcessorBalanceRequest, { appId }) => {
    const { account, value, readAt } = await payouts.readBalance(appId)
    return {
      account: account ?? undefined,
      balances: value.map(toBalance),
      asOf: readAt.toISOString(),
    }
  }),
  listPayouts: rpc(reading, async (request: pb.ListPayoutsRequest, { appId }) => {
    const page = { limit: parseLimit(request.limit, pageMax), after: request.cursor || null }
    const { account, value, readAt } = await payouts.list(appId, page)
    return {
      account: account ?? undefined,
      payouts: value.payouts.map(toPayout),
      nextCursor: value.hasMore ? value.payouts.at(-1)?.id : undefined,
      asOf: readAt.toISOString(),
    }
  }),
})

const toBalance = ({ currency, decimals, available, pending }: Balance): pb.ProcessorBalance => ({
  currency: currency.toUpperCase(),
  available: formatUnits(available, decimals),
  pending: formatUnits(pending, decimals),
})

const toPayout = (payout: Payout): pb.Payout => ({
  id: payout.id,
  amount: formatUnits(payout.amount, payout.decimals),
  currency: payout.currency.toUpperCase(),
  status: payout.state,
  arrivalDate: payout.arrivesAt.toISOString().slice(0, 10),
  createdAt: payout.createdAt.toISOString(),
  failure: payout.failure ?? undefined,
})
