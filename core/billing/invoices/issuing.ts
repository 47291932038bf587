import type { Account } from '../../balances/accounts/account.ts'
import type { Ledger } from '../../balances/ledger/ledger.ts'
import { uuidV7 } from '../../lib/crypto.ts'
import { type UsdAttos, usdAttos } from '../../lib/money.ts'
import type { Db } from '../../lib/sql.ts'
import { emitAll } from '../../shared/events.ts'
import type { UserId } from '../../shared/ids.ts'
import { centsToAttos, formatCents } from '../payments/amounts.ts'
import { readDebtLines } from './debt-lines.ts'
import { type EntrySums, sumEntries } from './entry-store.ts'
import {
  type Invoice,
  type InvoiceLine,
  type InvoiceReason,
  type InvoiceSums,
  type PriceLine,
  addUp,
  formatNumber,
  minimumCents,
} from './invoice.ts'
import * as store from './invoice-store.ts'
import type { InvoicedState } from './invoice-store.ts'
import { readPrices } from './price-lines.ts'
import type { EntryRange } from './ranges.ts'

export interface InvoiceRequest {
  /** Locked by the caller, who saves it afterwards. */
  readonly account: Account
  readonly reason: InvoiceReason
  /** Real time. The document has the time of the app's clock. */
  readonly at: Date
  /** Default: the prices of entered periods that are on no invoice, and their overage. */
  readonly prices?: readonly PriceLine[] | undefined
  /**
   * False invoices the given prices alone, without a minimum, because they are paid already.
   * Default is true.
   */
  readonly withUsage?: boolean | undefined
}

export interface IssuingDeps {
  readonly ledger: Pick<Ledger, 'shareCharge' | 'readCredits' | 'toAppTime'>
  /** Notes on the account that this much of its debt is on an invoice. */
  readonly markInvoiced: (account: Account, amount: UsdAttos) => void
}

/** A request with all that its invoice contains, except the lines of the debt. */
interface Draft extends InvoiceSums {
  readonly request: InvoiceRequest
  readonly range: EntryRange
  readonly sums: EntrySums | null
  readonly prices: readonly PriceLine[]
}

/**
 * Issues invoices in the caller's transaction (docs/invoices.md). One call serves many accounts
 * with few statements; the numbers of an issuer stay locked until the transaction ends.
 */
export function createIssuing({ ledger, markInvoiced }: IssuingDeps) {
  /**
   * Issues an invoice per request. Returns null for users with less than the minimum charge:
   * nothing is written, and the amount is on a later invoice. Accepts each user once.
   */
  async function issue(
    db: Db,
    requests: readonly InvoiceRequest[],
  ): Promise<ReadonlyMap<UserId, Invoice | null>> {
    if (requests.length === 0) return new Map()
    const drafts = (await draft(db, requests)).filter(isIssued)
    const lines = await readLines(db, drafts)
    const numbers = await numberDrafts(db, drafts)
    const planes = await store.readPlanes(db, [...numbers.keys()])
    const issued = drafts.map((one): readonly [Draft, Invoice] => {
      const { appId } = one.request.account
      const number = numbers.get(appId)?.shift()
      const plane = planes.get(appId)
      if (number === undefined || plane === undefined) throw new Error(`app ${appId} is missing`)
      return [one, toInvoice(one, { number, plane, issuedAt: timeOf(one.request) })]
    })
    await store.insertDocuments(
      db,
      issued.map(([one, invoice]) => ({
        ...invoice,
        kind: 'invoice' as const,
        price: one.price,
        debt: one.debt,
        carriedIn: one.carriedIn,
        carried: one.total.carried,
        range: one.range,
        lines: [...one.prices, ...(lines.get(invoice.userId) ?? [])],
      })),
    )
    for (const [{ request }, invoice] of issued) markInvoiced(request.account, invoice.debt)
    await announce(
      db,
      issued.map(([, invoice]) => invoice),
    )
    const byUser = new Map(issued.map(([, invoice]) => [invoice.userId, invoice]))
    return new Map(requests.map(({ account: { userId } }) => [userId, byUser.get(userId) ?? null]))
  }

  const timeOf = ({ account, at }: InvoiceRequest): Date => ledger.toAppTime(account, at)

  async function draft(db: Db, requests: readonly InvoiceRequest[]): Promise<Draft[]> {
    const states = await store.readStates(
      db,
      requests.map(({ account }) => account),
    )
    const stated = requests.map((request) => {
      const state = states.get(request.account.userId) ?? nothingInvoiced
      return { request, state, range: rangeOf(request, state) }
    })
    const using = stated.filter(({ request }) => isWithUsage(request))
    const sums = await sumEntries(
      db,
      using.map(({ range }) => range),
    )
    const prices = await readPrices(
      db,
      stated.flatMap(({ request, state: { issuedAt: since } }) =>
        request.prices === undefined
          ? [{ account: request.account, at: timeOf(request), since }]
          : [],
      ),
    )
    return stated.map(({ request, state, range }) => {
      const own = request.prices ?? prices.get(request.account.userId) ?? []
      const ownSums = sums.get(request.account.userId) ?? null
      return toDraft({ request, range, sums: ownSums, prices: own }, state)
    })
  }

  async function readLines(
    db: Db,
    drafts: readonly Draft[],
  ): Promise<ReadonlyMap<UserId, InvoiceLine[]>> {
    const ranges = drafts.flatMap(({ range, sums }) => (sums ? [{ ...range, sums }] : []))
    return ranges.length === 0 ? new Map() : readDebtLines(db, ranges, ledger)
  }

  return { issue }
}

