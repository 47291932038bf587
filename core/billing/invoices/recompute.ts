import type { UsdAttos } from '../../lib/money.ts'
import type { Db } from '../../lib/sql.ts'
import type { UserId } from '../../shared/ids.ts'
import { readDebtLines } from './debt-lines.ts'
import { sumEntries } from './entry-store.ts'
import type { InvoiceLine } from './invoice.ts'
import type { Draws } from './partial.ts'
import type { EntryRange } from './ranges.ts'

export interface RecomputedInvoice {
  readonly debt: UsdAttos
  readonly lines: readonly InvoiceLine[]
  /** False if some tickets are only in an archive. */
  readonly isWhole: boolean
}

/** Computes the debt and the lines of ranges again, as they were issued. Names each user once. */
export const createRecompute =
  (ledger: Draws) =>
  async (
    db: Db,
    ranges: readonly EntryRange[],
  ): Promise<ReadonlyMap<UserId, RecomputedInvoice>> => {
    const sums = await sumEntries(db, ranges)
    const summed = ranges.flatMap((range) => {
      const own = sums.get(range.userId)
      return own ? [{ ...range, sums: own }] : []
    })
    const lines = await readDebtLines(db, summed, ledger)
    return new Map(
      summed.map(({ userId, sums: { debt } }) => {
        const own = lines.get(userId) ?? []
        return [userId, { debt, lines: own, isWhole: !own.some(({ isArchived }) => isArchived) }]
      }),
    )
  }

export type RecomputeInvoices = ReturnType<typeof createRecompute>
