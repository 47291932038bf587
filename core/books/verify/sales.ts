import type { Db } from '../../lib/sql.ts'
import type { ReadRates, SoldRates } from '../../metering/rating/port.ts'
import type { TicketRecords } from '../../metering/records.ts'
import type { AppId } from '../../shared/ids.ts'
import type { Columns, DifferentRow, UserRange } from '../types.ts'
import type { ChargedTicket, RateInOrder } from './replay-store.ts'
import { type SoldPeriod, soldPeriods } from './sale-store.ts'

/**
 * Recomputes the prices of tickets (docs/money.md, "Price of a ticket"): the plan version from the
 * periods that the account had entered before the charge, retail from the version's rates, the
 * platform's cut from the app's cuts.
 */
export interface SalesDeps {
  readonly readRates: ReadRates
  /** Lists an app's cuts as stored, newest first. */
  readonly listCuts: (
    db: Db,
    app: AppId,
  ) => Promise<readonly { readonly since: Date; readonly basisPoints: bigint | null }[]>
  readonly toPrices: TicketRecords['toPrices']
}

/** The fields of a charge that decide the prices of its tickets. */
export interface SoldCharge {
  readonly userId: string
  readonly externalUserId: string | null
  readonly seq: bigint
  /** Null when prices were fixed elsewhere. */
  readonly ratesKnownAt: Date | null
  readonly bookedAt: Date
  readonly tickets: readonly ChargedTicket[]
}

type FindRate = (id: bigint) => RateInOrder | undefined

export async function createSales(
  db: Db,
  range: UserRange,
  { readRates, listCuts, toPrices }: SalesDeps,
) {
  const cuts = await listCuts(db, range.appId)
  const periods = await soldPeriods(db, range)
  const ids = new Set([...periods.values()].flat().map(({ termsId }) => termsId))
  const rates: ReadonlyMap<bigint, SoldRates> = await readRates(db, [...ids])

  const cutAt = (ms: number): bigint =>
    cuts.find(({ since }) => since.getTime() <= ms)?.basisPoints ?? 0n

  /** Finds tickets that differ from their recomputed price. */
  function* differences(charge: SoldCharge, rateOf: FindRate): Generator<DifferentRow> {
    const knownMs = (charge.ratesKnownAt ?? charge.bookedAt).getTime()
    for (const ticket of charge.tickets) {
      const rate = rateOf(ticket.rateId)
      if (!rate || isFixed(ticket, charge)) continue
      const signedMs = Math.floor(ticket.signedAtMicros / 1000)
      const termsId = termsIdAt(periods.get(charge.userId) ?? [], charge.seq, signedMs)
      const ratio = termsId === null ? undefined : rates.get(termsId)?.ratioOf(ticket)
      const expected =
        ratio === undefined
          ? null
          : columnsOf({
              termsId,
              ...toPrices(ticket.fee, rate.usdAttosPerEth, {
                ratio,
                // The signer's clock may be ahead (core/metering/rating/rating.ts); cuts use real
                // time.
                cutBasisPoints: cutAt(Math.min(signedMs - ticket.aheadMs, knownMs)),
              }),
            })
      const stored = columnsOf(ticket)
      if (expected !== null && isSame(stored, expected)) continue
      const { userId, externalUserId } = charge
      yield { userId, externalUserId, key: { event_id: ticket.eventId }, stored, expected }
    }
  }

  return { differences }
}

/**
 * True for tickets sold before they named a version, or imported with prices: their charge and its
 * hash prove them.
 */
const isFixed = (
  { termsId, retail, cost, platformFee, platformWei }: ChargedTicket,
  { ratesKnownAt }: SoldCharge,
): boolean =>
  termsId === null &&
  (ratesKnownAt === null || (retail === cost && platformFee === 0n && platformWei === 0n))

/**
 * Returns the version of the last period that had begun, among those entered before the entry
 * `seq`; otherwise of the first.
 */
function termsIdAt(periods: readonly SoldPeriod[], seq: bigint, ms: number): bigint | null {
  const entered = periods.filter(({ afterSeq }) => afterSeq < seq)
  const current = entered.findLast(({ startMs }) => startMs <= ms) ?? entered[0]
  return current?.termsId ?? null
}

type Sold = Pick<ChargedTicket, 'termsId' | 'retail' | 'platformFee' | 'platformWei'>

const columnsOf = ({ termsId, retail, platformFee, platformWei }: Sold): Columns => ({
  terms_id: termsId === null ? null : String(termsId),
  retail_attos: String(retail),
  platform_fee_attos: String(platformFee),
  platform_fee_wei: String(platformWei),
})

const isSame = (a: Columns, b: Columns): boolean =>
  Object.keys(a).every((column) => a[column] === b[column])
