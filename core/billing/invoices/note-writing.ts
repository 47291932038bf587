import type { Account } from '../../balances/accounts/account.ts'
import type { Ledger } from '../../balances/ledger/ledger.ts'
import { uuidV7 } from '../../lib/crypto.ts'
import { type UsdAttos, usdAttos } from '../../lib/money.ts'
import { type Db, afterCommit } from '../../lib/sql.ts'
import type { Shared } from '../../shared/shared.ts'
import { centsToAttos } from '../payments/amounts.ts'
import { type UsdCents, usdCents } from '../processor/port.ts'
import { formatNumber } from './invoice.ts'
import * as store from './invoice-store.ts'
import type { NoteReason } from './invoice-store.ts'
import type { NotedInvoice } from './note-store.ts'

export interface CreditNote {
  readonly id: string
  readonly reason: NoteReason
  readonly total: UsdCents
}

export interface LockedInvoice {
  readonly account: Account
  readonly invoice: NotedInvoice
  readonly at: Date
}

export interface Correction extends LockedInvoice {
  readonly reason: NoteReason
  readonly note: string
  readonly price: UsdAttos
  readonly debt: UsdAttos
  readonly carriedIn: UsdAttos
  readonly total: UsdCents
}

export interface NoteWritingDeps extends Pick<Shared, 'invalidations'> {
  readonly ledger: Pick<Ledger, 'collect' | 'toAppTime'>
}

const zero = usdAttos(0n)

/** Writes credit notes, and what they change in the ledger of a locked account. */
export function createNoteWriting({ ledger, invalidations }: NoteWritingDeps) {
  /** Writes a credit note of a part of an invoice, and takes the part off the debt. */
  async function writeCredit(
    db: Db,
    correction: Pick<Correction, 'account' | 'invoice' | 'note' | 'at'>,
    { reason, cents }: { readonly reason: 'credit' | 'refund'; readonly cents: bigint },
  ): Promise<CreditNote> {
    const amount = centsToAttos(usdCents(cents))
    const corrected = await write(db, {
      ...correction,
      reason,
      price: zero,
      debt: usdAttos(-amount),
      carriedIn: zero,
      total: usdCents(-cents),
    })
    const { account, at } = correction
    await settle(db, account, { amount, causeId: corrected.id, at })
    return corrected
  }

  async function write(db: Db, correction: Correction): Promise<CreditNote> {
    const { account, invoice, reason, note, at, ...amounts } = correction
    const { appId, userId, periodStart, periodEnd } = account
    const number = await store.takeNumbers(db, { app: appId, kind: 'credit_note', count: 1 })
    const issuedAt = ledger.toAppTime(account, at)
    const id = uuidV7(issuedAt.getTime())
    const line = {
      kind: 'other' as const,
      description: `${reason === 'void' ? 'Void' : 'Credit'}: invoice ${formatNumber('invoice', invoice.number)}`,
      amount: usdAttos(amounts.price + amounts.debt),
      periodStart,
      periodEnd,
    }
    await store.insertDocuments(db, [
      {
        ...amounts,
        appId,
        userId,
        id,
        kind: 'credit_note',
        number,
        reason,
        carried: zero,
        plane: invoice.plane,
        periodStart,
        periodEnd,
        issuedAt,
        range: null,
        corrects: { invoiceId: invoice.id, note },
        lines: [line],
      },
    ])
    return { id, reason, total: amounts.total }
  }

  /** Collects an amount; recalls leases if the credit line becomes smaller. */
  async function settle(
    db: Db,
    account: Account,
    payment: { readonly amount: UsdAttos; readonly causeId: string; readonly at: Date },
  ): Promise<void> {
    const { userId: id } = account
    const isRecalled = await ledger.collect(db, account, payment)
    await afterCommit(db, () => invalidations.publish({ kind: 'access', id }))
    if (isRecalled) await afterCommit(db, () => invalidations.publish({ kind: 'lease', id }))
  }

  return { write, writeCredit, settle }
}
