import { Counter } from 'prom-client'
import { DomainError } from '../../../proto/errors.ts'
import { uuidV7 } from '../../lib/crypto.ts'
import { type Metrics, startAtZero } from '../../lib/metrics.ts'
import { type Db, tx } from '../../lib/sql.ts'
import { addSeconds } from '../../lib/time.ts'
import { appId } from '../../shared/ids.ts'
import type { Shared } from '../../shared/shared.ts'
import { formatReference, parseReference } from '../payments/checkouts.ts'
import type { Customers, Payer } from '../payments/customers.ts'
import type { Returns } from '../payments/returns.ts'
import {
  type Payment,
  type PaymentProcessor,
  type ProcessorAccount,
  type UsdCents,
  usdCents,
} from '../processor/port.ts'
import * as store from './attempt-store.ts'
import type { AttemptPurpose, StoredAttempt } from './attempt-store.ts'

export interface ChargeRequest {
  readonly payer: Payer
  readonly purpose: AttemptPurpose
  /** The collection or the plan order that is paid. */
  readonly subjectId: string
  readonly amount: UsdCents
  /** The platform's share of the amount. */
  readonly fee: UsdCents
  /** Text on the receipt. */
  readonly description: string
}

/**
 * What attempts of one purpose pay for. Its functions run in the transaction that starts or ends an
 * attempt, after the attempt's row is locked. Handlers of invoices lock accounts before their own
 * row, those of plans after it.
 */
export interface AttemptHandler {
  /** Locks the subject. Returns false if it must not be charged; then nothing happens. */
  readonly begin: (db: Db, request: ChargeRequest) => Promise<boolean>
  /**
   * Books the money. `processorId` is the processor's id of the payment. Returns false, and does
   * nothing, if the subject needs no money any more; then the money goes back.
   */
  readonly paid: (db: Db, attempt: StoredAttempt, processorId: string) => Promise<boolean>
  /** The card was not charged. `isCounted(failure)` returns whether the user can cure it. */
  readonly failed: (db: Db, attempt: StoredAttempt, failure: string) => Promise<void>
}

export type AttemptHandlers = Readonly<Partial<Record<AttemptPurpose, AttemptHandler>>>

export interface AttemptsDeps extends Pick<Shared, 'pool' | 'log' | 'metrics' | 'now'> {
  readonly processor: Pick<
    PaymentProcessor,
    'kind' | 'pay' | 'readPayment' | 'findPayment' | 'refund' | 'listRefunds'
  >
  readonly customers: Pick<Customers, 'findCard' | 'refreshById'>
  readonly handlers: AttemptHandlers
  /** Books what went back of a payment. */
  readonly reconcileReturns: Returns['reconcile']
}

/**
 * An ended or undecided attempt: `started` if the processor has not decided, or if its answer was
 * lost. The handler of the purpose hears of the end.
 */
export type ChargedAttempt = Pick<StoredAttempt, 'id' | 'state' | 'failure'>

/** Words of core among the failures; all others are codes of the processor. */
const failures = {
  noCard: 'no_card',
  actionRequired: 'action_required',
  /** The processor did not answer, and has no such payment. */
  unreachable: 'processor_unreachable',
  refused: 'processor_refused',
  surplus: store.surplus,
} as const

/** Whether a failure is the card's, so that retries are counted. Others are no fault of the user. */
export const isCounted = (failure: string): boolean =>
  failure !== failures.unreachable && failure !== failures.refused

/**
 * After this time, no request of ours can still reach the processor: one begins within
 * `callWithinSeconds`, waits at most STRIPE_TIMEOUT_MS (25 s at most) for its turn, and is sent
 * twice.
 */
const firstCheckSeconds = 120
const processingCheckSeconds = 600
/** A process that was suspended after it stored an attempt does not call any more. */
const callWithinSeconds = 30

function createEndCounter(metrics: Metrics): Counter<'purpose' | 'result'> {
  const ended = new Counter({
    name: 'tollgate_billing_payment_attempts_total',
    help: 'Charges of cards without their users that ended, by purpose and result',
    labelNames: ['purpose', 'result'],
    registers: [metrics],
  })
  startAtZero(ended, {
    purpose: ['invoice', 'plan'],
    result: ['succeeded', 'declined', ...Object.values(failures)],
  })
  return ended
}

