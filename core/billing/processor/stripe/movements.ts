import type { Stripe } from 'stripe'
import type { Movement, PaymentProcessor } from '../port.ts'
import { type StripeClient, expectObject, readId } from './client.ts'

/** Movements by Stripe's categories for accounting; all others are `other`. */
const kinds: Readonly<Record<string, Movement['kind']>> = {
  charge: 'payment',
  refund: 'refund',
  refund_failure: 'refund',
  dispute: 'dispute',
  dispute_reversal: 'dispute',
  fee: 'fee',
  network_cost: 'fee',
  platform_earning: 'fee',
  platform_earning_refund: 'fee',
  payout: 'payout',
  payout_reversal: 'payout',
}

const pageSize = 100

export const createMovements = ({
  request,
}: StripeClient): Pick<PaymentProcessor, 'listMovements'> => ({
  listMovements: (at, { from, to, after }) =>
    request(at, async (stripe, options) => {
      const params = {
        created: { gte: toSeconds(from), lt: toSeconds(to) },
        limit: pageSize,
        expand: ['data.source'],
        ...(after === null ? {} : { starting_after: after }),
      }
      const page = expectObject(await stripe.balanceTransactions.list(params, options), 'list')
      // Only the platform's own account gets fees, and returns them.
      const fees = at.account === null ? await readReturned(page.data, stripe, options) : new Map()
      return {
        movements: page.data.map((transaction) => parseMovement(transaction, fees)),
        after: page.has_more ? (page.data.at(-1)?.id ?? null) : null,
      }
    }),
})

/** Stripe counts whole seconds, so `[from, to)` begins and ends at the next one. */
const toSeconds = (instant: Date): number => Math.ceil(instant.getTime() / 1000)

/** Charges by the ids of their fees. */
type Charges = ReadonlyMap<string, string>

/** Reads the charges of returned fees, because the return of a fee names only the fee. */
async function readReturned(
  transactions: readonly Stripe.BalanceTransaction[],
  stripe: Stripe,
  options: Stripe.RequestOptions,
): Promise<Charges> {
  const charges = new Map<string, string>()
  const ids = transactions.map(returnedFee).filter((id) => id !== null)
  for (const id of new Set(ids)) {
    const fee = await stripe.applicationFees.retrieve(id, {}, options)
    const charge = readId(expectObject(fee, 'application_fee').charge)
    if (charge !== null) charges.set(id, charge)
  }
  return charges
}

const returnedFee = ({ source }: Stripe.BalanceTransaction): string | null =>
  typeof source === 'object' && source?.object === 'fee_refund' ? readId(source.fee) : null

function parseMovement(transaction: Stripe.BalanceTransaction, charges: Charges): Movement {
  const { id, created } = expectObject(transaction, 'balance_transaction')
  const kind = kinds[transaction.reporting_category] ?? 'other'
  const { amount, currency } = original(transaction, kind)
  return {
    id,
    kind,
    amount,
    currency,
    feeCurrency: transaction.currency,
    platformFee: kind === 'payment' ? platformFee(transaction) : 0n,
    payment: paymentOf(transaction),
    reference: referenceOf(transaction),
    feeReference: feeReference(transaction, charges),
    createdAt: new Date(created * 1000),
  }
}

/**
 * The amount in the currency of its payment: an account's balance may be in another currency than
 * the dollars that its users paid.
 */
function original(
  { amount, currency, source }: Stripe.BalanceTransaction,
  kind: Movement['kind'],
): Pick<Movement, 'amount' | 'currency'> {
  const value = BigInt(amount)
  if (!['payment', 'refund', 'dispute'].includes(kind) || typeof source !== 'object')
    return { amount: value, currency }
  if (source === null || !('amount' in source) || !('currency' in source))
    return { amount: value, currency }
  const paid = BigInt(source.amount)
  return { amount: value < 0n ? -paid : paid, currency: source.currency }
}

/** Charges, refunds and disputes name their payment. A charge without one is its own payment. */
function paymentOf({ source }: Stripe.BalanceTransaction): string | null {
  if (typeof source !== 'object' || source === null || !('payment_intent' in source)) return null
  return readId(source.payment_intent) ?? (source.object === 'charge' ? source.id : null)
}

/** Stripe copies the metadata of a payment to its charge. */
const referenceOf = ({ source }: Stripe.BalanceTransaction): string | null =>
  typeof source === 'object' && source?.object === 'charge'
    ? (source.metadata['reference'] ?? null)
    : null

/** The sum of the application fees in the transaction's fee. */
const platformFee = ({ fee_details }: Stripe.BalanceTransaction): bigint =>
  fee_details.reduce(
    (sum, { type, amount }) => (type === 'application_fee' ? sum + BigInt(amount) : sum),
    0n,
  )

/** A charge, its platform fee, and the return of that fee have the charge's id. */
function feeReference(transaction: Stripe.BalanceTransaction, charges: Charges): string | null {
  const { source } = transaction
  if (typeof source !== 'object' || source === null) return null
  if (source.object === 'application_fee') return readId(source.charge)
  if (source.object === 'fee_refund') return charges.get(readId(source.fee) ?? '') ?? null
  return source.object === 'charge' && platformFee(transaction) > 0n ? source.id : null
}
