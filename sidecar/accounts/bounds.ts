import { divCeil, ethRate, networkRatio, retailBound, wei } from '../../core/lib/money.ts'
import type { Session } from './session.ts'
import {
  type FirstCall,
  type SessionCalls,
  type SessionMemory,
  type SessionOwner,
  priorCall,
} from './session-calls.ts'

/** The rate for bounds, as core said it last. */
export interface CurrentRate {
  /** Nano-dollars for one wei; null while no rate serves. */
  nanosPerWei: number | null
  /** The same exactly: atto-dollars for one ETH. */
  attosPerEth: bigint
  /** Unix milliseconds of its observation. */
  observedAt: number
  /** An old one with a margin. */
  isRaised: boolean
}

/** The rate before core has said one. */
export const noRate = (): CurrentRate => ({
  nanosPerWei: null,
  attosPerEth: 0n,
  observedAt: 0,
  isRaised: false,
})

/** Nano-dollars, or why there is no bound: the call has no type or price, or something is unknown. */
export type Bound = number | 'untyped' | 'no_rate' | 'no_prior_call'

// The signer bills lv2v for 1280 x 720 pixels at 30 frames per second.
const pixelsPerSecond = 27_648_000
const pixelsPerMs = 27_648
/** The longest time that a call of an unknown session is taken to bill, in seconds. */
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

/** Pixels of an `lv2v` call since `from`; one more than exact, for the signer's own float. */
function pixelsSince(from: FirstCall, { seconds, nanos }: Session): number {
  const rest = Math.ceil(((nanos - from.nanos) * pixelsPerMs) / 1_000_000)
  return (seconds - from.seconds) * pixelsPerSecond + rest + 1
}

/**
 * Units that the signer bills for a call since `from`, and at least for `leastMs`; null for the
 * longest time there is. The first call of a session is billed for a fixed time.
 */
export function unitsOf(session: Session, from: FirstCall | null, leastMs = 0): number {
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

/** The call before one of which core knows none: the longest gap is assumed. */
export const longestBefore = ({ seconds, nanos }: FirstCall): FirstCall => ({
  sequence: 0,
  seconds: seconds - longestGap,
  nanos,
  isAssumed: true,
})

const isPriced = ({ type, price, units }: Session): boolean =>
  type !== '' && price !== null && units !== null

/** Units of a second of the session. */
export const unitsPerSecond = (type: 'live' | 'lv2v'): number =>
  type === 'live' ? 1 : pixelsPerSecond

/** Whose calls are bounded. */
export interface SoldOwner extends SessionOwner {
  /**
   * The highest ratio of retail to network price of the user's plan, scaled by 10^18: for which
   * feature a call is, nobody knows before its ticket. Null for network price.
   */
  readonly retailRatio: bigint | null
}

export interface BoundsOptions {
  readonly memory: SessionMemory
  readonly rate: CurrentRate
  /** Nano-dollars of UNTYPED_CALL_USD; null when it is not set. */
  readonly untyped: number | null
  /** Milliseconds for which other processes may have joined sessions of this one unheard. */
  readonly unheardMs: () => number
}

/** What calls can cost their user at most (docs/escrow.md, "Bounds"). */
export function createBounds({ memory, rate, untyped, unheardMs }: BoundsOptions) {
  /** The bound of a call by what is known here. */
  function boundOf(owner: SoldOwner, session: Session): Bound {
    if (!isPriced(session)) return untyped === null ? 'untyped' : soldUntyped(owner, untyped)
    if (rate.nanosPerWei === null) return 'no_rate'
    const { type, sequence } = session
    if (type === 'fixed' || sequence === 0)
      return sold(owner, session, unitsOf(session, null, unheardMs()))
    if (memory.isShared(session.id)) return 'no_prior_call'
    const calls = memory.find(owner, session.id)
    const since = calls ? billedSince(calls, sequence) : null
    if (!since) return 'no_prior_call'
    const leastMs = since.isAssumed ? longestGap * 1000 : unheardMs()
    return sold(owner, session, unitsOf(session, since, leastMs))
  }

  /**
   * The bound of a call since its prior call; null for an unknown one. Calls that nobody told of
   * yet may be `leastMs` old.
   */
  function boundSince(
    { account, session }: { readonly account: SoldOwner; readonly session: Session },
    prior: FirstCall | null,
    leastMs = 0,
  ): number {
    return sold(account, session, unitsOf(session, prior, Math.max(leastMs, unheardMs())))
  }

  /**
   * Nano-dollars that so many units of a session cost its user at most, rounded up: at least 1, and
   * Infinity for more than a number counts. The signer rounds its fee to whole wei. A price that
   * doubles cannot tell from a whole number of nano-dollars is computed exactly, so that the last
   * cent pays for it.
   */
  function sold({ retailRatio }: SoldOwner, session: Session, units: number): number {
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

  return { boundOf, boundSince, sold }
}

const soldUntyped = ({ retailRatio }: SoldOwner, untyped: number): number =>
  Math.max(
    1,
    retailRatio === null ? untyped : Number(divCeil(BigInt(untyped) * retailRatio, networkRatio)),
  )

export type Bounds = ReturnType<typeof createBounds>

/** Since when a call is billed; null when no call with a lower number is known. */
function billedSince(calls: SessionCalls, sequence: number): FirstCall | null {
  const prior = priorCall(calls, sequence)
  const isPaid = calls.paidUntil > 0 && prior === calls.top
  return prior && isPaid ? paidTime(calls.paidUntil, prior) : prior
}

// Time inside a promised window was debited with the promise.
const paidTime = (until: number, prior: FirstCall): FirstCall =>
  until > prior.seconds ? { ...prior, seconds: until, nanos: 0 } : prior
