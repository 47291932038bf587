import { describe, expect, it } from 'vitest'
import type { PayerDocument } from '../../../core/billing/wallet/document-store.ts'
import type { LedgerLine } from '../../../core/billing/wallet/store.ts'
import {
  type Entry,
  type PagePlace,
  formatPlace,
  parsePlace,
  takePage,
} from '../../../core/billing/wallet/transaction-pages.ts'
import { createRandom } from '../../support/random.ts'

const start = Date.UTC(2026, 2, 10)
const uuid = (n: number) => `00000000-0000-4000-8000-${String(n).padStart(12, '0')}`

const line = (seq: number, kind: string, at: number): LedgerLine => ({
  seq: BigInt(seq),
  kind,
  amount: 1n,
  overage: 0n,
  collected: 0n,
  balanceAfter: BigInt(seq),
  tickets: 1,
  creditKind: null,
  isPaid: false,
  isTakenOver: false,
  reason: null,
  author: null,
  createdAt: new Date(at),
})

const document = (n: number, at: number): PayerDocument => ({
  kind: 'invoice',
  id: uuid(n),
  at: new Date(at),
  rank: 1,
  cents: 1n,
  invoiceId: uuid(n),
  number: 1n,
  noteNumber: null,
})

/** Both lists, newest first, as the stores return them after a place. */
function readPage(
  lists: { lines: LedgerLine[]; documents: PayerDocument[] },
  { size, linesMax, after }: { size: number; linesMax: number; after: PagePlace },
) {
  const { seq, document: last } = after
  const lines = lists.lines.filter((one) => seq === null || one.seq < seq)
  const documents = lists.documents.filter(
    ({ at, id }) => !last || at < last.at || (at.getTime() === last.at.getTime() && id < last.id),
  )
  const source = {
    lines: lines.slice(0, linesMax),
    hasOlderLines: lines.length > linesMax,
    documents: documents.slice(0, size + 1),
  }
  return takePage(source, { size, after })
}

const namesOf = (entry: Entry): string[] =>
  'document' in entry ? [entry.document.id] : entry.lines.map(({ seq }) => String(seq))

describe('takePage', () => {
  it('returns everything once and in order, for any page size and bound of lines', () => {
    const random = createRandom(7)
    for (let round = 0; round < 200; round += 1) {
      let at = start
      const lines: LedgerLine[] = []
      const documents: PayerDocument[] = []
      for (let n = 1; n <= random.below(40); n += 1) {
        at += random.below(3) * 10_000_000
        if (random.below(3) === 0) documents.unshift(document(n, at))
        else lines.unshift(line(n, random.below(3) === 0 ? 'grant' : 'charge', at))
      }
      const [size, linesMax] = [1 + random.below(5), 1 + random.below(6)]
      const entries: Entry[] = []
      let after: PagePlace | null = { seq: null, document: null }
      for (let pages = 0; after && pages < 500; pages += 1) {
        const page: ReturnType<typeof readPage> = readPage(
          { lines, documents },
          { size, linesMax, after },
        )
        expect(page.entries.length).toBeLessThanOrEqual(size)
        entries.push(...page.entries)
        after = page.next && parsePlace(formatPlace(page.next))
      }
      const names = entries.flatMap(namesOf)
      expect(names).toHaveLength(lines.length + documents.length)
      expect(new Set(names).size).toBe(names.length)
      const times = entries.map((entry) =>
        ('document' in entry ? entry.document.at : entry.lines[0].createdAt).getTime(),
      )
      expect(times).toEqual([...times].sort((a, b) => b - a))
      const found = entries.flatMap((entry) => ('document' in entry ? [entry] : []))
      const before = ({ at }: PayerDocument) => lines.find(({ createdAt }) => createdAt <= at)
      expect(found.map(({ balanceAfter }) => balanceAfter)).toEqual(
        found.map(({ document: one }) => before(one)?.balanceAfter ?? 0n),
      )
    }
  })
})
