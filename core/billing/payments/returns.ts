import { Counter, Gauge } from 'prom-client'
import { DomainError } from '../../../proto/errors.ts'
import { uuidV7 } from '../../lib/crypto.ts'
import { startAtZero } from '../../lib/metrics.ts'
import { type Db, tx } from '../../lib/sql.ts'
import type { EventType } from '../../../proto/events.ts'
import { auditSuccess } from '../../shared/audit.ts'
import { emit } from '../../shared/events.ts'
import type { Actor } from '../../shared/audit.ts'
import type { Shared } from '../../shared/shared.ts'
import type { TopUps } from '../../balances/credit/top-ups.ts'
import {
  type Payment,
  type PaymentProcessor,
  type ProcessorAccount,
  usdCents,
} from '../processor/port.ts'
import { centsToAttos, formatCents } from './amounts.ts'
import * as store from './payment-store.ts'
import type { OpenReturn, ReturnKind, StoredPayment } from './payment-store.ts'

export interface ReturnsDeps extends Pick<
  Shared,
  'pool' | 'idempotency' | 'log' | 'metrics' | 'now'
> {
  readonly processor: Pick<PaymentProcessor, 'readPayment' | 'refund'>
  readonly topUps: Pick<TopUps, 'takeBack' | 'giveBack'>
  /** Books a return of a payment that paid an invoice. */
  readonly bookInvoiceReturn: (db: Db, open: OpenReturn) => Promise<void>
}

export interface RefundRequest {
  readonly payment: StoredPayment
  /** Null refunds what is left of the payment. */
  readonly cents: bigint | null
  /** Names the refund, so that a repetition does not refund twice. */
  readonly requestId: string
  readonly actor: Actor
}

const openMax = 500
const readingsMax = 5
const returnKinds = ['refund', 'refund_failed', 'dispute', 'dispute_won'] as const

/** Events of returns. Money that comes again has none. */
const eventTypes: { readonly [Kind in ReturnKind]?: EventType } = {
  refund: 'payment.refunded',
  dispute: 'payment.disputed',
}

/**
 * Money that went back. The processor's totals decide: what they exceed of the recorded returns is
 * a new return, so a lost, doubled or late event changes nothing.
 */
export function createReturns(deps: ReturnsDeps) {
  const { pool, idempotency, processor, metrics, now } = deps
  const { bookOne, bookOpen } = createReturnBooking(deps)
  const returns = new Counter({
    name: 'tollgate_billing_returns_total',
    help: 'Refunds and disputes of payments, failed refunds, and disputes that were won',
    labelNames: ['kind'],
    registers: [metrics],
  })
  registerGauge({ pool, metrics, now })
  startAtZero(returns, { kind: [...returnKinds] })

  /** Reads a payment and records what went back since. Returns a word for the log of events. */
  async function reconcile(at: ProcessorAccount, processorId: string): Promise<string> {
    const stored = await store.findByProcessorId(pool, processorId, at)
    if (stored === null) return 'unknown'
    const kinds = await recordNews(stored)
    if (kinds === null) return 'unknown'
    for (const kind of kinds) returns.inc({ kind })
    for (const open of await store.listReturnsToBook(pool, stored)) await bookOne(open)
    return kinds.length === 0 ? 'unchanged' : kinds.join(', ')
  }

  /**
   * Records what the processor reports and core does not have; null if the processor does not know
   * the payment. Reads again if something was recorded since the reading began, because an older
   * reading would undo what a newer one recorded. Throws UNAVAILABLE if that happens too often.
   */
  async function recordNews(stored: StoredPayment): Promise<ReturnKind[] | null> {
    for (let i = 0; i < readingsMax; i++) {
      const known = await store.sumReturns(pool, stored)
      const payment = await processor.readPayment(stored.at, stored.processorId)
      if (payment === null) return null
      const news = findNews(payment, known)
      if (news.length === 0) return []
      if (await tx(pool, (db) => record(db, stored, { known, news })))
        return news.map(({ kind }) => kind)
    }
    throw new DomainError('UNAVAILABLE', 'other returns of the payment are being recorded')
  }

  /** Returns false, and records nothing, if the recorded returns are no longer `known`. */
  async function record(
    db: Db,
    stored: StoredPayment,
    { known, news }: { readonly known: ReturnSums; readonly news: readonly ReturnChange[] },
  ): Promise<boolean> {
    await store.lockPayment(db, stored)
    const sums = await store.sumReturns(db, stored)
    if (returnKinds.some((kind) => sums[kind] !== known[kind])) return false
    for (const change of news) await insert(db, stored, { ...change, createdAt: now() })
    return true
  }

  /**
   * Refunds a payment at the processor, then records it. A repetition returns the first answer.
   * Throws CONFLICT if the amount exceeds the rest of the payment.
   */
  async function refund(request: RefundRequest) {
    const { payment, cents, requestId: key } = request
    const { appId, id: paymentId, at } = payment
    const body = { paymentId, cents: cents === null ? null : String(cents) }
    const refunded = await idempotency.once({ scope: `refunds:${appId}`, key, body }, (db) =>
      refundWithin(db, request),
    )
    await reconcile(at, payment.processorId)
    return { paymentId, amount: usdCents(BigInt(refunded)) }
  }

  /** Returns the refunded cents, as text for the stored answer. */
  async function refundWithin(
    db: Db,
    { payment, cents, requestId, actor }: RefundRequest,
  ): Promise<string> {
    const state = await processor.readPayment(payment.at, payment.processorId)
    if (state === null)
      throw new DomainError('NOT_FOUND', 'the payment processor no longer has this payment')
    const left = state.amount - state.refunded - state.disputed
    const amount = cents ?? left
    if (amount <= 0n || amount > left)
      throw new DomainError(
        'CONFLICT',
        `${formatCents(left > 0n ? left : 0n)} USD of this payment can be refunded`,
      )
    const { appId, id, at } = payment
    await processor.refund(
      at,
      { payment: payment.processorId, amount: usdCents(amount), reference: `${appId}/${id}` },
      `${at.plane}:${appId}:refund:${id}:${requestId}`,
    )
    await auditSuccess(db, {
      appId,
      actor,
      action: 'payment_refund_requested',
      details: { paymentId: id, amountUsd: formatCents(amount) },
      at: now(),
    })
    return String(amount)
  }

  return { reconcile, bookOpen, refund }
}

