/** Returns `; did you mean …?` with the name closest to `word`, or "" if no name is close. */
export function didYouMean(word: string, names: readonly string[], prefix = ''): string {
  const name = nearest(word, names)
  return name === undefined ? '' : `; did you mean ${prefix}${name}?`
}

/** The name with the fewest edits from `word`: at most two, and at most a third of its letters. */
export function nearest(word: string, names: readonly string[]): string | undefined {
  const budget = Math.min(2, Math.floor(word.length / 3))
  let best: string | undefined
  let bestEdits = budget + 1
  for (const name of names) {
    if (Math.abs(name.length - word.length) >= bestEdits) continue
    const edits = editsBetween(word, name)
    if (edits < bestEdits) [best, bestEdits] = [name, edits]
  }
  return best
}

/**
 * Number of insertions, deletions, replacements and swaps of neighbours that turn `a` into `b`
 * (optimal string alignment).
 */
export function editsBetween(a: string, b: string): number {
  let older: number[] = []
  let last = Array.from({ length: b.length + 1 }, (_, column) => column)
  for (let i = 1; i <= a.length; i++) {
    const row = [i]
    for (let j = 1; j <= b.length; j++) {
      const same = a[i - 1] === b[j - 1] ? 0 : 1
      const swapped = i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1]
      row.push(
        Math.min(
          cell(last, j) + 1,
          cell(row, j - 1) + 1,
          cell(last, j - 1) + same,
          swapped ? cell(older, j - 2) + 1 : Infinity,
        ),
      )
    }
    ;[older, last] = [last, row]
  }
  return cell(last, b.length)
}

const cell = (row: readonly number[], column: number): number => row[column] ?? Infinity
