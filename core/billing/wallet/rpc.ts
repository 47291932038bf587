import type * as pb from '../../../proto/gen/ts-proto/tollgate/billing/v1/wallet.ts'
import { microsDown, usdAttos } from '../../lib/money.ts'
import type { Pool } from '../../lib/sql.ts'
import { appOperator, m2mOrMember, orOperator, orSelf } from '../../rpc/guards.ts'
import { type Handlers, rpc } from '../../rpc/serve.ts'
import type { Payers } from '../payments/payers.ts'
import { formatUsd } from './amounts.ts'
import { renderCard, renderState } from './render.ts'
import type { PayPerUsePlan } from './store.ts'
import { type Transaction, listTransactions } from './transactions.ts'
import { type Wallet, type Wallets, resolveBehavior } from './wallet.ts'

export interface WalletRpcDeps {
  readonly pool: Pool
  readonly payers: Payers
  readonly wallets: Wallets
  /** Where people read more. */
  readonly docsUrl: string
}

export function createWalletRpc({ pool, payers, wallets, docsUrl }: WalletRpcDeps) {
  const walletService: Handlers<pb.WalletServiceServer> = {
    getWallet: rpc(
      orOperator(orSelf(m2mOrMember()), appOperator()),
      async (request: pb.GetWalletRequest, caller) => {
        const payer = await payers.findRequested(caller, request)
        return toWallet(await wallets.read(caller.appId, payer), docsUrl)
      },
    ),
    getBillingState: rpc(
      orOperator(m2mOrMember(), appOperator()),
      async (request: pb.GetBillingStateRequest, caller) => {
        const { state } = await wallets.readPayer(await payers.findRequested(caller, request))
        return { billingState: renderState(state, docsUrl) }
      },
    ),
    listWalletTransactions: rpc(
      orOperator(orSelf(m2mOrMember()), appOperator()),
      async (request: pb.ListWalletTransactionsRequest, caller) => {
        const user = await payers.findLedger(caller, request)
        const { items, nextCursor } = await listTransactions(pool, user, {
          limit: request.limit,
          cursor: request.cursor,
        })
        const transactions = caller.kind === 'self' ? items.map(withoutReason) : items
        return { items: transactions.map(toTransaction), nextCursor, degraded: false }
      },
    ),
  }
  return { walletService }
}

const toWallet = ({ balance, state, plans }: Wallet, docsUrl: string): pb.GetWalletResponse => ({
  balance: {
    usdMicros: balance.balanceUsdMicros,
    usd: formatUsd(BigInt(balance.balanceUsdMicros)),
    lifetimeGrantedUsdMicros: balance.lifetimeGrantedUsdMicros,
    consumedUsdMicros: balance.consumedUsdMicros,
  },
  card: renderCard(state.card),
  payPerUsePlans: plans.map(toPlan),
  billingMode: state.billingMode,
  payer: state.externalUserId,
  billingState: renderState(state, docsUrl),
})

const toPlan = (plan: PayPerUsePlan): pb.PayPerUsePlan => {
  const micros = plan.threshold === null ? undefined : microsDown(plan.threshold)
  return {
    planId: plan.id,
    planName: plan.name,
    chargeThresholdUsdMicros: micros?.toString(),
    chargeThresholdUsd: micros === undefined ? undefined : formatUsd(micros),
    resolvedBehavior: resolveBehavior(plan),
  }
}

/** Operators wrote the reasons of corrections for the app's members. */
const withoutReason = (transaction: Transaction): Transaction =>
  transaction.type === 'adjustment' ? { ...transaction, description: 'Correction' } : transaction

/** Deltas are differences of the rounded balances, so that they add up. */
const toTransaction = (transaction: Transaction): pb.WalletTransaction => {
  const { change, balanceAfter, amount } = transaction
  const balance = microsDown(usdAttos(balanceAfter))
  const delta = balance - microsDown(usdAttos(balanceAfter - change))
  const moved = amount === null ? delta : microsDown(usdAttos(amount))
  return {
    id: transaction.id,
    date: transaction.date.toISOString(),
    type: transaction.type,
    description: transaction.description,
    amountUsdMicros: String(moved < 0n ? -moved : moved),
    creditDeltaUsdMicros: String(delta),
    balanceUsdMicros: String(balance),
    invoiceId: transaction.invoiceId ?? undefined,
  }
}
