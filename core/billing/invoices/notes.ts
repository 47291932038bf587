import { DomainError } from '../../../proto/errors.ts'
import type { Account } from '../../balances/accounts/account.ts'
import type { Ledger } from '../../balances/ledger/ledger.ts'
import { type UsdAttos, usdAttos } from '../../lib/money.ts'
import { type Db, tx } from '../../lib/sql.ts'
import { type Actor, auditSuccess } from '../../shared/audit.ts'
import { emit } from '../../shared/events.ts'
import { type AppId, type UserKey, isUuid } from '../../shared/ids.ts'
import type { Shared } from '../../shared/shared.ts'
import { centsToAttos, formatCents } from '../payments/amounts.ts'
import type { OpenReturn } from '../payments/payment-store.ts'
import { usdCents } from '../processor/port.ts'
import { formatNumber } from './invoice.ts'
import { type NotedInvoice, findNoted, findInvoicedUser } from './note-store.ts'
import { type CreditNote, type LockedInvoice, createNoteWriting } from './note-writing.ts'

export interface NotesDeps extends Pick<Shared, 'pool' | 'idempotency' | 'invalidations' | 'now'> {
  readonly ledger: Pick<Ledger, 'lock' | 'save' | 'collect' | 'toAppTime'>
  /** Notes on the account that this much more of its debt is on invoices; negative for less. */
  readonly markInvoiced: (account: Account, amount: UsdAttos) => void
  /** Ends the collection of an invoice in the caller's transaction. Throws CONFLICT during a payment. */
  readonly endCollection: (db: Db, invoice: UserKey & { readonly id: string }) => Promise<void>
}

export interface NoteRequest {
  readonly appId: AppId
  readonly invoiceId: string
  /** The reason, in the author's words. */
  readonly note: string
  readonly actor: Actor
}

export interface CreditRequest extends NoteRequest {
  readonly cents: bigint
  readonly idempotencyKey: string | undefined
}

const zero = usdAttos(0n)

