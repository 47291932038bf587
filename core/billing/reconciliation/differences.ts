/** Compares a payment of the processor with ours. Pure. */

export type Subject = 'payment' | 'refund' | 'dispute' | 'fee' | 'earning'
/** `unknown`: money that may have been paid at a processor that the deployment uses no more. */
export type Problem = 'missing_here' | 'missing_there' | 'amount' | 'currency' | 'unknown'

/** A payment as both sides know it. Amounts are in the smallest unit of their currency. */
export interface Figures {
  /** The processor's id of the payment. */
  readonly id: string
  /** Null if we have no such payment. */
  readonly ours: {
    readonly amount: bigint
    readonly fee: bigint
    readonly refunded: bigint
    readonly disputed: bigint
  } | null
  /** Null if the processor reported no such payment. */
  readonly theirs: {
    readonly amount: bigint
    readonly currency: string
    /** The platform's fee. */
    readonly fee: bigint
    readonly feeCurrency: string
    /** What the platform returned of its fee. */
    readonly feeReturned: bigint
    /** The platform's fee as it arrived in its own account; null if nothing arrived. */
    readonly earned: { readonly amount: bigint; readonly currency: string } | null
  } | null
  /** What the processor took from the account again. */
  readonly refunded: bigint
  readonly disputed: bigint
}

export interface Difference {
  readonly subject: Subject
  readonly problem: Problem
  readonly ours: bigint | null
  readonly theirs: bigint | null
  readonly currency: string
}

const usd = 'usd'

/** Returns the differences of a payment, at most one per subject. */
export function findDifferences({ ours, theirs, refunded, disputed }: Figures): Difference[] {
  if (ours === null)
    return theirs === null
      ? []
      : [difference('payment', { ours: null, theirs: theirs.amount }, theirs.currency)]
  if (theirs === null) return [difference('payment', { ours: ours.amount, theirs: null })]
  const compared = [
    theirs.currency === usd
      ? compare('payment', { ours: ours.amount, theirs: theirs.amount })
      : {
          ...difference('payment', { ours: ours.amount, theirs: theirs.amount }, theirs.currency),
          problem: 'currency' as const,
        },
    compare('refund', { ours: ours.refunded, theirs: refunded }),
    compare('dispute', { ours: ours.disputed, theirs: disputed }),
    // An account whose balance is in another currency pays fees in that currency.
    theirs.feeCurrency === usd
      ? compare('fee', { ours: ours.fee, theirs: theirs.fee - theirs.feeReturned })
      : null,
    compareEarning(theirs),
  ]
  return compared.filter((item) => item !== null)
}

/** Compares the fee that the processor withheld with what arrived in the platform's own account. */
function compareEarning({
  fee,
  feeCurrency,
  earned,
}: NonNullable<Figures['theirs']>): Difference | null {
  if (fee === 0n) return null
  if (earned === null) return difference('earning', { ours: fee, theirs: null }, feeCurrency)
  return earned.currency === feeCurrency
    ? compare('earning', { ours: fee, theirs: earned.amount, currency: feeCurrency })
    : null
}

function compare(
  subject: Subject,
  { ours, theirs, currency = usd }: { ours: bigint; theirs: bigint; currency?: string },
): Difference | null {
  if (ours === theirs) return null
  const [here, there] = [ours === 0n ? null : ours, theirs === 0n ? null : theirs]
  return difference(subject, { ours: here, theirs: there }, currency)
}

const difference = (
  subject: Subject,
  { ours, theirs }: Pick<Difference, 'ours' | 'theirs'>,
  currency = usd,
): Difference => ({
  subject,
  problem: ours === null ? 'missing_here' : theirs === null ? 'missing_there' : 'amount',
  ours,
  theirs,
  currency,
})
