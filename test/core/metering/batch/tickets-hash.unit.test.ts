import { randomUUID } from 'node:crypto'
import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { createRowBuffer } from '../../../../core/lib/copy-sql.ts'
import { ethRate, usdAttos, wei } from '../../../../core/lib/money.ts'
import { createBatchParser, digestOfBytes } from '../../../../core/metering/batch/parsed-batch.ts'
import {
  type HashedSale,
  hashByUser,
  hashTickets,
} from '../../../../core/metering/batch/tickets-hash.ts'
import { byKey } from '../../../../core/metering/batch/parsed-batch.ts'
import { networkTariff } from '../../../../core/metering/batch/tariff.ts'
import { noLimits } from '../../../../core/metering/events/parse.ts'
import { appId, userId } from '../../../../core/shared/ids.ts'
import { envelope } from '../harness.ts'

const sample = fc.record({
  user: fc.nat(3),
  fee: fc.oneof(fc.bigInt(0n, 2n ** 53n + 1n), fc.bigInt(0n, 10n ** 27n)),
  ms: fc.integer({ min: Date.UTC(2021, 0, 1), max: Date.UTC(2030, 0, 1) }),
  rate: fc.constantFrom(null, 1n, 3000n * 10n ** 18n, 9_007_199_254_740_993n),
  termsId: fc.constantFrom(null, 1n, 2n ** 52n),
  markup: fc.constantFrom(0n, 1n, 2n ** 53n + 1n),
  platformFee: fc.constantFrom(0n, 1n, 2n ** 60n + 1n),
})
type Sample = ReturnType<typeof sample.generate>['value']
const observedAt = new Date('2026-03-10T11:59:58.765Z')
const app = appId('00000000-0000-4000-8000-000000000001')
const userOf = (user: number) => userId(`00000000-0000-4000-8000-00000000000${user}`)

function hashesOf(samples: readonly (Sample & { id: string })[]) {
  const at = new Date()
  const parser = createBatchParser(createRowBuffer(), { at, limits: noLimits }, samples.length)
  samples.forEach(({ id, user, fee, ms }, i) =>
    parser.add(
      i,
      envelope(
        {
          auth_id: `app:${user}`,
          computed_fee: String(fee),
          current_time: new Date(ms).toISOString(),
        },
        { id },
      ),
    ),
  )
  const batch = parser.read()
  for (const payer of batch.payers.values())
    payer.subject = { appId: app, userId: userOf(Number(payer.externalUserId)) }
  const places = Uint32Array.from(samples.keys())
  const prices = samples.map(({ rate, markup, platformFee }) =>
    rate === null
      ? null
      : {
          rateId: rate,
          rate: { usdAttosPerEth: ethRate(rate), observedAt },
          cost: usdAttos(0n),
          retail: usdAttos(markup),
          platformFee: usdAttos(platformFee),
          platformWei: wei(0n),
        },
  )
  const sales = samples.map(({ termsId }) => ({ termsId, tariff: networkTariff }))
  return hashByUser({ batch, places, prices, sales, keyOrder: byKey(batch.tickets, places) })
}

describe('hash of tickets', () => {
  it('equals the plain version for each user', () => {
    fc.assert(
      fc.property(fc.array(sample, { minLength: 1, maxLength: 30 }), (drawn) => {
        const samples = drawn.map((one) => ({ ...one, id: randomUUID() }))
        const hashes = hashesOf(samples)
        const priced = samples.filter(({ rate }) => rate !== null)
        const plain = Map.groupBy(priced, ({ user }) => userOf(user))
        expect([...hashes.keys()].sort()).toEqual([...plain.keys()].sort())
        for (const [user, ones] of plain)
          expect(hashes.get(user)).toBe(hashTickets(ones.map(hashed)))
      }),
    )
  })

  const saleOf = ({ termsId, markup, platformFee }: Sample): HashedSale | null =>
    termsId === null && markup === 0n && platformFee === 0n
      ? null
      : { termsId, retail: usdAttos(markup), platformFee: usdAttos(platformFee) }

  const hashed = ({ id, user, fee, ms, rate, ...sale }: Sample & { id: string }) => ({
    sale: saleOf({ user, fee, ms, rate, ...sale }),
    key: Buffer.from(id.replaceAll('-', ''), 'hex'),
    digest: Buffer.from(
      digestOfBytes(
        envelope(
          {
            auth_id: `app:${user}`,
            computed_fee: String(fee),
            current_time: new Date(ms).toISOString(),
          },
          { id },
        ),
      ),
      'latin1',
    ),
    signedAtMicros: ms * 1000,
    fee: wei(fee),
    rate: { usdAttosPerEth: ethRate(rate ?? 0n), observedAt },
  })
})
