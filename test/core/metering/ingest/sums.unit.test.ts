import { randomUUID } from 'node:crypto'
import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { createRowBuffer } from '../../../../core/lib/copy-sql.ts'
import { addDecimal, decimalText, newDecimalSum } from '../../../../core/lib/decimal.ts'
import { ethRate, usdAttos, wei } from '../../../../core/lib/money.ts'
import { createBatchParser } from '../../../../core/metering/batch/parsed-batch.ts'
import { type SignedTicket, usualLimits } from '../../../../core/metering/events/parse.ts'
import type { Sums } from '../../../../core/metering/ingest/hour-store.ts'
import { multirange, toRanges } from '../../../../core/metering/ingest/session-store.ts'
import { createSums } from '../../../../core/metering/ingest/sums.ts'
import { appId, userId } from '../../../../core/shared/ids.ts'

const digits = (max: number) => fc.stringMatching(new RegExp(`^[0-9]{1,${max}}$`))
const decimal = fc
  .tuple(fc.boolean(), digits(12), fc.option(digits(30)))
  .map(
    ([negative, whole, fraction]) =>
      `${negative ? '-' : ''}${whole.replace(/^0+(?=\d)/, '')}${fraction === null ? '' : `.${fraction}`}`,
  )

const scale = 10n ** 30n
const scaled = (text: string): bigint => {
  const [whole = '', fraction = ''] = text.replace('-', '').split('.')
  return (
    (text.startsWith('-') ? -1n : 1n) * (BigInt(whole) * scale + BigInt(fraction.padEnd(30, '0')))
  )
}

describe('sum of decimals', () => {
  it('is exact to thirty places', () => {
    fc.assert(
      fc.property(fc.array(decimal), (texts) => {
        const sum = newDecimalSum()
        for (const text of texts) addDecimal(sum, text)
        expect(scaled(decimalText(sum))).toBe(
          texts.reduce((total, text) => total + scaled(text), 0n),
        )
      }),
    )
  })

  it('stays exact beyond a double', () => {
    const sum = newDecimalSum()
    for (let i = 0; i < 20_000; i++) addDecimal(sum, '999999.999999999')
    expect(decimalText(sum)).toBe('19999999999.99998')
  })
})

describe('set of sequence numbers', () => {
  it('contains each number once, in ranges that do not touch', () => {
    fc.assert(
      fc.property(fc.array(fc.bigInt({ min: 0n, max: 60n })), (numbers) => {
        const ranges = toRanges(multirange(numbers))
        const listed = ranges.flatMap(([from, to]) =>
          Array.from({ length: Number(to - from) }, (_, i) => from + BigInt(i)),
        )
        expect(listed).toEqual([...new Set(numbers)].toSorted((a, b) => Number(a - b)))
        ranges.forEach(([from], i) => expect(from > (ranges[i - 1]?.[1] ?? -1n)).toBe(true))
      }),
    )
  })
})

const at = new Date('2026-09-14T10:20:00Z')
const hourMs = 3_600_000

interface Sample {
  readonly ticket: SignedTicket
  readonly cost: bigint | null
  readonly markup: bigint
  readonly platformFee: bigint
}

const sample: fc.Arbitrary<Sample> = fc
  .record({
    user: fc.nat(2),
    session: fc.nat(2),
    model: fc.nat(1),
    minutes: fc.nat(200),
    sequence: fc.bigInt({ min: 0n, max: 2n ** 63n - 2n }),
    fee: fc.oneof(fc.bigInt({ min: 0n, max: 1_000n }), fc.bigInt({ min: 0n, max: 10n ** 27n })),
    billableSecs: decimal,
    pixels: fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n }),
    cost: fc.option(fc.bigInt({ min: 0n, max: 10n ** 30n })),
    markup: fc.bigInt({ min: -5n, max: 10n ** 20n }),
    platformFee: fc.bigInt({ min: 0n, max: 10n ** 20n }),
  })
  .map(({ user, session, model, minutes, sequence, fee, billableSecs, pixels, ...amounts }) => {
    const signedAtMs = at.getTime() - minutes * 60_000
    return {
      ...amounts,
      ticket: {
        eventId: randomUUID(),
        clientId: 'app_0123456789abcdef01234567',
        externalUserId: `user-${user}`,
        signedAt: new Date(signedAtMs).toISOString(),
        signedAtMs,
        signedAtMicros: signedAtMs * 1000,
        sessionId: `session-${session}`,
        sequenceNumber: String(sequence),
        requestId: '',
        manifestId: '',
        appName: '',
        pipeline: 'live',
        modelId: `model-${model}`,
        fee: wei(fee),
        billableSecs,
        pixels: String(pixels),
        numTickets: 1,
        orchAddress: '',
        orchUrl: '',
        emittedAtMs: null,
        statedUsd: null,
      },
    }
  })

