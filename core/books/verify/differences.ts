import type { Check, Columns, Difference, DifferentRow } from '../types.ts'

/** Lists the different columns of a row, each with the amount of the difference. */
export function toDifferences(check: Check, row: DifferentRow): Difference[] {
  const columns = new Set([...Object.keys(row.stored ?? {}), ...Object.keys(row.expected ?? {})])
  const { userId, externalUserId } = row
  return [...columns].flatMap((column) => {
    const [stored, expected] = [valueOf(row.stored, column), valueOf(row.expected, column)]
    if (stored === expected) return []
    return [
      {
        check,
        userId,
        externalUserId,
        row: nameOf(row),
        column,
        stored,
        expected,
        by: by(stored, expected),
      },
    ]
  })
}

const valueOf = (columns: Columns | null, column: string): string | null =>
  columns?.[column] ?? null

const nameOf = ({ key }: DifferentRow): string =>
  Object.entries(key)
    .map(([name, value]) => `${name}=${value}`)
    .join(' ')

const decimal = /^(-?)(\d+)(?:\.(\d+))?$/
const places = 30

/** stored - expected, with zero for a missing row. Null when either is not a number. */
export function by(stored: string | null, expected: string | null): string | null {
  const [a, b] = [scaled(stored ?? '0'), scaled(expected ?? '0')]
  return a === null || b === null ? null : plain(a - b)
}

function scaled(text: string): bigint | null {
  const match = decimal.exec(text)
  if (!match) return null
  const [, sign, whole = '', fraction = ''] = match
  if (fraction.length > places) return null
  const value = BigInt(whole + fraction.padEnd(places, '0'))
  return sign === '-' ? -value : value
}

function plain(value: bigint): string {
  const digits = (value < 0n ? -value : value).toString().padStart(places + 1, '0')
  const fraction = digits.slice(-places).replace(/0+$/, '')
  return `${value < 0n ? '-' : '+'}${digits.slice(0, -places)}${fraction ? `.${fraction}` : ''}`
}
