/** The middle of the sorted values; the mean of the two middle ones when their number is even. */
export function median(values: readonly number[]): number {
  return quantile(values, 0.5)
}

export interface Spread {
  readonly low: number
  readonly high: number
}

/** The middle half of the values: what is left of a busy machine's outliers. */
export const middleHalf = (values: readonly number[]): Spread => ({
  low: quantile(values, 0.25),
  high: quantile(values, 0.75),
})

/** The value below which that share of the values lies. */
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
 * The middle of the ratios of neighbours. Each round is divided by the one beside it, so that a
 * machine that is busy for some rounds slows both sides of the same ratios.
 */
export function pairedRatio(above: readonly number[], below: readonly number[]): Ratio {
  const ratios = above.map((value, i) => value / (below[i] ?? NaN))
  return { value: median(ratios), spread: middleHalf(ratios) }
}