/** Plain version: adds bigints ticket by ticket. */
function plainSums(samples: readonly Sample[], keyOf: (ticket: SignedTicket) => string) {
  const groups = Map.groupBy(samples, ({ ticket }) => keyOf(ticket))
  const total = (group: readonly Sample[], of: (sample: Sample) => bigint): bigint =>
    group.reduce((sum, each) => sum + of(each), 0n)
  return new Map(
    [...groups].map(([key, group]) => [
      key,
      {
        tickets: group.length,
        unpriced: group.filter(({ cost }) => cost === null).length,
        fee: total(group, ({ ticket }) => ticket.fee),
        cost: total(group, ({ cost }) => cost ?? 0n),
        markup: total(group, ({ cost, markup }) => (cost === null ? 0n : markup)),
        platformFee: total(group, ({ cost, platformFee }) => (cost === null ? 0n : platformFee)),
        platformWei: total(group, ({ cost, platformFee }) =>
          cost === null ? 0n : platformFee / 7n,
        ),
        billableSecs: total(group, ({ ticket }) => scaled(ticket.billableSecs)),
        pixels: total(group, ({ ticket }) => BigInt(ticket.pixels)),
      },
    ]),
  )
}

const plainOf = ({ billableSecs, ...sums }: Sums) => {
  const { tickets, unpriced, fee, cost, markup, platformFee, platformWei, pixels } = sums
  const secs = scaled(decimalText(billableSecs))
  const amounts = { fee, cost, markup, platformFee, platformWei }
  return { tickets, unpriced, ...amounts, billableSecs: secs, pixels }
}

function sumsOf(samples: readonly Sample[]) {
  const parser = createBatchParser(createRowBuffer(), { at, limits: usualLimits }, samples.length)
  samples.forEach(({ ticket }, index) => parser.addTicket(index, ticket, 'x'.repeat(16)))
  const batch = parser.read()
  const app = appId('00000000-0000-4000-8000-000000000001')
  for (const payer of batch.payers.values()) {
    const user = userId(`00000000-0000-4000-8000-00000000000${payer.externalUserId.at(-1)}`)
    payer.subject = { appId: app, userId: user }
  }
  const sums = createSums(batch, at)
  samples.forEach(({ cost, markup, platformFee }, place) =>
    sums.addTicket(
      place,
      cost === null
        ? null
        : {
            rateId: 1n,
            rate: { usdAttosPerEth: ethRate(1n), observedAt: at },
            cost: usdAttos(cost),
            retail: usdAttos(cost + markup),
            platformFee: usdAttos(platformFee),
            platformWei: wei(platformFee / 7n),
          },
    ),
  )
  return sums.read()
}

const userIn = (id: string): string => `user-${id.at(-1)}`

describe('sums of a batch', () => {
  it('equal the sums of its single tickets', () => {
    fc.assert(
      fc.property(fc.array(sample, { maxLength: 40 }), (samples) => {
        const { sessions, hours } = sumsOf(samples)
        expect(
          new Map(
            sessions.map((sums) => [
              `${userIn(sums.subject.userId)} ${sums.session.sessionId}`,
              plainOf(sums),
            ]),
          ),
        ).toEqual(plainSums(samples, (ticket) => `${ticket.externalUserId} ${ticket.sessionId}`))
        expect(
          new Map(
            hours.map((sums) => [
              `${userIn(sums.subject.userId)} ${sums.feature.modelId} ${sums.hourMs}`,
              plainOf(sums),
            ]),
          ),
        ).toEqual(
          plainSums(
            samples,
            ({ externalUserId, modelId, signedAtMs }) =>
              `${externalUserId} ${modelId} ${Math.floor(signedAtMs / hourMs) * hourMs}`,
          ),
        )
      }),
    )
  })
})
