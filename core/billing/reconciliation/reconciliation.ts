import { DomainError } from '../../../proto/errors.ts'
import type { Pool } from '../../lib/sql.ts'
import { type Now, addSeconds, parseUtcDay } from '../../lib/time.ts'
import type { Cursor } from '../../shared/cursor.ts'
import type { PaymentProcessor, ProcessorAccount } from '../processor/port.ts'
import type { Comparison } from './comparison.ts'
import { type StoredDifference, listDifferences } from './difference-store.ts'
import { type MovementSum, type Window, sumMovements } from './movement-store.ts'
import * as store from './progress-store.ts'
import type { Place, Progress } from './progress-store.ts'

export interface ReconciliationDeps {
  readonly pool: Pool
  readonly processor: Pick<PaymentProcessor, 'kind' | 'planes'>
  readonly comparison: Comparison
  readonly now: Now
}

export interface ReconcileRequest {
  /** Null compares from where the last comparison ended. */
  readonly range: Window | null
  /** Whether movements of the last hour count. Then the comparison is not remembered. */
  readonly isRecent: boolean
}

/** The result of comparing an account. */
export interface ReconciledPlace {
  readonly place: Place
  readonly window: Window
  readonly sums: readonly MovementSum[]
  readonly newDifferences: readonly StoredDifference[]
  /** Why the processor's movements could not be read; null if they were. */
  readonly failure: string | null
}

/** Younger movements are not compared: their events may still be on the way. */
const settledSeconds = 3_600
/** A connected account follows the platform's own, which gets the fees of its payments. */
const feeSeconds = 300
const daySeconds = 86_400
const claimSeconds = 600
const daysMax = 92
const placesAtOnce = 100
const differencesAtOnce = 200

/**
 * Compares the processor's movements with our payments, account by account (docs/payments.md).
 * Progress is stored after each page, so an interrupted comparison continues.
 */
