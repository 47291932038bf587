import type { Account } from '../../balances/accounts/account.ts'
import type { DebtPayment } from '../../balances/accounts/paying.ts'
import type { Ledger } from '../../balances/ledger/ledger.ts'
import { uuidV7 } from '../../lib/crypto.ts'
import { type UsdAttos, usdAttos } from '../../lib/money.ts'
import type { Db } from '../../lib/sql.ts'
import { addSeconds } from '../../lib/time.ts'
import { backoffMs } from '../../lib/loop.ts'
import { type AppEvent, emitAll } from '../../shared/events.ts'
import { type AppId, type UserKey } from '../../shared/ids.ts'
import type { Shared } from '../../shared/shared.ts'
import { formatNumber } from '../invoices/invoice.ts'
import { centsToAttos, formatCents } from '../payments/amounts.ts'
import type { Customers } from '../payments/customers.ts'
import { insertMoney } from '../payments/payment-store.ts'
import { type UsdCents, usdCents } from '../processor/port.ts'
import { type AttemptHandler, isCounted } from './attempts.ts'
import type { StoredAttempt } from './attempt-store.ts'
import * as store from './collection-store.ts'
import { markInvoiced } from './invoices.ts'
import type { PayableCollection } from './collection-store.ts'
import { givenUpAt, nextRetry } from './schedule.ts'

/** What a failed or successful payment does to a subscription. Called in its transaction. */
export interface PaidPlans {
  readonly setPastDue: (
    db: Db,
    user: UserKey,
    isPastDue: boolean,
  ) => Promise<{ readonly subscriptionId: string } | null>
  readonly fallBack: (db: Db, user: UserKey, subscriptionId: string) => Promise<unknown>
}

export interface BookingDeps extends Pick<Shared, 'now'> {
  readonly ledger: Pick<Ledger, 'lock' | 'save' | 'collect' | 'toAppTime'>
  readonly plans: PaidPlans
  readonly customers: Pick<Customers, 'hasOtherCard'>
  /** Returns the owner's account; null if the platform owns the app, or the owner was never charged. */
  readonly findOwner: (db: Db, app: AppId) => Promise<UserKey | null>
}

const faultBackoff = { firstMs: 5 * 60_000, lastMs: 6 * 3_600_000 }

/** Books payments of invoices, and what follows when they fail. */
export function createBooking({
  ledger,
  plans,
  customers,
  findOwner,
  now,
}: BookingDeps): AttemptHandler {
  async function begin(
    db: Db,
    { payer, subjectId }: { readonly payer: UserKey; readonly subjectId: string },
  ): Promise<boolean> {
    // The account before the collection, as everywhere: without a card, the attempt fails at once.
    const at = now()
    await ledger.save(db, await ledger.lock(db, [payer], at), at)
    const collection = await store.lockPayable(db, { appId: payer.appId, id: subjectId })
    if (collection === null || !isPayable(collection)) return false
    if (await store.isPayerBusy(db, collection)) return false
    await store.saveCharging(db, collection)
    return true
  }

  async function paid(db: Db, attempt: StoredAttempt, processorId: string): Promise<boolean> {
    const { appId, userId, amount, fee } = attempt
    const at = now()
    const owner = fee > 0n ? await findOwner(db, appId) : null
    const user = { appId, userId }
    // Accounts before the collection: an invoice that becomes void locks them in this order.
    const locked = await ledger.lock(db, owner ? [user, owner] : [user], at)
    const collection = await lockCollection(db, attempt)
    if (collection.state === 'paid' || collection.state === 'voided') return false
    const paymentId = uuidV7(at.getTime())
    await insertMoney(db, {
      ...user,
      id: paymentId,
      purpose: 'invoice',
      amount,
      fee,
      at: attempt.at,
      processorId,
      checkoutId: null,
      creditId: null,
      invoiceId: collection.invoiceId,
      createdAt: at,
    })
    const { debt } = collection
    for (const account of locked)
      if (account.userId === userId) {
        markInvoiced(account, usdAttos(-debt))
        await collect(db, account, { amount: debt, causeId: paymentId, at })
      } else await collect(db, account, { amount: centsToAttos(fee), causeId: paymentId, at })
    await ledger.save(db, locked, at)
    await store.savePaid(db, collection, { attemptId: attempt.id, at })
    if (!(await store.hasRetries(db, collection))) await plans.setPastDue(db, collection, false)
    await emitAll(db, paidEvents(collection, paymentId, at))
    return true
  }

  /** The ledger takes no payment of 0: of an invoice that has only prices. */
  async function collect(db: Db, account: Account, payment: DebtPayment): Promise<void> {
    if (payment.amount !== 0n) await ledger.collect(db, account, payment)
  }

  async function failed(db: Db, attempt: StoredAttempt, failure: string): Promise<void> {
    const at = now()
    const [account] = await ledger.lock(db, [attempt], at)
    if (!account) throw new Error(`user ${attempt.userId} has no account`)
    await ledger.save(db, [account], at)
    const collection = await lockCollection(db, attempt)
    if (collection.state !== 'charging') return
    const own = ledger.toAppTime(account, at)
    // A card that came during the charge has made nothing due: it is charged at once.
    const cardId = attempt.card?.cardId ?? null
    const isReplaced = await customers.hasOtherCard(db, attempt, { cardId, instant: at })
    if (isCounted(failure))
      await noteFailure(db, collection, { attempt, failure, isReplaced, own, at })
    else {
      const dueAt = isReplaced ? own : afterFault(collection, own)
      await store.saveFault(db, collection, { failure, dueAt, attemptId: attempt.id })
    }
  }

  async function noteFailure(
    db: Db,
    collection: PayableCollection,
    { attempt, failure, isReplaced, own, at }: NotedFailure,
  ): Promise<void> {
    const failedAt = collection.failedAt ?? own
    const retryAt = isReplaced ? own : nextRetry(failedAt, own)
    const isFirst = collection.failures === 0
    const subscription = isFirst ? await plans.setPastDue(db, collection, true) : null
    const subscriptionId = subscription?.subscriptionId ?? collection.subscriptionId
    await store.saveFailure(db, collection, {
      state: retryAt === null ? 'uncollectible' : 'retrying',
      failures: collection.failures + 1,
      failedAt,
      failure,
      attemptId: attempt.id,
      subscriptionId,
      dueAt: retryAt ?? own,
      at,
    })
    const details = { failure, retryAt, accessEndsAt: givenUpAt(failedAt) }
    const events = failedEvents(collection, attempt, { ...details, at })
    await emitAll(
      db,
      isFirst && subscription ? [...events, pastDueEvent(collection, { ...details, at })] : events,
    )
    if (retryAt === null && subscriptionId !== null)
      await plans.fallBack(db, collection, subscriptionId)
  }

  return { begin, paid, failed }
}

