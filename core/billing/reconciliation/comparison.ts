import { uuidV7 } from '../../lib/crypto.ts'
import { type Db, tx } from '../../lib/sql.ts'
import type { Now } from '../../lib/time.ts'
import { isUuid } from '../../shared/ids.ts'
import { parseReference } from '../payments/checkouts.ts'
import type { PaymentProcessor } from '../processor/port.ts'
import { type ConfirmingDeps, createConfirming } from './confirming.ts'
import * as differenceStore from './difference-store.ts'
import type { StoredDifference } from './difference-store.ts'
import { type Difference, findDifferences } from './differences.ts'
import * as store from './movement-store.ts'
import type { Case, Window } from './movement-store.ts'
import type { Place } from './progress-store.ts'

export interface ComparisonDeps extends ConfirmingDeps {
  readonly processor: ConfirmingDeps['processor'] & Pick<PaymentProcessor, 'listMovements'>
  readonly now: Now
}

const casesAtOnce = 200

/** Records movements of the processor and compares them with payments and returns of ours. */
export function createComparison(deps: ComparisonDeps) {
  const { pool, processor, log, now } = deps
  const confirm = createConfirming(deps)

  /** Records the page of movements after `after`. Returns the last one; null on the last page. */
  async function recordPage(
    place: Place,
    { from, to }: Window,
    after: string | null,
  ): Promise<string | null> {
    const page = await processor.listMovements(place.at, { from, to, after })
    await store.insertMovements(
      pool,
      place,
      page.movements.map((movement) => ({
        ...movement,
        referenceApp: appOf(movement.reference),
      })),
    )
    return page.after
  }

  /**
   * Compares the payments with movements in a window. Returns the new differences. Ends early, with
   * payments left, when `signal` aborts.
   */
  const compareWindow = (
    place: Place,
    window: Window,
    signal?: AbortSignal,
  ): Promise<StoredDifference[]> =>
    comparePages(place, signal, (after) =>
      store.listPayments(pool, place, { ...window, after, limit: casesAtOnce }),
    )

  /** Compares payments with open differences again, so that what agrees by now is resolved. */
  const compareOpen = (place: Place, signal?: AbortSignal): Promise<StoredDifference[]> =>
    comparePages(place, signal, (after) =>
      differenceStore.listOpenPayments(pool, place, { after, limit: casesAtOnce }),
    )

  async function comparePages(
    place: Place,
    signal: AbortSignal | undefined,
    listIds: (after: string) => Promise<string[]>,
  ): Promise<StoredDifference[]> {
    const newDifferences: StoredDifference[] = []
    for (let ids = await listIds(''); ids.length > 0; ids = await listIds(ids.at(-1) ?? '')) {
      newDifferences.push(...(await compare(place, ids)))
      if (ids.length < casesAtOnce || signal?.aborted) break
    }
    return newDifferences
  }

  async function compare(place: Place, ids: readonly string[]): Promise<StoredDifference[]> {
    const cases = await store.readCases(pool, place, ids)
    const differing: { readonly item: Case; readonly differences: Difference[] }[] = []
    for (const item of cases) {
      const seen = findDifferences(item)
      if (seen.length > 0)
        differing.push({ item, differences: findDifferences(await confirm(place, item, seen)) })
    }
    const byId = new Map(differing.map(({ item, differences }) => [item.id, differences]))
    const stored = differing.flatMap(({ item, differences }) =>
      differences.map((difference) => toStored(place, item, { ...difference, foundAt: now() })),
    )
    return tx(pool, async (db) => {
      await resolveOthers(db, await differenceStore.findOpen(db, place, ids), byId)
      return insertAll(db, stored)
    })
  }

  /** Resolves open differences that are gone, or have other figures now. */
  async function resolveOthers(
    db: Db,
    open: readonly StoredDifference[],
    current: ReadonlyMap<string, readonly Difference[]>,
  ): Promise<void> {
    for (const earlier of open) {
      const differences = current.get(earlier.processorPaymentId) ?? []
      const same = differences.find(({ subject }) => subject === earlier.subject)
      if (same && isSame(same, earlier)) continue
      const resolution = same ? 'the figures have changed' : 'both sides agree now'
      await differenceStore.resolve(db, earlier.id, { at: now(), resolution, by: null })
    }
  }

  async function insertAll(
    db: Db,
    stored: readonly StoredDifference[],
  ): Promise<StoredDifference[]> {
    const inserted: StoredDifference[] = []
    for (const difference of stored)
      if (await differenceStore.insertDifference(db, difference)) {
        inserted.push(difference)
        log.error(
          {
            appId: difference.appId,
            account: difference.at.account,
            payment: difference.processorPaymentId,
            subject: difference.subject,
            problem: difference.problem,
            ours: difference.ours?.toString(),
            theirs: difference.theirs?.toString(),
          },
          'the payment processor has another figure',
        )
      }
    return inserted
  }

  return { recordPage, compareWindow, compareOpen }
}

export type Comparison = ReturnType<typeof createComparison>

/** The app that a reference of ours names; null for any other text. */
function appOf(reference: string | null): string | null {
  const app = parseReference(reference)?.appId
  return app !== undefined && isUuid(app) ? app : null
}

function toStored(
  { processor, at, appId }: Place,
  { id, payment }: Case,
  difference: Difference & Pick<StoredDifference, 'foundAt'>,
): StoredDifference {
  return {
    ...difference,
    id: uuidV7(difference.foundAt.getTime()),
    processor,
    at,
    appId: payment?.appId ?? appId,
    processorPaymentId: id,
    paymentId: payment?.id ?? null,
    resolvedAt: null,
    resolution: null,
    resolvedBy: null,
  }
}

const isSame = (one: Difference, other: Difference): boolean =>
  one.problem === other.problem &&
  one.ours === other.ours &&
  one.theirs === other.theirs &&
  one.currency === other.currency