export function createReconciliation({ pool, processor, comparison, now }: ReconciliationDeps) {
  /** Adds accounts that were connected since. */
  const insertPlaces = (): Promise<void> =>
    store.insertPlaces(pool, { processor: processor.kind, planes: processor.planes, at: now() })

  /**
   * Compares an account from where it was compared last to an hour ago, a day at a time. Reads at
   * most `pagesMax` pages, and ends early when `signal` aborts. Returns whether it is done.
   */
  async function advance(
    progress: Progress,
    pagesMax: number,
    signal?: AbortSignal,
  ): Promise<{ readonly isDone: boolean; readonly newDifferences: readonly StoredDifference[] }> {
    const newDifferences = await comparison.compareOpen(progress, signal)
    const end = await findEnd(progress)
    const pages = { left: pagesMax, signal }
    let current = progress
    while (current.windowTo !== null || current.through < end) {
      const to = current.windowTo ?? earlier(addSeconds(current.through, daySeconds), end)
      if (!(await recordWindow(current, to, pages))) return { isDone: false, newDifferences }
      newDifferences.push(
        ...(await comparison.compareWindow(current, { from: current.through, to }, signal)),
      )
      // Payments of the window may be left.
      if (signal?.aborted) return { isDone: false, newDifferences }
      await store.saveThrough(pool, current, to)
      current = { ...current, through: to, windowTo: null, pageAfter: null }
    }
    return { isDone: true, newDifferences }
  }

  /** Records the pages of a window that are left. Returns false if `pages` ended before. */
  async function recordWindow(
    { pageAfter, ...place }: Progress,
    to: Date,
    pages: { left: number; readonly signal: AbortSignal | undefined },
  ): Promise<boolean> {
    const window = { from: place.through, to }
    for (let after = pageAfter; pages.left > 0 && !pages.signal?.aborted; pages.left--) {
      after = await comparison.recordPage(place, window, after)
      if (after === null) return true
      const dueAt = addSeconds(now(), claimSeconds)
      await store.savePage(pool, place, { windowTo: to, pageAfter: after, dueAt })
    }
    return false
  }

  /** Returns the time before which everything of an account is settled. */
  async function findEnd(place: Place): Promise<Date> {
    const settled = addSeconds(now(), -settledSeconds)
    if (place.at.account === null) return settled
    const platform = await store.platformThrough(pool, place)
    return platform === null ? settled : earlier(settled, addSeconds(platform, -feeSeconds))
  }

  /**
   * Compares every account, the platform's own first: since the last comparison, or a range of
   * days again; `isRecent` includes the last hour. A failing account does not stop the others. An
   * account that was not compared to its end when `signal` aborts is not returned.
   */
  async function* reconcile(
    { range, isRecent }: ReconcileRequest,
    signal: AbortSignal,
  ): AsyncGenerator<ReconciledPlace> {
    await insertPlaces()
    for (let after: ProcessorAccount | null = null; ;) {
      const page: Progress[] = await store.listPlaces(pool, processor, {
        after,
        limit: placesAtOnce,
      })
      for (const place of page) {
        if (signal.aborted) return
        const reconciled = await reconcilePlace(place, { range, isRecent }, signal)
        if (signal.aborted) return
        yield reconciled
      }
      after = page.at(-1)?.at ?? null
      if (page.length < placesAtOnce) return
    }
  }

  async function reconcilePlace(
    place: Progress,
    { range, isRecent }: ReconcileRequest,
    signal: AbortSignal,
  ): Promise<ReconciledPlace> {
    const end = isRecent ? now() : await findEnd(place)
    const window = range
      ? { ...range, to: earlier(range.to, end) }
      : { from: place.through, to: end }
    try {
      const newDifferences =
        range || isRecent
          ? await repeat(place, window, signal)
          : (await advance(place, Number.POSITIVE_INFINITY, signal)).newDifferences
      const sums = await sumMovements(pool, place, window)
      return { place, window, sums, newDifferences, failure: null }
    } catch (error) {
      if (!isProcessorError(error)) throw error
      return { place, window, sums: [], newDifferences: [], failure: error.message }
    }
  }

  async function repeat(
    place: Place,
    window: Window,
    signal: AbortSignal,
  ): Promise<StoredDifference[]> {
    if (window.from >= window.to) return []
    let after: string | null = null
    do after = await comparison.recordPage(place, window, after)
    while (after !== null && !signal.aborted)
    return signal.aborted ? [] : comparison.compareWindow(place, window, signal)
  }

  /** Lists all open differences, newest first. */
  async function* openDifferences(): AsyncGenerator<StoredDifference> {
    for (let after: Cursor | null = null; ;) {
      const limit = differencesAtOnce
      const page: StoredDifference[] = await listDifferences(pool, { open: true, after, limit })
      yield* page
      const last = page.at(-1)
      if (last === undefined || page.length < limit) return
      after = { createdAt: last.foundAt, id: last.id }
    }
  }

  return { insertPlaces, advance, reconcile, openDifferences }
}

export type Reconciliation = ReturnType<typeof createReconciliation>

const earlier = (one: Date, other: Date): Date => (one < other ? one : other)

const processorReasons: ReadonlySet<string> = new Set([
  'PROCESSOR_UNREACHABLE',
  'PROCESSOR_REFUSED',
  'PROCESSOR_NOT_CONFIGURED',
])

export const isProcessorError = (error: unknown): error is DomainError =>
  error instanceof DomainError && processorReasons.has(error.reason)

/** Parses a range of days, both included; null without one. Throws REQUEST_INVALID. */
export function parseDays({
  from,
  to,
}: {
  readonly from?: string | undefined
  readonly to?: string | undefined
}): Window | null {
  if (from === undefined && to === undefined) return null
  const [first, last] = [parseUtcDay(from ?? to ?? ''), parseUtcDay(to ?? from ?? '')]
  if (first === null || last === null || first > last)
    throw new DomainError('REQUEST_INVALID', 'from and to are days YYYY-MM-DD, from not after to')
  if (last.getTime() - first.getTime() >= daysMax * daySeconds * 1_000)
    throw new DomainError('REQUEST_INVALID', `a range has at most ${daysMax} days`)
  return { from: first, to: addSeconds(last, daySeconds) }
}
