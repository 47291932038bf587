import { usdAttos } from '../../lib/money.ts'
import type { Total } from '../../metering/ingest/charges.ts'
import type { PriorCall, SessionChange, SessionTotals } from './port.ts'

/** The sum of one session's changes, with the first and the last number of their calls. */
export interface SessionSum extends Omit<SessionChange, 'calls'> {
  /** Null in a settlement, which has no calls. */
  readonly start: PriorCall | null
  readonly top: PriorCall | null
  /** True if several processes served it at the same time. */
  readonly isShared: boolean
}

const zero: Total = { count: 0, amount: usdAttos(0n) }

/** Returns totals that are zero except for those in `some`. */
export const totals = (some: Partial<SessionTotals>): SessionTotals => ({
  authorised: zero,
  ticketed: zero,
  lost: zero,
  charged: zero,
  released: zero,
  late: zero,
  ...some,
})

const plus = (a: Total, b: Total): Total => ({
  count: a.count + b.count,
  amount: usdAttos(a.amount + b.amount),
})

/** Adds up changes by session, because a statement can change a row only once. */
export function sumSessions(changes: readonly SessionChange[]): SessionSum[] {
  const bySession = Map.groupBy(
    changes,
    ({ appId, userId, sessionId }) => `${appId} ${userId} ${sessionId}`,
  )
  return [...bySession.values()].flatMap(sumOf)
}

function sumOf(changes: readonly SessionChange[]): SessionSum[] {
  const [first, ...others] = changes
  if (!first) return []
  const calls = changes.flatMap((change) => change.calls)
  const { calls: _, ...rest } = first
  const instances = new Set(changes.flatMap(({ instance }) => instance ?? []))
  return [
    {
      ...rest,
      instance: [...instances][0] ?? null,
      isShared: instances.size > 1,
      at: others.reduce((latest, { at }) => (at > latest ? at : latest), first.at),
      added: others.reduce((sum, { added }) => addTotals(sum, added), first.added),
      start: firstOf(calls, (a, b) => a.sequence < b.sequence),
      top: firstOf(calls, (a, b) => a.sequence > b.sequence),
    },
  ]
}

const addTotals = (a: SessionTotals, b: SessionTotals): SessionTotals => ({
  authorised: plus(a.authorised, b.authorised),
  ticketed: plus(a.ticketed, b.ticketed),
  lost: plus(a.lost, b.lost),
  charged: plus(a.charged, b.charged),
  released: plus(a.released, b.released),
  late: plus(a.late, b.late),
})

/**
 * Returns the call whose number goes before all others, or the earliest of several with that
 * number.
 */
function firstOf(
  calls: readonly PriorCall[],
  goesBefore: (a: PriorCall, b: PriorCall) => boolean,
): PriorCall | null {
  return calls.reduce<PriorCall | null>(
    (best, call) =>
      best === null ||
      goesBefore(call, best) ||
      (call.sequence === best.sequence && isEarlier(call, best))
        ? call
        : best,
    null,
  )
}

/** Whether call `a` was before call `b`, by the signer's clock. */
export const isEarlier = (a: PriorCall, b: PriorCall): boolean =>
  a.seconds < b.seconds || (a.seconds === b.seconds && a.nanos < b.nanos)
