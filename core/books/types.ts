import type { AppId } from '../shared/ids.ts'

/**
 * Checks of the books: what must follow from the tickets and the ledger (docs/data.md).
 * - usage_hourly, ticket_sessions = sums of tickets
 * - charges = costs of the tickets that name them
 * - owner_charges = owner charges of the tickets in each batch
 * - balances = fold of ledger entries
 * - granted + adjusted = consumed + remaining + expired
 * - lines of an invoice = ledger entries and tickets that it covers
 * - the cost of a ticket = its fee at its rate
 */
export const checks = [
  'usage_hourly',
  'ticket_sessions',
  'charges',
  'owner_charges',
  'ledger_entries',
  'balances',
  'authorisations',
  'payments',
  'invoices',
  'grants',
  'periods',
  'subscriptions',
  'prices',
  'price_chain',
  'envelopes',
  'archives',
  'checkpoints',
  'receipts',
] as const
export type Check = (typeof checks)[number]

/** Columns of a row as text; null for a missing row. */
export type Columns = Readonly<Record<string, string | null>>

/** A row that differs from what the other rows imply. */
export interface DifferentRow {
  readonly userId: string | null
  readonly externalUserId: string | null
  readonly key: Readonly<Record<string, string>>
  readonly stored: Columns | null
  readonly expected: Columns | null
}

/** One column of a different row. */
export interface Difference extends Pick<DifferentRow, 'userId' | 'externalUserId'> {
  readonly check: Check
  readonly row: string
  readonly column: string
  readonly stored: string | null
  readonly expected: string | null
  /** stored minus expected; null if not a number. */
  readonly by: string | null
}

/** Users `(after, upTo]` of an app, by id. */
export interface UserRange {
  readonly appId: AppId
  readonly after: string
  readonly upTo: string
}

export interface AppRef {
  readonly id: AppId
  readonly clientId: string
}
