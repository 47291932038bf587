import type { Log } from '../../core/lib/log.ts'

/** In a minute, of one kind. */
const sampleMax = 20
const periodMs = 60_000

/**
 * Bounds how often lines of one kind are logged: the first of each minute are, and the rest becomes one line with their
 * number when the minute is over. A stranger decides how many requests there are, and must not decide how much disk they
 * take. Kinds are route templates and statuses, so that there are few.
 */
export function createLogSamples(log: Log) {
  const counts = new Map<string, { readonly fields: object; count: number }>()
  let timer: NodeJS.Timeout | undefined

  /** Whether this line is one of the first of its kind. */
  function isSample(fields: Readonly<Record<string, string | number | undefined>>): boolean {
    timer ??= setTimeout(summarize, periodMs).unref()
    const kind = Object.values(fields).join(' ')
    const entry = counts.get(kind) ?? { fields, count: 0 }
    counts.set(kind, entry)
    return ++entry.count <= sampleMax
  }

  /** Logs how many lines were left out. Also for the end of the process. */
  function summarize(): void {
    clearTimeout(timer)
    timer = undefined
    for (const { fields, count } of counts.values())
      if (count > sampleMax)
        log.info({ ...fields, count: count - sampleMax }, 'more requests like this, not logged')
    counts.clear()
  }

  return { isSample, summarize }
}
