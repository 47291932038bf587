import type { EthRate } from '../../core/lib/money.ts'
import { createBoundedMap } from '../identity/bounded-map.ts'
import type { Session } from './session.ts'

/** The part of a session that money is computed from; null members are unknown. */
export type Priced = Pick<Session, 'type' | 'price' | 'units'>

// 1280 x 720 pixels at 30 frames per second, what the signer bills for lv2v.
const pixelsPerMs = 27_648

/** Nano-dollars for one wei. */
export const nanosPerWei = (rate: EthRate): number => Number(rate) / 1e27

/**
 * Units the signer bills for `ms` of a session; null where the caller chooses them
 * (signer-contract.md 1.3).
 */
export function unitsOf(type: string, ms: number): number | null {
  if (type === 'live') return Math.ceil(ms / 1000)
  if (type === 'lv2v') return pixelsPerMs * Math.ceil(ms)
  return type === 'fixed' ? 1 : null
}

// A product of four numbers is off by less than that; a cost is rounded up, never down.
const slack = 1 + 4 * Number.EPSILON

/** Nano-dollars the signer will charge for `ms` of the session, rounded up; null when unknown. */
export function costOf({ type, price, units }: Priced, ms: number, rate: number): number | null {
  const billed = unitsOf(type, ms)
  if (billed === null || price === null || units === null) return null
  return Math.ceil(((Number(price) * billed) / Number(units)) * rate * slack)
}

/** Nano-dollars that a second of the session burns, unrounded; null when it has no price in time. */
export function burnOf({ type, price, units }: Priced, rate: number): number | null {
  if ((type !== 'live' && type !== 'lv2v') || price === null || units === null) return null
  return ((Number(price) * (unitsOf(type, 1000) ?? 0)) / Number(units)) * rate * slack
}

// A map: the type is the caller's text, and an object would know `__proto__`.
const firstMs: ReadonlyMap<string, number> = new Map([
  ['live', 10_000],
  ['lv2v', 60_000],
])
const unseenMs = 60_000

/** The last call of a session that was allowed here. Changed in place: there is one at every call. */
export interface Seen {
  readonly id: string
  sequence: number
  at: number
  from: number
  /** Nano-dollars paid in advance with that call's answer for the time it promised, and when. */
  promised: number
  promisedAt: number
}

/** Whose sessions they are. Most users have one at a time: it is found without looking it up. */
export interface Owner {
  readonly authId: string
  latest: Seen | null
}

/**
 * How much time a call bills: since the previous call of its session that was allowed here. A
 * replayed state is billed again from where its first use was.
 */
export function createElapsed({ max }: { max: number }) {
  const seen = createBoundedMap<Seen>({ max })

  const keyOf = ({ authId }: Owner, { id }: Session): string => `${id} ${authId}`

  /** The last call of the session, when it was here. The oldest sessions go first, used or not. */
  function find(owner: Owner, session: Session): Seen | undefined {
    const { latest } = owner
    return latest?.id === session.id ? latest : seen.get(keyOf(owner, session))
  }

  /** Milliseconds that this call of the session is billed for, at most. */
  function msOf(session: Session, last: Seen | undefined): number {
    if (session.sequence === 0) return firstMs.get(session.type) ?? 0
    const from = startOf(last, session)
    if (session.at !== null && from !== null) return Math.max(0, session.at - from)
    return unseenMs
  }

  // Promised elsewhere: paid for there, up to the expiry that comes back in the state.
  function startOf(last: Seen | undefined, { sequence, authExpiry }: Session): number | null {
    if (!last || sequence === null || sequence < last.sequence)
      return authExpiry > 0 ? authExpiry * 1000 : null
    return sequence === last.sequence ? last.from : last.at
  }

  /** Remembers an allowed call as the start of the next one, with nothing promised yet. */
  function remember(owner: Owner, session: Session, last: Seen | undefined): Seen | null {
    const { id, at, sequence } = session
    if (at === null || sequence === null || id === '') return null
    if (!last) {
      const first = { id, sequence, at, from: at, promised: 0, promisedAt: 0 }
      seen.set(keyOf(owner, session), first)
      owner.latest = first
      return first
    }
    if (sequence !== 0 && sequence < last.sequence) return null
    last.from = sequence === 0 ? at : sequence === last.sequence ? last.from : last.at
    last.sequence = sequence
    last.at = at
    owner.latest = last
    return last
  }

  return { find, msOf, remember, size: seen.size }
}

export type Elapsed = ReturnType<typeof createElapsed>
