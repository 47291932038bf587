import { type PaymentFilter, paymentStates } from '../api/money.ts'
import { isDay } from '../ui/usage/range.ts'
import { toText } from '../ui/usage/search.ts'

const day = (value: unknown): string | undefined => (isDay(value) ? value : undefined)

/** What the address of the list of payments may have after the question mark. */
export function parsePaymentsSearch(search: Record<string, unknown>): PaymentFilter {
  const state = paymentStates.find((one) => one === search['state'])
  const user = toText(search['user'])
  const [from, to] = [day(search['from']), day(search['to'])]
  return {
    ...(state && { state }),
    ...(user !== undefined && { user }),
    ...(from !== undefined && { from }),
    ...(to !== undefined && { to }),
  }
}