export type Returns = ReturnType<typeof createReturns>

/** Takes recorded returns out of the ledger. */
function createReturnBooking({ pool, topUps, bookInvoiceReturn, log, now }: ReturnsDeps) {
  /** Books returns that wait for calls to end. Run it again and again; it keeps what it cannot book. */
  async function bookOpen(): Promise<void> {
    for (const open of await store.listOpenReturns(pool, openMax)) await bookOne(open)
  }

  async function bookOne(open: OpenReturn): Promise<void> {
    await tx(pool, (db) => book(db, open)).catch(async (error: unknown) => {
      log.error({ err: error, appId: open.appId, returnId: open.id }, 'a return was not booked')
      await store.saveTried(pool, open, now())
    })
  }

  async function book(db: Db, open: OpenReturn): Promise<void> {
    const { appId, userId, id, creditId, kind, paymentId } = open
    if (!(await store.markBooked(db, open, now()))) return
    const amount = centsToAttos(open.amount)
    if (creditId === null) return bookInvoiceReturn(db, open)
    const reason = `${kind.replace('_', ' ')}: payment ${paymentId}`
    if (kind === 'dispute_won' || kind === 'refund_failed') {
      await topUps.giveBack(db, { user: { appId, userId }, creditId, amount, returnId: id, reason })
      return
    }
    const isBooked = await topUps.takeBack(db, {
      user: open,
      creditId,
      amount,
      returnId: id,
      reason,
    })
    if (!isBooked) await store.markOpen(db, open, now())
  }

  return { bookOne, bookOpen }
}

async function insert(
  db: Db,
  { appId, userId, id: paymentId }: StoredPayment,
  { kind, amount, createdAt }: ReturnChange & { readonly createdAt: Date },
): Promise<void> {
  const id = uuidV7(createdAt.getTime())
  const row = { appId, userId, id, paymentId, kind, amount: usdCents(amount), createdAt }
  await store.insertReturn(db, row)
  await auditSuccess(db, {
    appId,
    actor: { name: 'payment processor' },
    action: `payment_${kind}`,
    details: { paymentId, userId, amountUsd: formatCents(amount) },
    at: createdAt,
  })
  const type = eventTypes[kind]
  const data = { paymentId, amountUsd: formatCents(amount) }
  if (type !== undefined) await emit(db, { appId, userId, type, data, at: createdAt })
}

function registerGauge({
  pool,
  metrics,
  now,
}: Pick<ReturnsDeps, 'pool' | 'metrics' | 'now'>): void {
  metrics.registerMetric(
    new Gauge({
      name: 'tollgate_billing_returns_age_seconds',
      help: 'Age of the oldest refund or dispute that the ledger has not taken',
      registers: [],
      collect() {
        return store.openReturnsSince(pool).then(
          (since) =>
            this.set(since === null ? 0 : Math.max(0, (now().getTime() - since.getTime()) / 1000)),
          () => {},
        )
      },
    }),
  )
}

/** Recorded cents of each kind. */
type ReturnSums = Readonly<Record<ReturnKind, bigint>>

interface ReturnChange {
  readonly kind: ReturnKind
  readonly amount: bigint
}

/** Returns by how much the processor's totals differ from the recorded returns. */
function findNews({ refunded, disputed }: Payment, sums: ReturnSums): ReturnChange[] {
  const known = {
    refund: sums.refund - sums.refund_failed,
    dispute: sums.dispute - sums.dispute_won,
  }
  const changes: ReturnChange[] = [
    { kind: 'refund', amount: refunded - known.refund },
    { kind: 'refund_failed', amount: known.refund - refunded },
    { kind: 'dispute', amount: disputed - known.dispute },
    { kind: 'dispute_won', amount: known.dispute - disputed },
  ]
  return changes.filter(({ amount }) => amount > 0n)
}
