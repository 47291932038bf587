import type { Log } from '../../core/lib/log.ts'

/** Lines per kind and minute. */
const sampleMax = 20
const periodMs = 60_000

/**
 * Limits how often lines of one kind are logged: the first ones of each minute in full, the rest as
 * one line with their count when the minute is over. Strangers control the number of requests and
 * must not control how much disk the log takes. A kind is a route template and a status, so there
 * are few.
 */
export function createLogSamples(log: Log) {
  const counts = new Map<string, { readonly fields: object; count: number }>()
  let timer: NodeJS.Timeout | undefined

  /** Returns true if this line is one of the first of its kind. */
  function isSample(fields: Readonly<Record<string, string | number | undefined>>): boolean {
    timer ??= setTimeout(summarize, periodMs).unref()
    const kind = Object.values(fields).join(' ')
    const entry = counts.get(kind) ?? { fields, count: 0 }
    counts.set(kind, entry)
    return ++entry.count <= sampleMax
  }

  /** Logs how many lines were dropped. Also called when the process ends. */
  function summarize(): void {
    clearTimeout(timer)
    timer = undefined
    for (const { fields, count } of counts.values())
      if (count > sampleMax)
        log.info({ ...fields, count: count - sampleMax }, 'similar requests are not logged')
    counts.clear()
  }

  return { isSample, summarize }
}
