/** A set of whole numbers as separate ranges in ascending order; both ends belong to a range. */
export type NumberRanges = readonly NumberRange[]

export interface NumberRange {
  readonly from: bigint
  readonly to: bigint
}

export const countNumbers = (ranges: NumberRanges): number =>
  ranges.reduce((sum, { from, to }) => sum + Number(to - from) + 1, 0)

export const includesNumber = (ranges: NumberRanges, number: bigint): boolean =>
  ranges.some(({ from, to }) => from <= number && number <= to)

export const removeNumbers = (ranges: NumberRanges, numbers: readonly bigint[]): NumberRanges =>
  numbers.reduce(removeNumber, ranges)

const removeNumber = (ranges: NumberRanges, number: bigint): NumberRanges =>
  ranges.flatMap(({ from, to }) =>
    number < from || number > to
      ? [{ from, to }]
      : [
          { from, to: number - 1n },
          { from: number + 1n, to },
        ].filter((range) => range.from <= range.to),
  )

/** Formats ranges as a PostgreSQL multirange: `{[0,3),[5,6)}`. */
export const toMultirange = (ranges: NumberRanges): string =>
  `{${ranges.map(({ from, to }) => `[${from},${to + 1n})`).join(',')}}`

export const fromMultirange = (text: string): NumberRanges =>
  [...text.matchAll(/\[(-?\d+),(-?\d+)\)/g)].map(([, from = '', end = '']) => ({
    from: BigInt(from),
    to: BigInt(end) - 1n,
  }))
