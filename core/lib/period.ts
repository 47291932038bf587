import { addMonths } from './time.ts'

export type BillingCycle = 'daily' | 'weekly' | 'monthly'

/** Half-open: `start` belongs to it, `end` to the next (decision 36). */
export interface Period {
  readonly start: Date
  readonly end: Date
}

const dayMs = 86_400_000

/**
 * The period of a subscription that contains `at`, counted from its anchor so that no month drifts: an anchor on
 * the 31st has the last day of shorter months. An instant before the anchor belongs to the first period.
 */
export function periodAt(anchor: Date, cycle: BillingCycle, at: Date): Period {
  if (cycle !== 'monthly') return fixedPeriod(anchor, cycle === 'daily' ? dayMs : 7 * dayMs, at)
  const years = at.getUTCFullYear() - anchor.getUTCFullYear()
  let index = Math.max(0, years * 12 + at.getUTCMonth() - anchor.getUTCMonth())
  if (index > 0 && addMonths(anchor, index) > at) index -= 1
  return { start: addMonths(anchor, index), end: addMonths(anchor, index + 1) }
}

function fixedPeriod(anchor: Date, lengthMs: number, at: Date): Period {
  const index = Math.max(0, Math.floor((at.getTime() - anchor.getTime()) / lengthMs))
  const start = anchor.getTime() + index * lengthMs
  return { start: new Date(start), end: new Date(start + lengthMs) }
}
