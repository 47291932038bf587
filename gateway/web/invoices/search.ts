import type { InvoicePayer } from '../api/attention.ts'
import { type ShownStatus, shownStatuses } from '../api/queries.ts'
import { toText } from '../ui/usage/search.ts'

/** What the address of the list of invoices may have after the question mark. */
export interface InvoicesSearch {
  /** From 2; absent for the first page. */
  readonly page?: number
  /** Default is the payer of the billing mode. */
  readonly payer?: InvoicePayer
  /** External id of the user. */
  readonly user?: string
  readonly status?: ShownStatus
}

export const payers = ['users', 'owner'] as const

export function parseInvoicesSearch(search: Record<string, unknown>): InvoicesSearch {
  const page = Number(search['page'])
  const payer = payers.find((one) => one === search['payer'])
  const status = shownStatuses.find((one) => one === search['status'])
  const user = toText(search['user'])
  return {
    ...(Number.isInteger(page) && page > 1 && { page }),
    ...(payer && { payer }),
    ...(user !== undefined && { user }),
    ...(status && { status }),
  }
}
