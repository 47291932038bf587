export interface Backoff {
  readonly firstMs: number
  readonly lastMs: number
}

/**
 * The pause before the next try, in milliseconds, after so many failures in a row (1 or more). It
 * doubles from `firstMs` to `lastMs`, less up to half of it, so that many that failed at the same
 * moment do not come back at the same moment.
 */
export function backoffMs(failures: number, { firstMs, lastMs }: Backoff): number {
  const doubled = firstMs * 2 ** Math.min(Math.max(failures, 1) - 1, 30)
  return Math.min(doubled, lastMs) * (1 - Math.random() / 2)
}
