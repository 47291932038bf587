import { Counter, Gauge } from 'prom-client'
import type { Ledger } from '../../balances/ledger/ledger.ts'
import { DomainError } from '../../../proto/errors.ts'
import { getOrInsert } from '../../lib/maps.ts'
import { startAtZero } from '../../lib/metrics.ts'
import { type UsdAttos, usdAttos } from '../../lib/money.ts'
import { type Db, tx } from '../../lib/sql.ts'
import { addSeconds } from '../../lib/time.ts'
import type { AppId, UserId, UserKey } from '../../shared/ids.ts'
import type { Shared } from '../../shared/shared.ts'
import { formatNumber } from '../invoices/invoice.ts'
import type { Issuing } from '../invoices/issuing.ts'
import type { Payers } from '../payments/payers.ts'
import type { ProcessorAccount } from '../processor/port.ts'
import { findPlane } from '../processor/store.ts'
import { isPlatformApp } from '../store.ts'
import { centsToAttos } from '../payments/amounts.ts'
import { sumStartedFees } from './attempt-store.ts'
import type { Attempts } from './attempts.ts'
import { afterFault, computeFee } from './booking.ts'
import * as store from './collection-store.ts'
import type { PayableCollection, RequestedCollection } from './collection-store.ts'

export interface WorkerDeps extends Pick<Shared, 'pool' | 'log' | 'metrics' | 'now' | 'clocks'> {
  readonly ledger: Pick<Ledger, 'lock' | 'save' | 'readWithin' | 'uninvoiced'>
  readonly issue: Issuing['issue']
  readonly attempts: Pick<Attempts, 'charge'>
  readonly payers: Pick<Payers, 'place'>
  readonly findOwner: (db: Db, app: AppId) => Promise<UserKey | null>
  /** Cards that are charged at a time. */
  readonly chargesAtOnce: number
}

const issuedAtOnce = 200
const paidAtOnce = 200
/** A core that stopped while it paid does so within this time. */
const leaseSeconds = 120

/** Issues the invoices of due collections, and pays them (docs/collection.md). */
export function createCollectionWorker(deps: WorkerDeps) {
  const { pool, ledger, clocks, chargesAtOnce, now } = deps
  const counts = createCounts(deps)
  const { pay } = createPaying(deps, counts)

  /** The time by which collections are due: real time, or that of one app. */
  const dueBy = async (app: AppId | null): Promise<Date> =>
    app === null ? now() : clocks.timeOf(pool, app, now())

  /** Issues what is due, for a bounded number of requests. Returns their number. */
  async function issueDue(app: AppId | null = null): Promise<number> {
    const at = await dueBy(app)
    return tx(pool, async (db) => {
      const due = await store.lockRequested(db, { at, app, limit: issuedAtOnce })
      if (due.length > 0) await issue(db, due)
      return due.length
    })
  }

  async function issue(db: Db, due: readonly RequestedCollection[]): Promise<void> {
    const at = now()
    const invoicing = await store.findInvoicing(db, [...new Set(due.map(({ appId }) => appId))])
    const chosen = chooseByUser(due.filter(({ appId }) => invoicing.has(appId)))
    const locked = await ledger.lock(db, [...chosen.values()], at)
    const requests = locked.flatMap((account) => {
      const one = chosen.get(account.userId)
      return one ? [{ account, reason: one.reason, at, withUsage: one.withUsage }] : []
    })
    const invoices = await deps.issue(db, requests)
    await ledger.save(db, locked, at)
    const issued = due.map(({ appId, id, userId }) => {
      const isChosen = chosen.get(userId)?.id === id
      return { appId, id, invoiceId: (isChosen ? invoices.get(userId)?.id : null) ?? null }
    })
    await store.saveIssued(db, issued, at)
    for (const { invoiceId } of issued) counts.inc(invoiceId === null ? 'carried' : 'issued')
  }

  /** Pays what is due, for a bounded number of invoices. Returns their number. */
  async function payDue(app: AppId | null = null): Promise<number> {
    const at = await dueBy(app)
    const until = addSeconds(at, leaseSeconds)
    const due = await store.claimPayable(pool, { at, until, app, limit: paidAtOnce })
    // One payer after the other: the second invoice of a user waits for the first.
    const queue = [...Map.groupBy(due, ({ userId }) => userId).values()]
    // Apps are looked up once for all of their invoices.
    const places: Places = new Map()
    const work = async (): Promise<void> => {
      for (let same = queue.shift(); same !== undefined; same = queue.shift())
        for (const collection of same) await pay(collection, { places, until })
    }
    await Promise.all(Array.from({ length: Math.min(chargesAtOnce, queue.length) }, work))
    return due.length
  }

  /**
   * Does what is due: in all apps by real time, or in one app by its clock. Stops at `end`, a time
   * of `performance.now()`. Returns false if something may be left.
   */
  async function run(app: AppId | null = null, end = Infinity): Promise<boolean> {
    for (const step of [issueDue, payDue])
      while ((await step(app)) > 0) if (performance.now() > end) return false
    return app === null || !(await store.isDue(pool, { appId: app, at: await dueBy(app) }))
  }

  return { issueDue, payDue, run }
}

