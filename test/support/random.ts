export interface Random {
  /** A whole number from 0 to `bound` - 1. */
  below(bound: number): number
  chance(probability: number): boolean
  /** `digits` hexadecimal digits, at most 8. */
  hex(digits: number): string
  uuid(): string
  pick<T>(of: readonly T[]): T
}

/** Returns a generator that yields the same numbers for the same seed (sfc32). */
export function createRandom(seed: number): Random {
  let [a, b, c, count] = [0x9e3779b9, 0x243f6a88, seed >>> 0, 1]

  function next(): number {
    const sum = (a + b + count) | 0
    count = (count + 1) | 0
    a = b ^ (b >>> 9)
    b = (c + (c << 3)) | 0
    c = (((c << 21) | (c >>> 11)) + sum) | 0
    return sum >>> 0
  }
  for (let warm = 0; warm < 15; warm++) next()

  const below = (bound: number): number => Math.floor((next() / 2 ** 32) * bound)
  const hex = (digits: number): string => next().toString(16).padStart(8, '0').slice(0, digits)

  function pick<T>(of: readonly T[]): T {
    const item = of[below(of.length)]
    if (item === undefined) throw new Error('there is nothing to pick from')
    return item
  }

  return {
    below,
    hex,
    pick,
    chance: (probability) => next() < probability * 2 ** 32,
    uuid: () => `${hex(8)}-${hex(4)}-4${hex(3)}-a${hex(3)}-${hex(8)}${hex(4)}`,
  }
}
