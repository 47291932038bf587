import { divCeil, ethRate, networkRatio, retailBound, wei } from '../../core/lib/money.ts'
import type { Session } from '../signer-state/session.ts'
import {
  type FirstCall,
  type SessionCalls,
  type SessionMemory,
  type SessionOwner,
  priorCall,
} from './session-calls.ts'

/** The rate for bounds, from core's last answer. */
export interface CurrentRate {
  /** Nano-dollars for one wei; null without a usable rate. */
  nanosPerWei: number | null
  /** The exact rate: atto-dollars for one ETH. */
  attosPerEth: bigint
  /** Unix milliseconds of the observation. */
  observedAt: number
  /** Whether this is an old rate with a margin added. */
  isRaised: boolean
}

/** The rate before core's first answer. */
export const noRate = (): CurrentRate => ({
  nanosPerWei: null,
  attosPerEth: 0n,
  observedAt: 0,
  isRaised: false,
})

/**
 * Nano-dollars, or the reason why there is no bound: no type or price, no rate, or no known prior
 * call.
 */
export type Bound = number | 'untyped' | 'no_rate' | 'no_prior_call'

// The signer bills lv2v for 1280 x 720 pixels at 30 frames per second.
const pixelsPerSecond = 27_648_000
const pixelsPerMs = 27_648
/** Longest time, in seconds, that a call of an unknown session is assumed to bill. */
const longestGap = 900

// The product of a price has at most eleven roundings of a double.
const roundings = 11 * Number.EPSILON
const attosPerNano = 1_000_000_000n

function exactPriceOf(
  { price, units: per }: Pick<Session, 'price' | 'units'>,
  units: number,
  { attosPerEth, ratio }: { readonly attosPerEth: bigint; readonly ratio: bigint },
): number {
  const fee = divCeil(BigInt(price ?? 0) * BigInt(Math.max(0, units)), BigInt(per ?? 1))
  return Number(divCeil(retailBound(wei(fee), ethRate(attosPerEth), ratio), attosPerNano))
}

/** Whole seconds of a `live` call since `from`, rounded up as the signer does. */
const secondsSince = (from: FirstCall, { seconds, nanos }: Session): number =>
  seconds - from.seconds + (nanos > from.nanos ? 1 : 0)

/** Pixels of an `lv2v` call since `from`, plus one to cover the signer's own float rounding. */
function pixelsSince(from: FirstCall, { seconds, nanos }: Session): number {
  const fraction = Math.ceil(((nanos - from.nanos) * pixelsPerMs) / 1_000_000)
  return (seconds - from.seconds) * pixelsPerSecond + fraction + 1
}

/**
 * Units that the signer bills for a call since `from`, and at least for `leastMs`. Assumes the
 * longest gap if `from` is null. The first call of a session is billed for a fixed time.
 */
export function toUnits(session: Session, from: FirstCall | null, leastMs = 0): number {
  const { type, sequence } = session
  if (type === 'fixed') return 1
  if (type === 'live') {
    if (sequence === 0) return 10
    return from ? Math.max(secondsSince(from, session), Math.ceil(leastMs / 1000)) : longestGap
  }
  if (sequence === 0) return 60 * pixelsPerSecond
  if (!from) return longestGap * pixelsPerSecond
  return Math.max(pixelsSince(from, session), Math.ceil(leastMs * pixelsPerMs))
}

/** Replaces a prior call that core does not know: assumes the longest gap. */
export const longestBefore = ({ seconds, nanos }: FirstCall): FirstCall => ({
  sequence: 0,
  seconds: seconds - longestGap,
  nanos,
  isAssumed: true,
})

const isPriced = ({ type, price, units }: Session): boolean =>
  type !== '' && price !== null && units !== null

/** Units per second of the session. */
export const unitsPerSecond = (type: 'live' | 'lv2v'): number =>
  type === 'live' ? 1 : pixelsPerSecond