/** Charges cards on file without their users. A subject is charged at most once. */
export function createAttempts(deps: AttemptsDeps) {
  const { pool, processor, customers, handlers, log, metrics, now } = deps
  const ended = createEndCounter(metrics)
  const settling = createSettlement(deps, ended)

  /**
   * Charges the payer's card. Returns the attempt; that of an earlier call if it is undecided or has
   * succeeded; null if the subject must not be charged. Never throws for a failure of the processor.
   */
  async function charge(request: ChargeRequest): Promise<ChargedAttempt | null> {
    const { attempt, isNew } = await start(request)
    if (attempt === null || !isNew || attempt.state !== 'started') return attempt
    return call(attempt)
  }

  async function start(
    request: ChargeRequest,
  ): Promise<{ attempt: StoredAttempt | null; isNew: boolean }> {
    const { payer, purpose, subjectId } = request
    const onFile = await customers.findCard(payer, now())
    const attempt = newAttempt(request, onFile)
    return tx(pool, async (db) => {
      const handler = handlerOf(handlers, purpose)
      if (!(await handler.begin(db, request))) return { attempt: null, isNew: false }
      if (!(await store.insertAttempt(db, attempt))) {
        const key = { appId: payer.appId, purpose, subjectId }
        return { attempt: await store.findOpenOrPaid(db, key), isNew: false }
      }
      if (attempt.state === 'failed') {
        await handler.failed(db, attempt, failures.noCard)
        ended.inc({ purpose, result: failures.noCard })
      }
      return { attempt, isNew: true }
    })
  }

  function newAttempt(
    { payer, purpose, subjectId, amount, fee, description }: ChargeRequest,
    onFile: Awaited<ReturnType<Customers['findCard']>>,
  ): StoredAttempt {
    const createdAt = now()
    return {
      appId: payer.appId,
      userId: payer.userId,
      id: uuidV7(createdAt.getTime()),
      purpose,
      subjectId,
      amount,
      fee,
      description,
      at: payer.at,
      processor: processor.kind,
      card: onFile && { customerId: onFile.customer.customerId, cardId: onFile.card.id },
      state: onFile ? 'started' : 'failed',
      processorId: null,
      failure: onFile ? null : failures.noCard,
      createdAt,
      checkAt: addSeconds(createdAt, firstCheckSeconds),
      refundCalls: 0,
    }
  }

  /** Calls the processor for a stored attempt. An unclear answer leaves it to the sweep. */
  async function call(attempt: StoredAttempt): Promise<ChargedAttempt> {
    const { at, appId: app, id, card, amount, fee, description, createdAt } = attempt
    if (card === null || addSeconds(createdAt, callWithinSeconds) <= now()) return attempt
    try {
      const payment = await processor.pay(
        at,
        {
          customer: card.customerId,
          card: card.cardId,
          amount,
          fee,
          description,
          reference: formatReference(attempt),
        },
        `${at.plane}:${app}:attempt:${id}`,
      )
      return await settling.settle(attempt, payment)
    } catch (error) {
      if (!(error instanceof DomainError)) throw error
      const about = { err: error, appId: app, attemptId: id }
      if (error.reason === 'PROCESSOR_UNREACHABLE') {
        log.warn(about, 'the answer to a charge was lost; the processor is asked later')
        return attempt
      }
      log.warn(about, 'the processor refused a charge')
      // The card may be gone; then the next attempt finds none.
      await customers.refreshById(card.customerId, at).catch(() => null)
      return settling.giveUp(attempt, failures.refused)
    }
  }

  /** Settles the attempt of a payment that the processor reports. Returns a word for the log. */
  async function report(at: ProcessorAccount, processorId: string): Promise<string> {
    const payment = await processor.readPayment(at, processorId)
    const reference = parseReference(payment?.reference ?? null)
    if (payment === null || reference === null) return 'unknown'
    const key = { appId: appId(reference.appId), id: reference.id, at }
    return settling.settleRead(key, payment)
  }

  /**
   * Refunds what is left of a claimed surplus: money that came for a subject that another attempt
   * has paid, or that was given up. Throws if it must be tried again.
   */
  async function refundSurplus(attempt: StoredAttempt): Promise<void> {
    const { at, appId: app, id, processorId, refundCalls, fee } = attempt
    const payment = processorId === null ? null : await processor.readPayment(at, processorId)
    if (payment === null) throw new Error(`attempt ${id} has no payment at the processor`)
    const left = leftOf(payment)
    if (left > 0n) {
      const refund = { payment: payment.id, amount: usdCents(left) }
      const reference = formatReference({ appId: app, id })
      // Each call has its own key, because the processor repeats its faults as long as their keys.
      // It never refunds more than a payment.
      const key = `${at.plane}:${app}:attempt-refund:${id}:${refundCalls}`
      // The owner owes nothing for a surplus. The fee comes back once, also with a refund that fails.
      const refunds = fee > 0n ? await processor.listRefunds(at, payment.id) : []
      const isFirst = refunds.every((earlier) => earlier.reference !== reference)
      const returnsFee = fee > 0n && isFirst
      await processor.refund(at, { ...refund, reference, returnsFee }, key)
    }
    await store.saveRefunded(pool, attempt)
  }

  /** Asks the processor about an undecided attempt. */
  async function check(attempt: StoredAttempt): Promise<void> {
    const { at, processorId, card, createdAt } = attempt
    if (card === null) return
    const lost = {
      customer: card.customerId,
      reference: formatReference(attempt),
      since: createdAt,
    }
    const payment =
      processorId === null
        ? await processor.findPayment(at, lost)
        : await processor.readPayment(at, processorId)
    if (payment !== null) await settling.settleRead(attempt, payment)
    else if (processorId === null) await settling.giveUp(attempt, failures.unreachable)
  }

  return { charge, report, check, refundSurplus }
}

export type Attempts = ReturnType<typeof createAttempts>