interface NotedFailure {
  readonly attempt: StoredAttempt
  readonly failure: string
  /** Whether another card than the attempt's is on file. */
  readonly isReplaced: boolean
  /** The time of the app. */
  readonly own: Date
  readonly at: Date
}

const isPayable = ({ state }: PayableCollection): boolean =>
  state === 'issued' || state === 'retrying'

async function lockCollection(db: Db, attempt: StoredAttempt): Promise<PayableCollection> {
  const key = { appId: attempt.appId, id: attempt.subjectId }
  const collection = await store.lockPayable(db, key)
  if (collection === null) throw new Error(`collection ${attempt.subjectId} is missing`)
  return collection
}

/** When a call is repeated that failed for no fault of the user. */
export const afterFault = ({ faults }: Pick<PayableCollection, 'faults'>, own: Date): Date =>
  addSeconds(own, Math.ceil(backoffMs(faults + 1, faultBackoff) / 1000))

/**
 * Returns the application fee of a payment to an app's own account: what the owner owes on no
 * invoice, at most the whole amount (docs/decisions/59.md).
 */
export function computeFee(amount: UsdCents, uninvoiced: UsdAttos): UsdCents {
  const owed = uninvoiced / centsToAttos(usdCents(1n))
  return usdCents(owed < 0n ? 0n : owed < amount ? owed : amount)
}

type EventHead = Pick<AppEvent, 'appId' | 'userId' | 'at'>

const headOf = ({ appId, userId }: PayableCollection, at: Date): EventHead => ({
  appId,
  userId,
  at,
})

const invoiceOf = ({ invoiceId, number, total }: PayableCollection) => ({
  invoiceId,
  number: formatNumber('invoice', number),
  totalUsd: formatCents(total),
})

function paidEvents(collection: PayableCollection, paymentId: string, at: Date): AppEvent[] {
  const { invoiceId, total } = collection
  const data = { paymentId, purpose: 'invoice', amountUsd: formatCents(total), invoiceId }
  return [
    { ...headOf(collection, at), type: 'payment.succeeded', data },
    {
      ...headOf(collection, at),
      type: 'invoice.paid',
      data: { ...invoiceOf(collection), paymentId },
    },
  ]
}

interface FailureDetails {
  readonly failure: string
  readonly retryAt: Date | null
  readonly accessEndsAt: Date
  readonly at: Date
}

function failedEvents(
  collection: PayableCollection,
  { amount, purpose }: StoredAttempt,
  { failure, retryAt, at }: FailureDetails,
): AppEvent[] {
  const { invoiceId } = collection
  const nextAttemptAt = retryAt?.toISOString() ?? null
  const data = { purpose, amountUsd: formatCents(amount), invoiceId, failure, nextAttemptAt }
  return [
    { ...headOf(collection, at), type: 'payment.failed', data },
    {
      ...headOf(collection, at),
      type: 'invoice.payment_failed',
      data: { ...invoiceOf(collection), failure, nextAttemptAt },
    },
  ]
}

const pastDueEvent = (
  collection: PayableCollection,
  { accessEndsAt, at }: FailureDetails,
): AppEvent => ({
  ...headOf(collection, at),
  type: 'subscription.past_due',
  data: { ...invoiceOf(collection), accessEndsAt: accessEndsAt.toISOString() },
})