/** The user of a bounded call. */
export interface BilledUser extends SessionOwner {
  /**
   * Highest ratio of retail to network price in the user's plan, scaled by 10^18. The highest,
   * because the feature of a call is unknown until its ticket arrives. Null for network price.
   */
  readonly retailRatio: bigint | null
}

export interface BoundsOptions {
  readonly memory: SessionMemory
  readonly rate: CurrentRate
  /** UNTYPED_CALL_USD in nano-dollars; null when it is not set. */
  readonly untyped: number | null
  /**
   * Milliseconds since core last answered a report: until the next answer, other processes may have
   * joined sessions of this one.
   */
  readonly msSinceLastContact: () => number
}

/** Computes the most that a call can cost its user (docs/escrow-bounds.md, "Bounds"). */
export function createBounds({ memory, rate, untyped, msSinceLastContact }: BoundsOptions) {
  /** The bound of a call, from local state only. */
  function boundOf(owner: BilledUser, session: Session): Bound {
    if (!isPriced(session)) return untyped === null ? 'untyped' : priceUntyped(owner, untyped)
    if (rate.nanosPerWei === null) return 'no_rate'
    const { type, sequence } = session
    if (type === 'fixed' || sequence === 0)
      return priceUnits(owner, session, toUnits(session, null, msSinceLastContact()))
    if (memory.isShared(session.id)) return 'no_prior_call'
    const calls = memory.find(owner, session.id)
    const since = calls ? billedSince(calls, sequence) : null
    if (!since) return 'no_prior_call'
    const leastMs = since.isAssumed ? longestGap * 1000 : msSinceLastContact()
    return priceUnits(owner, session, toUnits(session, since, leastMs))
  }

  /**
   * The bound of a call since its prior call; null for an unknown one. Calls of other processes
   * that are not reported yet may be `leastMs` old.
   */
  function boundSince(
    { account, session }: { readonly account: BilledUser; readonly session: Session },
    prior: FirstCall | null,
    leastMs = 0,
  ): number {
    return priceUnits(
      account,
      session,
      toUnits(session, prior, Math.max(leastMs, msSinceLastContact())),
    )
  }

  /**
   * The most, in nano-dollars, that these units of a session can cost the user. Rounded up: at
   * least 1, and Infinity above the largest safe integer. The signer rounds its fee to whole wei.
   * If the error of doubles makes the last nano-dollar ambiguous, computes the price exactly, so
   * that the last cent of a balance can be spent.
   */
  function priceUnits({ retailRatio }: BilledUser, session: Session, units: number): number {
    if (rate.nanosPerWei === null) return Infinity
    const nanosOfWei =
      retailRatio === null ? rate.nanosPerWei : (rate.nanosPerWei * Number(retailRatio)) / 1e18
    const nanos = ((Number(session.price) * units) / Number(session.units)) * nanosOfWei
    const error = nanos * roundings + nanosOfWei
    const most = Math.ceil(nanos + error)
    if (!(most <= Number.MAX_SAFE_INTEGER)) return Infinity
    if (Math.ceil(nanos - error) === most) return Math.max(1, most)
    const { attosPerEth } = rate
    const ratio = retailRatio ?? networkRatio
    return Math.max(1, exactPriceOf(session, units, { attosPerEth, ratio }))
  }

  return { boundOf, boundSince, priceUnits }
}

const priceUntyped = ({ retailRatio }: BilledUser, untyped: number): number =>
  Math.max(
    1,
    retailRatio === null ? untyped : Number(divCeil(BigInt(untyped) * retailRatio, networkRatio)),
  )

export type Bounds = ReturnType<typeof createBounds>

/** Start of the time that a call bills; null when no call with a lower number is known. */
function billedSince(calls: SessionCalls, sequence: number): FirstCall | null {
  const prior = priorCall(calls, sequence)
  const isPaid = calls.paidUntil > 0 && prior === calls.top
  return prior && isPaid ? paidTime(calls.paidUntil, prior) : prior
}

// Time inside a window that was paid in advance was debited with that payment.
const paidTime = (until: number, prior: FirstCall): FirstCall =>
  until > prior.seconds ? { ...prior, seconds: until, nanos: 0 } : prior
