import { DomainError } from '../../../proto/errors.ts'
import { parseInstant } from '../../lib/time.ts'
import { isUuid } from '../../shared/ids.ts'
import type { DocumentPlace, PayerDocument } from './document-store.ts'
import type { LedgerLine } from './store.ts'

/** Merges ledger entries and documents into pages. Pure. */

/** Ledger entries of one transaction, newest first; or a document. */
export type Entry =
  | { readonly lines: readonly [LedgerLine, ...LedgerLine[]]; readonly balanceAfter: bigint }
  | { readonly document: PayerDocument; readonly balanceAfter: bigint }

/** The last row returned of each list; null if no row of the list was returned. */
export interface PagePlace {
  readonly seq: bigint | null
  readonly document: DocumentPlace | null
}

export interface PageSource {
  readonly lines: readonly LedgerLine[]
  /** Whether older ledger entries exist that are not in `lines`. */
  readonly hasOlderLines: boolean
  /** At least one more than the page's size, if there are as many. */
  readonly documents: readonly PayerDocument[]
}

/**
 * Returns a page of both lists, newest first, and the place after it; null on the last page. The
 * charges of a UTC day that follow each other are one entry. A document has the balance of the
 * ledger entry before it.
 */
export function takePage(
  { lines, hasOlderLines, documents }: PageSource,
  { size, after }: { readonly size: number; readonly after: PagePlace },
): { readonly entries: Entry[]; readonly next: PagePlace | null } {
  const entries: Entry[] = []
  let [line, document, place] = [0, 0, after]
  while (entries.length < size) {
    const source = { lines: lines.slice(line), hasOlderLines, document: documents[document] }
    const entry = takeEntry(source)
    if (entry === null) break
    entries.push(entry)
    if ('document' in entry) {
      place = { ...place, document: placeOf(entry.document) }
      document += 1
    } else {
      place = { ...place, seq: entry.lines.at(-1)?.seq ?? null }
      line += entry.lines.length
    }
  }
  const isMore = line < lines.length || document < documents.length || hasOlderLines
  return { entries, next: isMore ? place : null }
}

interface EntrySource extends Pick<PageSource, 'lines' | 'hasOlderLines'> {
  readonly document: PayerDocument | undefined
}

/** Returns the newest entry; null if it is not known which one that is. */
function takeEntry({ lines, hasOlderLines, document }: EntrySource): Entry | null {
  const [line] = lines
  if (document && isNewer(document, line)) {
    // It is older than all of these lines, and may be older than the next ones, too.
    if (!line && hasOlderLines) return null
    return { document, balanceAfter: line?.balanceAfter ?? 0n }
  }
  return line ? { lines: takeGroup(line, lines, document), balanceAfter: line.balanceAfter } : null
}

const placeOf = ({ at, rank, id }: PayerDocument): DocumentPlace => ({ at, rank, id })

/** A payment and its document have the same time; the entry was first. */
const isNewer = ({ at }: PayerDocument, line: LedgerLine | undefined): boolean =>
  line === undefined || at >= line.createdAt

function takeGroup(
  first: LedgerLine,
  lines: readonly LedgerLine[],
  document: PayerDocument | undefined,
): [LedgerLine, ...LedgerLine[]] {
  const group: [LedgerLine, ...LedgerLine[]] = [first]
  if (!isUsage(first)) return group
  for (const line of lines.slice(1)) {
    if (!isUsage(line) || dayOf(first) !== dayOf(line) || (document && isNewer(document, line)))
      break
    group.push(line)
  }
  return group
}

export const isUsage = ({ kind }: LedgerLine): boolean => kind === 'charge'
const dayOf = ({ createdAt }: LedgerLine): string => createdAt.toISOString().slice(0, 10)

export const formatPlace = ({ seq, document }: PagePlace): string =>
  Buffer.from(
    [seq ?? '-', ...(document ? [document.at.toISOString(), document.rank, document.id] : [])].join(
      ' ',
    ),
  ).toString('base64url')

/** Throws REQUEST_INVALID for text that `formatPlace` did not return. */
export function parsePlace(text: string | undefined): PagePlace {
  if (text === undefined || text === '') return { seq: null, document: null }
  const [seq = '', time = '', rank = '', id = ''] = Buffer.from(text, 'base64url')
    .toString('utf8')
    .split(' ')
  const at = parseInstant(time)
  const place: PagePlace = {
    seq: /^[1-9][0-9]{0,17}$/.test(seq) ? BigInt(seq) : null,
    document: at && isUuid(id) && /^[1-4]$/.test(rank) ? { at, rank: Number(rank), id } : null,
  }
  if (formatPlace(place) !== text)
    throw new DomainError('REQUEST_INVALID', 'cursor is not one that this list returned')
  return place
}
