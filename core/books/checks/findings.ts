import type * as metering from '../../metering/backend/comparison.ts'
import type { ReconciledPlace } from '../../billing/reconciliation/reconciliation.ts'
import { formatDecimal18 } from '../../lib/money.ts'
import type { Difference } from '../types.ts'
import type { Finding } from './store.ts'

/** A difference in the books in words. */
export function describeBooks(
  clientId: string,
  { check, externalUserId, row, column, stored, expected, by }: Difference,
): Finding {
  const user = externalUserId === null ? '' : ` of ${externalUserId}`
  const where = row === '' ? '' : ` (${row})`
  const change = by === null ? '' : `, a difference of ${by}`
  return {
    clientId: clientId === '' ? null : clientId,
    text: `${check}${user}: ${column} is ${stored ?? 'missing'} and should be ${expected ?? 'missing'}${change}${where}.`,
  }
}

/** A user's day that the metering backend counts differently, in words. */
export function describeUserDay(
  { clientId, day }: Pick<metering.AppDay, 'clientId' | 'day'>,
  user: metering.UserDay,
): Finding {
  const name = user.externalUserId ?? user.subject
  return {
    clientId,
    text: `On ${day} ${name} has ${user.ownTickets} tickets of ${formatDecimal18(user.ownCost)} USD here, and ${user.backendTickets} of ${toDollars(user.backendMicros)} USD at the metering backend.`,
  }
}

/** Formats a float of USD micros as dollars, without an exponent. */
const toDollars = (micros: number): string => (micros / 1e6).toFixed(12).replace(/\.?0+$/, '')

/** An account of the payment processor in words. */
export const describeAccount = ({ plane, account }: ReconciledPlace['place']['at']): string =>
  `${plane} account ${account ?? 'of the platform'}`

/** An open difference between the payment processor and our payments, in words. */
export function describePayment(difference: ReconciledPlace['newDifferences'][number]): Finding {
  const { at, subject, problem, processorPaymentId, ours, theirs, currency } = difference
  const amount = (value: bigint | null): string =>
    value === null ? 'nothing' : `${value} (smallest units of ${currency})`
  return {
    clientId: null,
    text: `The ${describeAccount(at)}: ${subject} ${processorPaymentId} differs (${problem}): ${amount(ours)} here, ${amount(theirs)} at the processor.`,
  }
}