export type Issuing = ReturnType<typeof createIssuing>

const nothingInvoiced: InvoicedState = {
  throughSeq: 0n,
  carried: usdAttos(0n),
  periodStart: null,
  issuedAt: null,
}

const isWithUsage = ({ withUsage = true }: InvoiceRequest): boolean => withUsage

function rangeOf(request: InvoiceRequest, state: InvoicedState): EntryRange {
  const { appId, userId, seq } = request.account
  return {
    appId,
    userId,
    fromSeq: state.throughSeq,
    throughSeq: isWithUsage(request) ? seq : state.throughSeq,
    lateBefore: state.periodStart,
  }
}

function toDraft(
  parts: Pick<Draft, 'request' | 'range' | 'sums' | 'prices'>,
  { carried }: InvoicedState,
): Draft {
  if (isWithUsage(parts.request)) requireSaved(parts.request)
  const debt = usdAttos(parts.sums?.debt ?? 0n)
  const carriedIn = isWithUsage(parts.request) ? carried : usdAttos(0n)
  return { ...parts, ...addUp({ prices: parts.prices, debt, carriedIn }) }
}

/** Throws for an account with charges or payments that the ledger does not have yet. */
function requireSaved({ account: { entries } }: InvoiceRequest): void {
  if (entries.some(({ overage, collected }) => overage !== 0n || collected !== 0n))
    throw new Error('an account with unsaved charges or payments is not invoiced')
}

/** Given prices are paid already; all others are charged, which needs the minimum. */
const isIssued = ({ request, total, prices }: Draft): boolean =>
  request.prices === undefined || isWithUsage(request)
    ? total.cents >= minimumCents
    : prices.length > 0

/** Takes numbers for the drafts of each app, in the order of the apps' ids. */
async function numberDrafts(db: Db, drafts: readonly Draft[]) {
  const byApp = Map.groupBy(drafts, ({ request }) => request.account.appId)
  const numbers = new Map<Draft['request']['account']['appId'], bigint[]>()
  for (const [app, { length: count }] of [...byApp].toSorted(([a], [b]) => (a < b ? -1 : 1))) {
    const first = await store.takeNumbers(db, { app, kind: 'invoice', count })
    numbers.set(
      app,
      Array.from({ length: count }, (_, i) => first + BigInt(i)),
    )
  }
  return numbers
}

function toInvoice(
  { request: { account, reason }, price, total }: Draft,
  document: Pick<Invoice, 'number' | 'plane' | 'issuedAt'>,
): Invoice {
  const { appId, userId, periodStart, periodEnd } = account
  return {
    ...document,
    appId,
    userId,
    id: uuidV7(document.issuedAt.getTime()),
    reason,
    total: total.cents,
    debt: usdAttos(centsToAttos(total.cents) - price),
    periodStart,
    periodEnd,
  }
}

const announce = (db: Db, invoices: readonly Invoice[]): Promise<void> =>
  emitAll(
    db,
    invoices.map(({ appId, userId, id, number, total, reason, issuedAt }) => ({
      appId,
      userId,
      type: 'invoice.issued',
      at: issuedAt,
      data: {
        invoiceId: id,
        number: formatNumber('invoice', number),
        totalUsd: formatCents(total),
        reason,
      },
    })),
  )
