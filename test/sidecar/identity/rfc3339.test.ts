import { describe, expect, it } from 'vitest'
import { readInstant } from '../../../sidecar/identity/rfc3339.ts'

const below = (n: number): number => Math.floor(Math.random() * n)
const pad = (n: number, width: number): string => String(n).padStart(width, '0')

/** Any text of the form, of days and times that there are and that there are not. */
function anyInstant(): string {
  const fraction = below(10) === 0 ? '' : `.${pad(below(1e9), 9).slice(0, 1 + below(9))}`
  const date = `${pad(below(10_000), 4)}-${pad(below(14), 2)}-${pad(below(34), 2)}`
  const time = `${pad(below(26), 2)}:${pad(below(62), 2)}:${pad(below(62), 2)}`
  return `${date}T${time}${fraction}${below(4) === 0 ? '+02:00' : 'Z'}`
}

describe('reading an instant', () => {
  it.each([
    ['2026-09-14T10:15:30.123456789Z', 1_789_380_930_123],
    ['2026-09-14T10:15:30.5Z', 1_789_380_930_500],
    ['2026-09-14T10:15:30Z', 1_789_380_930_000],
    ['2024-02-29T23:59:59.999Z', 1_709_251_199_999],
    ['1970-01-01T00:00:00Z', 0],
    ['0000-01-01T00:00:00Z', -62_167_219_200_000],
    ['2026-09-14T10:15:30.Z', null],
    ['2026-13-01T00:00:00Z', null],
    ['2026-09-14 10:15:30Z', null],
    ['', null],
  ])('takes %s as %s', (text, ms) => {
    expect(readInstant(text)).toBe(ms)
  })

  it('agrees with the library on every text of the form', () => {
    for (let i = 0; i < 50_000; i++) {
      const text = anyInstant()
      const ms = Date.parse(text)
      expect([text, readInstant(text)]).toEqual([text, Number.isNaN(ms) ? null : ms])
    }
  })
})
