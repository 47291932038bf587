import type { AppId } from '../platform/ids.ts'

/**
 * The books: what must follow from the tickets and the ledger (docs/architecture.md).
 * usage_hourly, ticket_sessions = sums of tickets; charges = costs of the tickets that name them; balances = fold of
 * ledger entries; granted + adjusted = consumed + remaining + expired; a ticket costs its fee at its rate.
 */
export const checks = [
  'usage_hourly',
  'ticket_sessions',
  'charges',
  'ledger_entries',
  'balances',
  'authorisations',
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

/** Columns of a row as text; null where there is no such row. */
export type Columns = Readonly<Record<string, string | null>>

/** A row that differs from what the others imply. */
export interface DifferentRow {
  readonly userId: string | null
  readonly externalUserId: string | null
  readonly key: Readonly<Record<string, string>>
  readonly stored: Columns | null
  readonly expected: Columns | null
}

/** One column of such a row. */
export interface Difference extends Pick<DifferentRow, 'userId' | 'externalUserId'> {
  readonly check: Check
  readonly row: string
  readonly column: string
  readonly stored: string | null
  readonly expected: string | null
  /** stored minus expected; null where that is no number. */
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
