import { LRUCache } from 'lru-cache'
import { type EthRate, type UsdAttos, divCeil, priceOf, usdAttos, wei } from '../core/lib/money.ts'
import type { Session } from './session.ts'

/** The part of a session that money is computed from; null members are unknown. */
export type Priced = Pick<Session, 'type' | 'price' | 'units'>

// 1280 x 720 pixels at 30 frames per second, what the signer bills for lv2v.
const pixelsPerMs = 27_648n

/**
 * Units the signer bills for `ms` of a session; null where the caller chooses them (signer-
 * contract.md 1.3).
 */
export function unitsOf(type: string, ms: number): bigint | null {
  if (type === 'live') return BigInt(Math.ceil(ms / 1000))
  if (type === 'lv2v') return pixelsPerMs * BigInt(Math.ceil(ms))
  return type === 'fixed' ? 1n : null
}

/**
 * What the signer will charge for `ms` of the session, rounded up; null when it cannot be known.
 */
export function costOf({ type, price, units }: Priced, ms: number, rate: EthRate): UsdAttos | null {
  const billed = unitsOf(type, ms)
  if (billed === null || price === null || units === null) return null
  return priceOf(wei(divCeil(price * billed, units)), rate)
}

/** What a second of the session burns; null when it has no price in time. */
export function burnOf(session: Priced, rate: EthRate): UsdAttos | null {
  if (session.type !== 'live' && session.type !== 'lv2v') return null
  const burn = costOf(session, 1000, rate)
  return burn === null || burn <= 0n ? null : usdAttos(burn)
}

// A map: the type is the caller's text, and an object would know `__proto__`.
const firstMs: ReadonlyMap<string, number> = new Map([['live', 10_000], ['lv2v', 60_000]])
const unseenMs = 60_000

interface Seen {
  readonly sequence: number
  readonly at: number
  readonly from: number
  /** Paid in advance with that call's answer: atto-dollars for the time it promised. */
  promised: bigint
}

/**
 * How much time a call bills: since the previous call of its session that was allowed here. A
 * replayed state is billed again from where its first use was.
 */
export function createElapsed({ max }: { max: number }) {
  const seen = new LRUCache<string, Seen>({ max })
  const keyOf = (authId: string, session: Session): string => `${session.id} ${authId}`

  /** Milliseconds that this call of the session is billed for, at most. */
  function of(authId: string, session: Session): number {
    if (session.sequence === 0) return firstMs.get(session.type) ?? 0
    const from = startOf(seen.get(keyOf(authId, session)), session)
    if (session.at !== null && from !== null) return Math.max(0, session.at - from)
    return unseenMs
  }

  // Promised elsewhere: paid for there, up to the expiry that comes back in the state.
  function startOf(last: Seen | undefined, { sequence, authExpiry }: Session): number | null {
    if (!last || sequence === null || sequence < last.sequence)
      return authExpiry > 0 ? authExpiry * 1000 : null
    return sequence === last.sequence ? last.from : last.at
  }

  /**
   * What was paid in advance with the session's last answer, once: now that the call is here, the
   * time that really passed is billed in its place.
   */
  function takePromised(authId: string, session: Session): bigint {
    const last = session.sequence === 0 ? undefined : seen.peek(keyOf(authId, session))
    if (!last || last.promised === 0n) return 0n
    const { promised } = last
    last.promised = 0n
    return promised
  }

  /** Remembers an allowed call as the start of the next one, and what its answer promised. */
  function remember(authId: string, session: Session, promised: bigint): void {
    const { at, sequence } = session
    if (at === null || sequence === null || session.id === '') return
    const key = keyOf(authId, session)
    const last = sequence === 0 ? undefined : seen.peek(key)
    if (last && sequence < last.sequence) return
    const from = last?.sequence === sequence ? last.from : (last?.at ?? at)
    seen.set(key, { sequence, at, from, promised })
  }

  return { of, takePromised, remember, size: () => seen.size }
}

export type Elapsed = ReturnType<typeof createElapsed>
