import { later } from '../../shared/clocks/clocks.ts'

/** Days of a test app, which end by its clock (docs/test-clock.md). Pure. */

/**
 * A move of the app's clock. `snapshot` is the database snapshot before the move; null for moves
 * made before snapshots were stored.
 */
export interface CutMove {
  readonly since: Date
  readonly aheadMs: number
  readonly snapshot: string | null
}

export interface TestCut {
  /** `YYYY-MM-DD`. */
  readonly day: string
  /** In real time. */
  readonly cutAt: Date
  /** Null means the current snapshot. */
  readonly snapshot: string | null
}

const dayMs = 86_400_000
const dayOf = (at: Date): string => at.toISOString().slice(0, 10)

/**
 * Returns the due cuts of an app. A move into another day ends the day before the move; otherwise a
 * day ends at midnight by the app's clock.
 */
export function cutsDue(
  last: Pick<TestCut, 'day' | 'cutAt'>,
  moves: readonly CutMove[],
  now: Date,
): TestCut[] {
  const cuts: TestCut[] = []
  let newest = last
  const add = (cut: TestCut): void => {
    if (cut.day <= newest.day) return
    cuts.push(cut)
    newest = cut
  }
  for (const [i, { since, aheadMs, snapshot }] of moves.entries()) {
    const day = dayOf(later(since, moves[i - 1]?.aheadMs ?? 0))
    const isOver = dayOf(later(since, aheadMs)) > day
    if (isOver && since > newest.cutAt && snapshot !== null) add({ day, cutAt: since, snapshot })
  }
  const timeAt = (at: Date): Date =>
    later(at, moves.findLast(({ since }) => since <= at)?.aheadMs ?? 0)
  if (dayOf(timeAt(now)) > dayOf(timeAt(newest.cutAt)))
    add({ day: dayOf(later(timeAt(now), -dayMs)), cutAt: now, snapshot: null })
  return cuts
}
