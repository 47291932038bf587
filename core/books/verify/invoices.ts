import type { RecomputeInvoices } from '../../billing/invoices/recompute.ts'
import type { Db } from '../../lib/sql.ts'
import type { Columns, DifferentRow, UserRange } from '../types.ts'
import { type IssuedLine, type IssuedRange, issuedLines, issuedRanges } from './invoice-store.ts'

/**
 * Yields invoices whose debt or lines differ from those that follow from the ledger and the
 * tickets. Recomputes one invoice per user at a time. Skips the lines of invoices whose tickets
 * were archived.
 */
export async function* lineDifferences(
  db: Db,
  range: UserRange,
  recompute: RecomputeInvoices,
): AsyncGenerator<DifferentRow> {
  const byPlace = Map.groupBy(await issuedRanges(db, range), ({ place }) => place)
  for (const issued of byPlace.values()) {
    const recomputed = await recompute(db, issued)
    const ids = issued.map(({ invoiceId }) => invoiceId)
    const stored = await issuedLines(db, range.appId, ids)
    for (const invoice of issued) {
      const expected = recomputed.get(invoice.userId)
      if (!expected) continue
      yield* compare(invoice, 'debt', {
        stored: { debt_attos: String(invoice.debt) },
        expected: { debt_attos: String(expected.debt) },
      })
      const lines = stored.get(invoice.invoiceId) ?? []
      if (expected.isWhole) yield* compareLines(invoice, lines, expected.lines.map(toIssued))
    }
  }
}

type Recomputed =
  Awaited<ReturnType<RecomputeInvoices>> extends ReadonlyMap<unknown, infer V> ? V : never

const toIssued = (line: Recomputed['lines'][number]): IssuedLine => ({
  kind: line.kind,
  pipeline: line.pipeline ?? null,
  modelId: line.modelId ?? null,
  chargedAppId: line.chargedAppId ?? null,
  tickets: line.tickets?.toString() ?? null,
  amount: String(line.amount),
  periodStart: line.periodStart.toISOString(),
  periodEnd: line.periodEnd.toISOString(),
})

function* compareLines(
  invoice: IssuedRange,
  stored: readonly IssuedLine[],
  expected: readonly IssuedLine[],
): Generator<DifferentRow> {
  for (let i = 0; i < Math.max(stored.length, expected.length); i += 1)
    yield* compare(invoice, `line ${i + 1}`, {
      stored: columnsOf(stored[i]),
      expected: columnsOf(expected[i]),
    })
}

const columnsOf = (line: IssuedLine | undefined): Columns | null => (line ? { ...line } : null)

function* compare(
  { userId, externalUserId, invoiceId }: IssuedRange,
  part: string,
  columns: Pick<DifferentRow, 'stored' | 'expected'>,
): Generator<DifferentRow> {
  if (JSON.stringify(columns.stored) === JSON.stringify(columns.expected)) return
  yield { userId, externalUserId, key: { invoice: invoiceId, part }, ...columns }
}
