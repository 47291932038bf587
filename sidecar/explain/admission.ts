import { type Reloadable, currentValue } from '../../core/lib/settings/reloadable.ts'

/** Keys with fewer records than this in a second may use the reserved share. */
const rareMax = 2
/** Share of the limit for all keys; the rest is for rare ones. */
const sharedPart = 0.8

/**
 * Limits the records per second. A fifth is reserved for rare decisions, by code and app, so that a
 * flood of one kind does not hide the others.
 */
export function createAdmission({ perSecond }: { readonly perSecond: Reloadable<number> }) {
  const counts = new Map<string, number>()
  let second = 0
  let total = 0

  /** Returns whether to record a decision at `ms` (Unix milliseconds), and counts it if so. */
  function admit(code: string, clientId: string, ms: number): boolean {
    const now = Math.floor(ms / 1000)
    if (now !== second) {
      second = now
      total = 0
      counts.clear()
    }
    const max = currentValue(perSecond)
    if (total >= max) return false
    const key = `${code} ${clientId}`
    const count = counts.get(key) ?? 0
    if (total >= Math.ceil(max * sharedPart) && count >= rareMax) return false
    counts.set(key, count + 1)
    total++
    return true
  }

  return { admit }
}
