/** Sets of sequence numbers as ranges, the way Postgres writes its multiranges. */

/** `{[0,3),[5,6)}` of numbers in any order; one that occurs twice is in it once. */
export function multirange(numbers: readonly bigint[]): string {
  const sorted = numbers.toSorted((a, b) => (a < b ? -1 : a > b ? 1 : 0))
  const ranges: string[] = []
  for (let i = 0; i < sorted.length;) {
    const start = sorted[i] ?? 0n
    let end = start + 1n
    for (i += 1; i < sorted.length && (sorted[i] ?? 0n) <= end; i++) {
      if (sorted[i] === end) end += 1n
    }
    ranges.push(`[${start},${end})`)
  }
  return `{${ranges.join(',')}}`
}

/** The ranges of a multirange as Postgres prints it: from, to (not included). */
export const rangesOf = (text: string): [bigint, bigint][] =>
  [...text.matchAll(/\[(\d+),(\d+)\)/g)].map(([, from = '', to = '']) => [BigInt(from), BigInt(to)])
