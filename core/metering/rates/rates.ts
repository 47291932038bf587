import { DomainError } from '../../../proto/errors.ts'
import { type EthRate, formatDecimal18 } from '../../lib/money.ts'
import { parseReadable } from '../../shared/text.ts'
import { type Log, createThrottle } from '../../lib/log.ts'
import type { Pool } from '../../lib/sql.ts'
import { type Now, addSeconds, parseInstant } from '../../lib/time.ts'
import { type Rate, type RateAges, insertRate, manualPrefix, toMaxAge, rateAt } from './store.ts'
import { type RateSource, parseRate } from './sources.ts'

export interface RatesDeps {
  readonly pool: Pool
  readonly now: Now
  readonly log: Log
  /** Read in order until one returns a usable rate. */
  readonly sources: readonly RateSource[]
  readonly ages: RateAges
  /** Maximum age of a ticket when it arrives (TICKET_MAX_AGE_DAYS). */
  readonly maxTicketDays: number
  readonly onRejected: (why: 'unusable' | 'jump') => void
}

export interface ManualRate {
  readonly usdPerEth: string
  readonly source: string
  readonly observedAt?: string | undefined
}

/** Days in which a ticket of the maximum age can still be priced by hand. */
const daysToPrice = 35

/** Observations of the price of one ETH: append-only, each valid from its instant (decision 31). */
export function createRates({
  pool,
  now,
  log,
  sources,
  ages,
  maxTicketDays,
  onRejected,
}: RatesDeps) {
  const oldestDays = maxTicketDays + daysToPrice
  const isDue = createThrottle(now, 3_600_000)
  let unconfirmed: EthRate | null = null

  /** The newest observation, if it still prices a ticket signed now. */
  async function usable(): Promise<Rate | null> {
    const at = now()
    const rate = await rateAt(pool, at)
    return rate && rate.observedAt >= addSeconds(at, -toMaxAge(rate.source, ages)) ? rate : null
  }

  /** Reads the sources and records the first usable rate; null without one. */
  async function observe(): Promise<Rate | null> {
    const last = await usable()
    const observed = await readSources(last)
    if (observed === null && last === null && isDue('no rate'))
      log.error(
        'no ETH rate is usable: calls are refused and tickets wait; ./tollgate status shows how to set one',
      )
    return observed
  }

  async function readSources(last: Rate | null): Promise<Rate | null> {
    for (const source of sources) {
      const rate = await readFrom(source)
      if (rate === null) continue
      if (last && isJump(last.usdAttosPerEth, rate) && !confirms(rate)) {
        log.warn(
          {
            source: source.name,
            rate: formatDecimal18(rate),
            last: formatDecimal18(last.usdAttosPerEth),
          },
          'a rate jumped by more than half; not recorded unless it is observed again',
        )
        onRejected('jump')
        unconfirmed = rate
        continue
      }
      unconfirmed = null
      return insertRate(pool, { usdAttosPerEth: rate, source: source.name }, { at: now() })
    }
    return null
  }

  async function readFrom(source: RateSource): Promise<EthRate | null> {
    try {
      return await source.read()
    } catch (error) {
      log[isDue(source.name) ? 'warn' : 'debug'](
        { source: source.name, err: error instanceof Error ? error.message : 'unknown' },
        'this source returned no rate; logged once an hour',
      )
      onRejected('unusable')
      return null
    }
  }

  const confirms = (rate: EthRate): boolean => unconfirmed !== null && !isJump(unconfirmed, rate)

  /**
   * Records an operator's observation, valid from `observedAt` (ISO 8601, default now). Throws
   * REQUEST_INVALID unless the rate is a positive decimal and the instant is neither in the future
   * nor older than any waiting ticket may be.
   */
  async function record({ usdPerEth, source, observedAt }: ManualRate): Promise<Rate> {
    const rate = parseRate(usdPerEth)
    if (rate === null)
      throw new DomainError(
        'REQUEST_INVALID',
        'usdPerEth must be a positive decimal of USD for one ETH',
      )
    // Free text that names the origin of the rate.
    const name = parseReadable(source, { field: 'source' })
    const at = observedAt === undefined ? now() : instantOf(observedAt)
    return insertRate(
      pool,
      { usdAttosPerEth: rate, source: `${manualPrefix}${name}` },
      { at: now(), observedAt: at },
    )
  }

  function instantOf(text: string): Date {
    const instant = parseInstant(text)
    if (instant === null) {
      throw new DomainError(
        'REQUEST_INVALID',
        'observedAt must be an ISO 8601 instant such as 2026-01-31T12:00:00Z',
      )
    }
    if (instant > now())
      throw new DomainError('REQUEST_INVALID', 'observedAt must not be in the future')
    if (instant < addSeconds(now(), -oldestDays * 86_400)) {
      throw new DomainError('REQUEST_INVALID', `observedAt must be at most ${oldestDays} days back`)
    }
    return instant
  }

  return { observe, record, usable }
}

export type Rates = ReturnType<typeof createRates>

/** Returns true if `to` differs from `from` by more than half of `from`. */
function isJump(from: EthRate, to: EthRate): boolean {
  const distance = from > to ? from - to : to - from
  return distance * 2n > from
}
