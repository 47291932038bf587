import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { computeSlice } from '../../../../core/balances/escrow/granting/slices.ts'
import { usdAttos } from '../../../../core/lib/money.ts'

const nano = 1_000_000_000n
const dollar = nano * nano
const amount = fc.bigInt({ min: 0n, max: 100n * dollar }).map(usdAttos)
// Bounds are whole nano-dollars.
const bound = amount.map((attos) => usdAttos(attos - (attos % nano)))
const request = fc.record({ free: amount, rest: amount, bound, spending: amount })

describe('computeSlice', () => {
  it('never exceeds what is free, never takes back, and covers the current call', () => {
    fc.assert(
      fc.property(request, fc.integer({ min: 5, max: 300 }), (one, seconds) => {
        const { free, rest } = one
        const slice = computeSlice(one, seconds)
        const quarter = (free + rest) / 4n
        const floor = quarter - (quarter % nano)
        const needed = one.bound > nano ? one.bound : nano
        expect(slice === null).toBe(rest < needed && floor < needed)
        const next = slice ?? rest
        expect(next === rest || (next % nano === 0n && next <= floor)).toBe(true)
        expect(next >= rest && next - rest <= free).toBe(true)
      }),
    )
  })

  it.each([
    ['a first slice for a user without history', [100n, 0n, 0n, 0n], 50_000_000n * nano],
    ['at least the cost of four calls', [100n, 0n, 1n, 0n], 4n * dollar],
    ['the amount that is spent during a lease', [100n, 0n, 0n, 0n, dollar / 10n], 3n * dollar],
    ['at most a quarter of the free amount', [8n, 0n, 2n, 0n], 2n * dollar],
    ['the current slice if the new one would be smaller', [0n, 3n, 1n, 0n], 3n * dollar],
    ['null when a quarter does not cover the call', [8n, 0n, 3n, 0n], null],
  ] as const)('returns %s', (_, [free, rest, bound, __, spending = 0n], expected) => {
    const attos = (dollars: bigint) => usdAttos(dollars * dollar)
    expect(
      computeSlice(
        { free: attos(free), rest: attos(rest), bound: attos(bound), spending: usdAttos(spending) },
        30,
      ),
    ).toBe(expected)
  })
})