/** Credit notes: the only way to correct an issued invoice (docs/invoices.md). */
export function createNotes({
  pool,
  idempotency,
  ledger,
  markInvoiced,
  endCollection,
  invalidations,
  now,
}: NotesDeps) {
  const { write, writeCredit, settle } = createNoteWriting({ ledger, invalidations })

  /**
   * Voids an unpaid invoice, so that the user owes nothing for it. Throws CONFLICT for an invoice
   * that is paid or void, or has nothing to pay. Returns the id of the credit note.
   */
  async function voidInvoice(request: NoteRequest): Promise<string> {
    return tx(pool, (db) => correct(db, request, voidLocked))

    async function voidLocked(db: Db, { account, invoice, at }: LockedInvoice) {
      requireOpen(invoice)
      await endCollection(db, invoice)
      const owed = usdAttos(centsToAttos(invoice.total) - invoice.price)
      markInvoiced(account, usdAttos(-owed))
      // Below zero, a credit paid for a part of the price. The next invoice gets it back.
      const hasDebt = owed > 0n
      const total = usdCents(-invoice.total)
      const { note } = request
      const corrected = await write(db, {
        account,
        invoice,
        reason: 'void',
        note,
        at,
        price: usdAttos(-invoice.price),
        debt: hasDebt ? usdAttos(-owed) : zero,
        carriedIn: hasDebt ? zero : usdAttos(-owed),
        total,
      })
      if (hasDebt) await settle(db, account, { amount: owed, causeId: corrected.id, at })
      const issuedAt = ledger.toAppTime(account, at)
      await emit(db, {
        appId: invoice.appId,
        userId: invoice.userId,
        type: 'invoice.voided',
        at: issuedAt,
        data: {
          invoiceId: invoice.id,
          number: formatNumber('invoice', invoice.number),
          totalUsd: formatCents(invoice.total),
        },
      })
      return corrected
    }
  }

  /**
   * Credits a part of a paid invoice, which the next invoice takes off. Throws CONFLICT for an
   * unpaid invoice and for more than its uncredited rest. Returns the id of the credit note.
   */
  async function credit(request: CreditRequest): Promise<string> {
    const { appId, invoiceId, note, actor, cents, idempotencyKey: key } = request
    const body = { invoiceId, note, cents: String(cents) }
    return idempotency.once({ scope: `invoices:${appId}:${actor.name}`, key, body }, (db) =>
      correct(db, request, (within, locked) => {
        requirePaid(locked.invoice, cents)
        const correction = { ...locked, note }
        return writeCredit(within, correction, { reason: 'credit', cents })
      }),
    )
  }

  /**
   * Books money that went back, or came again, of an invoice's payment. A refund makes a credit
   * note, so that it is not owed again; a dispute makes the amount debt, for the next invoice.
   */
  async function bookReturn(
    db: Db,
    { appId, userId, id, kind, amount: cents, invoiceId }: OpenReturn,
  ): Promise<void> {
    if (invoiceId === null) return
    const at = now()
    const [account] = await ledger.lock(db, [{ appId, userId }], at)
    const invoice = await findNoted(db, { appId, id: invoiceId })
    if (!account || !invoice) throw new Error(`the invoice ${invoiceId} of a payment is missing`)
    const isBack = kind === 'refund' || kind === 'dispute'
    const amount = usdAttos((isBack ? -1n : 1n) * centsToAttos(cents))
    await settle(db, account, { amount, causeId: id, at })
    const left = invoice.total - invoice.credited
    const noted = cents < left ? cents : left
    if (kind === 'refund' && noted > 0n) {
      await writeCredit(
        db,
        { account, invoice, note: 'refunded', at },
        {
          reason: 'refund',
          cents: noted,
        },
      )
    }
    await ledger.save(db, [account], at)
  }

  async function correct(
    db: Db,
    { appId, invoiceId, note, actor }: NoteRequest,
    act: (db: Db, locked: LockedInvoice) => Promise<CreditNote>,
  ): Promise<string> {
    const at = now()
    // The account's lock comes before the invoice is read: payments of the invoice take it, too.
    const user = isUuid(invoiceId) ? await findInvoicedUser(db, { appId, id: invoiceId }) : null
    const [account] = user === null ? [] : await ledger.lock(db, [user], at)
    const invoice = account && (await findNoted(db, { appId, id: invoiceId }))
    if (!account || !invoice) throw noInvoice()
    const { id, reason, total } = await act(db, { account, invoice, at })
    await ledger.save(db, [account], at)
    await auditSuccess(db, {
      appId,
      actor,
      action: reason === 'void' ? 'invoice_voided' : 'invoice_credited',
      details: { invoiceId, userId: account.userId, note, totalUsd: formatCents(total) },
      at,
    })
    return id
  }

  return { voidInvoice, credit, bookReturn }
}

export type Notes = ReturnType<typeof createNotes>

export const noInvoice = (): DomainError =>
  new DomainError('NOT_FOUND', 'the app has no such invoice')

function requireOpen({ isPaid, isVoid, total }: NotedInvoice): void {
  if (isPaid)
    throw new DomainError(
      'CONFLICT',
      'the invoice is paid; credit a part of it, or refund the payment',
    )
  if (isVoid) throw new DomainError('CONFLICT', 'the invoice is void already')
  if (total === 0n) throw new DomainError('CONFLICT', 'the invoice has nothing to pay')
}

function requirePaid({ isPaid, total, credited }: NotedInvoice, cents: bigint): void {
  if (!isPaid)
    throw new DomainError('CONFLICT', 'only a paid invoice is credited; void one that is not paid')
  const left = total - credited
  if (cents > left)
    throw new DomainError(
      'CONFLICT',
      `${formatCents(left > 0n ? left : 0n)} USD of this invoice can be credited`,
    )
}
