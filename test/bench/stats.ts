/** Returns the median: the middle value, or the mean of the two middle values. */
export function median(values: readonly number[]): number {
  return quantile(values, 0.5)
}

export interface Spread {
  readonly low: number
  readonly high: number
}

/** The middle half of the values, which excludes outliers of a busy machine. */
export const middleHalf = (values: readonly number[]): Spread => ({
  low: quantile(values, 0.25),
  high: quantile(values, 0.75),
})

/** Returns the value below which `share` of the values lie. */
export function quantile(values: readonly number[], share: number): number {
  const sorted = values.toSorted((a, b) => a - b)
  const place = (sorted.length - 1) * share
  const below = sorted[Math.floor(place)] ?? NaN
  const above = sorted[Math.ceil(place)] ?? NaN
  return below + (above - below) * (place - Math.floor(place))
}

export interface Ratio {
  readonly value: number
  readonly spread: Spread
}

/**
 * Returns the median of the ratios of paired rounds. A machine that is busy for some rounds slows
 * both sides of the same ratios.
 */
export function pairedRatio(above: readonly number[], below: readonly number[]): Ratio {
  const ratios = above.map((value, i) => value / (below[i] ?? NaN))
  return { value: median(ratios), spread: middleHalf(ratios) }
}
