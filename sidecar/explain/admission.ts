/** Keys with fewer records than this in a second may use the reserved share. */
const seldomMax = 2
/** Share of the limit for all keys; the rest is for rare ones. */
const sharedPart = 0.8

/**
 * Limits the records per second. A fifth is reserved for rare decisions, by code and app, so that a
 * flood of one kind does not hide the others.
 */
export function createAdmission({ perSecond }: { readonly perSecond: number }) {
  const shared = Math.ceil(perSecond * sharedPart)
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
    if (total >= perSecond) return false
    const key = `${code} ${clientId}`
    const count = counts.get(key) ?? 0
    if (total >= shared && count >= seldomMax) return false
    counts.set(key, count + 1)
    total++
    return true
  }

  return { admit }
}