function handlerOf(handlers: AttemptHandlers, purpose: AttemptPurpose): AttemptHandler {
  const handler = handlers[purpose]
  if (!handler) throw new Error(`attempts for ${purpose} have no handler`)
  return handler
}

interface Settled extends ChargedAttempt {
  /** A word for the log of events. */
  readonly result: string
}

/** Ends attempts by the state of their payments at the processor. Callers may repeat it. */
function createSettlement(
  { pool, handlers, reconcileReturns, log, now }: AttemptsDeps,
  ended: Counter<'purpose' | 'result'>,
) {
  const settle = (
    key: Pick<StoredAttempt, 'appId' | 'id' | 'at'>,
    payment: Payment,
  ): Promise<Settled> => tx(pool, (db) => apply(db, key, payment))

  /**
   * Settles by a payment that was read later than it was made: of a refund that was reported before
   * the payment was booked, no event comes any more.
   */
  async function settleRead(
    key: Pick<StoredAttempt, 'appId' | 'id' | 'at'>,
    payment: Payment,
  ): Promise<string> {
    const { result } = await settle(key, payment)
    if (result === 'paid' || result === 'unchanged') await reconcileReturns(key.at, payment.id)
    return result
  }

  async function apply(
    db: Db,
    { at, ...key }: Pick<StoredAttempt, 'appId' | 'id' | 'at'>,
    payment: Payment,
  ): Promise<Settled> {
    const attempt = await store.lockAttempt(db, key)
    if (attempt === null) return { ...unknown, id: key.id, result: 'unknown' }
    if (!fits(attempt, at, payment)) {
      log.warn(
        { ...key, payment: payment.id },
        'a payment that does not fit its attempt was reported',
      )
      return { ...unknown, id: key.id, result: 'foreign' }
    }
    if (attempt.state === 'succeeded') return { ...attempt, result: 'unchanged' }
    if (payment.state === 'succeeded') return succeed(db, attempt, payment)
    if (attempt.state === 'failed') return { ...attempt, result: 'unchanged' }
    if (payment.state === 'processing') {
      const checkAt = addSeconds(now(), processingCheckSeconds)
      await store.saveProcessing(db, attempt, { processorId: payment.id, checkAt })
      return { ...attempt, result: 'processing' }
    }
    const failure =
      payment.state === 'action_required'
        ? failures.actionRequired
        : (payment.failure ?? payment.state)
    return fail(db, attempt, { failure, processorId: payment.id })
  }

  async function succeed(db: Db, attempt: StoredAttempt, payment: Payment): Promise<Settled> {
    const paid = { processorId: payment.id, at: now() }
    if (attempt.failure === failures.surplus) {
      // A refund that failed, or a dispute that was won, has brought the money again.
      if (leftOf(payment) > 0n) await store.saveSurplus(db, attempt, paid)
      return { ...attempt, result: 'surplus' }
    }
    const isPaid =
      (await store.saveSucceeded(db, attempt, paid)) &&
      (await handlerOf(handlers, attempt.purpose).paid(db, attempt, payment.id))
    if (!isPaid) {
      await store.saveSurplus(db, attempt, paid)
      ended.inc({ purpose: attempt.purpose, result: failures.surplus })
      log.error({ appId: attempt.appId, attemptId: attempt.id }, 'a subject was paid twice')
      return { ...attempt, state: 'failed', failure: failures.surplus, result: 'surplus' }
    }
    ended.inc({ purpose: attempt.purpose, result: 'succeeded' })
    return { id: attempt.id, state: 'succeeded', failure: null, result: 'paid' }
  }

  async function fail(
    db: Db,
    attempt: StoredAttempt,
    { failure, processorId }: { readonly failure: string; readonly processorId: string | null },
  ): Promise<Settled> {
    await store.saveFailed(db, attempt, { failure, processorId, at: now() })
    await handlerOf(handlers, attempt.purpose).failed(db, attempt, failure)
    const result = isCounted(failure) ? 'declined' : failure
    ended.inc({ purpose: attempt.purpose, result })
    return { id: attempt.id, state: 'failed', failure, result: 'failed' }
  }

  /** Ends an attempt for which the processor has no payment. */
  async function giveUp(key: StoredAttempt, failure: string): Promise<ChargedAttempt> {
    return tx(pool, async (db) => {
      const attempt = await store.lockAttempt(db, key)
      if (attempt === null || attempt.state !== 'started') return attempt ?? key
      return fail(db, attempt, { failure, processorId: null })
    })
  }

  return { settle, settleRead, giveUp }
}

const unknown = { state: 'started', failure: null } as const

/** What did not go back of a payment. */
const leftOf = ({ amount, refunded, disputed }: Payment): bigint => amount - refunded - disputed

/** Whether the processor's payment is the one that the attempt asked for. */
const fits = (attempt: StoredAttempt, at: ProcessorAccount, payment: Payment): boolean =>
  attempt.at.plane === at.plane &&
  attempt.at.account === at.account &&
  (attempt.processorId === null || attempt.processorId === payment.id) &&
  attempt.card?.customerId === payment.customer &&
  attempt.amount === payment.amount &&
  payment.currency === 'usd'
