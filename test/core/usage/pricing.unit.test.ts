import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { ethRate, usdAttos, wei } from '../../../core/lib/money.ts'
import { networkTariff, toPrices } from '../../../core/metering/batch/tariff.ts'
import { charged, toRetailRate } from '../../../core/usage/pricing.ts'
import type { Sums, UsageRow } from '../../../core/usage/types.ts'

const rate = ethRate(3000n * 10n ** 18n)
const rowOf = (fee: bigint, more: Partial<Sums> = {}): UsageRow => ({
  rest: false,
  userId: null,
  externalUserId: null,
  pipeline: null,
  modelId: null,
  manifestId: null,
  sessionId: null,
  day: null,
  hour: null,
  requests: 1n,
  unpriced: 0n,
  fee: wei(fee),
  ...toPrices(wei(fee), rate, networkTariff),
  ...more,
  billableSecs: '0',
  firstAt: null,
  lastAt: null,
})

describe("owner's charge", () => {
  it.each([
    [
      8_420_000_000_000_000n,
      1_000n,
      {
        micros: 25_260_000n,
        platformWei: 842_000_000_000_000n,
        ownerWei: 9_262_000_000_000_000n,
        ownerMicros: 27_786_000n,
      },
    ],
    [
      128_750_000_000_000_000n,
      1_000n,
      { micros: 386_250_000n, ownerWei: 141_625_000_000_000_000n, ownerMicros: 424_875_000n },
    ],
    [1n, 1_500n, { platformWei: 0n, ownerWei: 1n }],
    [7n, 1_500n, { platformWei: 1n, ownerWei: 8n }],
    [
      9_007_199_254_740_993n,
      0n,
      { ownerWei: 9_007_199_254_740_993n, platformWei: 0n, platformMicros: 0n },
    ],
  ])(
    'is computed for %s wei with a cut of %s hundredths of a percent',
    (fee, cutBasisPoints, expected) => {
      const prices = toPrices(wei(fee), rate, { ...networkTariff, cutBasisPoints })
      expect(
        charged([rowOf(fee, prices)], { cutBasisPoints, includeRetail: false }).totals,
      ).toMatchObject(expected)
    },
  )

  it('is the network fee without a cut, and reports the missing cut', () => {
    expect(
      charged([rowOf(10n ** 15n)], { cutBasisPoints: null, includeRetail: true }).totals,
    ).toMatchObject({
      micros: 3_000_000n,
      ownerMicros: 3_000_000n,
      platformMicros: 0n,
      platformWei: 0n,
      cutBasisPoints: null,
      billableMicros: 3_000_000n,
    })
  })

  it('and every other figure adds up from its rows, to the micro', () => {
    const amount = fc.bigInt(0n, 10n ** 20n)
    const rows = fc.array(fc.tuple(amount, amount, amount, amount), { maxLength: 30 })
    expect(() =>
      fc.assert(
        fc.property(rows, fc.bigInt(0n, 10_000n), (given, cutBasisPoints) => {
          const { rows: shown, totals } = charged(
            given.map(([fee, cost, retail, platformFee]) =>
              rowOf(fee, {
                cost: usdAttos(cost),
                retail: usdAttos(retail),
                platformFee: usdAttos(platformFee),
                platformWei: wei(platformFee / 3n),
              }),
            ),
            { cutBasisPoints, includeRetail: true },
          )
          const sum = (value: (row: (typeof shown)[number]) => bigint) =>
            shown.reduce((all, row) => all + value(row), 0n)
          return (
            sum((row) => row.micros) === totals.micros &&
            sum((row) => row.ownerMicros) === totals.ownerMicros &&
            sum((row) => row.billableMicros ?? 0n) === totals.billableMicros &&
            totals.micros + totals.platformMicros === totals.ownerMicros &&
            totals.ownerWei === totals.fee + totals.platformWei &&
            totals.platformWei === sum((row) => row.platformWei) &&
            totals.micros === (totals.cost + 999_999_999_999n) / 1_000_000_000_000n
          )
        }),
      ),
    ).not.toThrow()
  })

  it('returns the rate that users paid, to nine places', () => {
    const rate = (cost: bigint, retail: bigint) =>
      toRetailRate({ cost: usdAttos(cost), retail: usdAttos(retail) })
    expect([rate(0n, 0n), rate(7n, 7n), rate(1_000_001n, 1_500_001n), rate(9n, 0n)]).toEqual([
      '0.000001',
      '0.000001',
      '0.0000015',
      '0',
    ])
  })

  it('rounds a thousand tickets of one wei up once', () => {
    expect(
      charged(
        Array.from({ length: 1_000 }, () => rowOf(1n)),
        { cutBasisPoints: null, includeRetail: false },
      ).totals.micros,
    ).toBe(1n)
  })
})
