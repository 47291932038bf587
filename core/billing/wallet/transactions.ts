import { DomainError } from '../../../proto/errors.ts'
import { microsDown, usdAttos } from '../../lib/money.ts'
import { type Pool, tx } from '../../lib/sql.ts'
import type { UserKey } from '../../shared/ids.ts'
import { formatNumber } from '../invoices/invoice.ts'
import { formatUsd } from './amounts.ts'
import { type PayerDocument, listDocuments } from './document-store.ts'
import { type LedgerLine, listLines, readAtOnce } from './store.ts'
import {
  type Entry,
  type PageSource,
  formatPlace,
  isUsage,
  parsePlace,
  takePage,
} from './transaction-pages.ts'

export type TransactionType =
  | 'credit_purchased'
  | 'credit_granted'
  | 'credit_expired'
  | 'usage'
  | 'adjustment'
  | 'refund'
  | 'invoice'
  | 'credit_note'
  | 'payment'

export interface Transaction {
  readonly id: string
  readonly type: TransactionType
  readonly description: string
  readonly date: Date
  /** Signed change of the balance, in atto-dollars. */
  readonly change: bigint
  readonly balanceAfter: bigint
  /** The amount of a transaction that changes no balance, in atto-dollars; null for others. */
  readonly amount: bigint | null
  readonly invoiceId: string | null
}

/** Ledger entries that one page reads at most. A page that reaches it is shorter than asked. */
const linesMax = 5_000
const limitMax = 100
const limitDefault = 25
const attosPerCent = 10n ** 16n

/**
 * Lists a payer's transactions from the ledger, invoices and payments, newest first. The charges of
 * a UTC day that follow each other are one transaction. Every balance is the ledger's own figure
 * after the transaction.
 */
export async function listTransactions(
  pool: Pool,
  user: UserKey,
  { limit, cursor }: { readonly limit: number; readonly cursor: string | undefined },
): Promise<{ readonly items: Transaction[]; readonly nextCursor: string | undefined }> {
  if (limit > limitMax)
    throw new DomainError('REQUEST_INVALID', `limit must be from 1 to ${limitMax}`)
  const size = limit === 0 ? limitDefault : limit
  const after = parsePlace(cursor)
  const source = await tx(pool, async (db): Promise<PageSource> => {
    // Both lists as of one instant: otherwise a payment could be in one of them only.
    await readAtOnce(db)
    const lines = await listLines(db, user, { before: after.seq, limit: linesMax + 1 })
    const documents = await listDocuments(db, user, { before: after.document, limit: size + 1 })
    return { lines: lines.slice(0, linesMax), hasOlderLines: lines.length > linesMax, documents }
  })
  const { entries, next } = takePage(source, { size, after })
  return { items: entries.map(toTransaction), nextCursor: next ? formatPlace(next) : undefined }
}

const toTransaction = (entry: Entry): Transaction =>
  'document' in entry
    ? fromDocument(entry.document, entry.balanceAfter)
    : fromLines(entry.lines, entry.balanceAfter)

function fromDocument(document: PayerDocument, balanceAfter: bigint): Transaction {
  const { kind, id, at, cents, invoiceId } = document
  return {
    id: `${kind}:${id}`,
    type: documentTypes[kind],
    description: documentText(document),
    date: at,
    change: 0n,
    balanceAfter,
    amount: cents * attosPerCent,
    invoiceId,
  }
}

const documentTypes: Readonly<Record<PayerDocument['kind'], TransactionType>> = {
  invoice: 'invoice',
  credit_note: 'credit_note',
  payment: 'payment',
  refund: 'refund',
  dispute: 'refund',
  refund_failed: 'payment',
  dispute_won: 'payment',
}

function documentText({ kind, number, noteNumber }: PayerDocument): string {
  const invoice = number === null ? 'a plan' : `invoice ${formatNumber('invoice', number)}`
  switch (kind) {
    case 'invoice':
      return `I${invoice.slice(1)}`
    case 'credit_note':
      return `Credit note ${formatNumber('credit_note', noteNumber ?? 0n)} for ${invoice}`
    case 'payment':
      return `Payment of ${invoice}`
    case 'refund':
      return `Refund of the payment of ${invoice}`
    case 'refund_failed':
      return `Failed refund of the payment of ${invoice}`
    case 'dispute':
      return `Dispute of the payment of ${invoice}`
    case 'dispute_won':
      return `Won dispute of the payment of ${invoice}`
  }
}

function fromLines(
  lines: readonly [LedgerLine, ...LedgerLine[]],
  balanceAfter: bigint,
): Transaction {
  const [newest] = lines
  const isPayment = newest.kind === 'payment'
  return {
    id: isUsage(newest) ? `usage:${newest.seq}` : `${newest.kind}:${newest.seq}`,
    ...describe(newest, lines),
    date: newest.createdAt,
    change: lines.reduce((sum, line) => sum + line.amount, 0n),
    balanceAfter,
    amount: isPayment ? newest.collected : null,
    invoiceId: null,
  }
}

function describe(
  line: LedgerLine,
  lines: readonly LedgerLine[],
): Pick<Transaction, 'type' | 'description'> {
  if (isUsage(line)) return { type: 'usage', description: usageText(lines) }
  if (line.kind === 'expire')
    return { type: 'credit_expired', description: 'Credit that was not used in time' }
  if (line.kind === 'grant') return describeGrant(line)
  if (line.kind === 'payment') return { type: 'payment', description: paymentText(line) }
  const reason = line.reason ?? 'Correction'
  return line.author === 'payment processor'
    ? { type: 'refund', description: reason }
    : { type: 'adjustment', description: reason }
}

function describeGrant(line: LedgerLine): Pick<Transaction, 'type' | 'description'> {
  if (line.isPaid) return { type: 'credit_purchased', description: 'Prepaid usage' }
  const isIncluded = line.creditKind === 'included'
  return {
    type: 'credit_granted',
    description: isIncluded ? 'Usage that the plan includes' : 'Credit from the app',
  }
}

/** Of a payment without a document: another party paid. */
const paymentText = ({ isTakenOver }: LedgerLine): string =>
  isTakenOver
    ? "Unpaid usage that the app's owner took over"
    : 'Application fee of a payment by a user'

function usageText(lines: readonly LedgerLine[]): string {
  const tickets = lines.reduce((sum, line) => sum + line.tickets, 0)
  const overage = microsDown(usdAttos(lines.reduce((sum, line) => sum + line.overage, 0n)))
  const count = tickets === 1 ? 'One signed ticket' : `${tickets} signed tickets`
  if (overage === 0n) return count
  return `${count}, ${formatUsd(overage)} USD of it beyond the balance`
}