export type CollectionWorker = ReturnType<typeof createCollectionWorker>

/** A user has at most one collection at the end of a period and one other; one invoice serves both. */
function chooseByUser(
  due: readonly RequestedCollection[],
): ReadonlyMap<UserId, RequestedCollection> {
  const chosen = new Map<UserId, RequestedCollection>()
  for (const one of due) {
    const other = chosen.get(one.userId)
    if (other === undefined || (one.withUsage && !other.withUsage)) chosen.set(one.userId, one)
  }
  return chosen
}

type Counts = ReturnType<typeof createCounts>

function createCounts({ pool, metrics, now }: Pick<WorkerDeps, 'pool' | 'metrics' | 'now'>) {
  const collections = new Counter({
    name: 'tollgate_billing_collections_total',
    help: 'Steps of collections, by result: issued, carried (below the minimum), charged, postponed',
    labelNames: ['result'],
    registers: [metrics],
  })
  startAtZero(collections, { result: ['issued', 'carried', 'charged', 'postponed'] })
  metrics.registerMetric(
    new Gauge({
      name: 'tollgate_billing_collections_age_seconds',
      help: 'Time since the oldest due collection should have been worked on',
      registers: [],
      collect() {
        return store.dueSince(pool, now()).then(
          (since) =>
            this.set(since === null ? 0 : Math.max(0, (now().getTime() - since.getTime()) / 1000)),
          () => {},
        )
      },
    }),
  )
  return {
    inc: (result: 'issued' | 'carried' | 'charged' | 'postponed') => collections.inc({ result }),
  }
}

/** The processor's accounts that take the money of apps' users. */
type Places = Map<AppId, Promise<ProcessorAccount>>

interface Claim {
  readonly places: Places
  /** The end of the lease. */
  readonly until: Date
}

/** Charges the cards of users for their invoices. */
function createPaying(
  { pool, ledger, attempts, payers, findOwner, clocks, log, now }: WorkerDeps,
  counts: Counts,
) {
  /** Never throws: a collection that could not be worked on is due again. */
  async function pay(collection: PayableCollection, { places, until }: Claim): Promise<void> {
    const { appId, id } = collection
    try {
      const at = await getOrInsert(places, appId, () => place(collection))
      const { userId, externalUserId, total, number } = collection
      const attempt = await attempts.charge({
        payer: { appId, userId, externalUserId, at },
        purpose: 'invoice',
        subjectId: id,
        amount: total,
        fee: computeFee(total, await owedByOwner(at, appId)),
        description: `Invoice ${formatNumber('invoice', number)}`,
      })
      // Another charge of the user began since the claim: this one follows when that is decided.
      if (attempt === null) await store.release(pool, collection, until)
      else counts.inc('charged')
    } catch (error) {
      log.warn(
        { err: error, appId, collectionId: id },
        'an invoice could not be charged; it is tried again',
      )
      counts.inc('postponed')
      const failure = error instanceof DomainError ? error.reason.toLowerCase() : 'internal'
      const dueAt = afterFault(collection, await clocks.timeOf(pool, appId, now()))
      await store
        .saveFault(pool, collection, { failure, dueAt })
        .catch((again: unknown) => log.warn({ err: again, appId }, 'a collection keeps its lease'))
    }
  }

  /** Returns the processor's account that takes the money. Throws if it cannot. */
  async function place({
    appId,
    userId,
    externalUserId,
  }: PayableCollection): Promise<ProcessorAccount> {
    const payee = (await isPlatformApp(pool, appId)) ? null : appId
    const user = { appId, userId, externalUserId }
    const plane = await findPlane(pool, appId)
    return (await payers.place({ billingMode: 'merchant', user, payee, plane })).at
  }

  /**
   * Debt of the app's owner that neither an invoice nor the fee of an undecided charge covers.
   * Payments in the test plane do not reduce it.
   */
  async function owedByOwner({ account, plane }: ProcessorAccount, app: AppId): Promise<UsdAttos> {
    const owner = account === null || plane === 'test' ? null : await findOwner(pool, app)
    if (owner === null) return usdAttos(0n)
    const owed = ledger.uninvoiced(await ledger.readWithin(pool, owner, now()))
    return usdAttos(owed - centsToAttos(await sumStartedFees(pool, owner)))
  }

  return { pay }
}
