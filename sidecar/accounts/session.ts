import { isObject, textOf } from '../../core/lib/json.ts'
import type { EthRate } from '../../core/lib/money.ts'
import { parseInstant } from '../../core/lib/time.ts'
import { createBoundedMap } from '../identity/cached-state.ts'

/** What a decision uses of the signer's payment-session state (docs/signer-protocol.md). */
export interface Session {
  readonly id: string
  /** The identity bound by an earlier answer, "" when none; null when it is not even text. */
  readonly authId: string | null
  readonly type: string
  readonly sequence: number | null
  /** Unix milliseconds of this call. */
  readonly at: number | null
  /** Unix seconds of the answer that last let the signer skip the webhook; 0 when none. */
  readonly authExpiry: number
  /** Wei for `units`, exact: a bigint only above 2^53; null when either is not a positive integer. */
  readonly price: number | bigint | null
  readonly units: number | bigint | null
  /** False when a value is not what the signer writes: then the signer may never skip the webhook. */
  readonly isValid: boolean
}

const rational = /^\d{1,80}(\/[1-9]\d{0,79})?$/

/** `6000/7`, `0`, `49999999880000`: what Go prints for a big.Rat that is not negative. */
export const isRational = (text: unknown): boolean =>
  typeof text === 'string' && rational.test(text)

/**
 * Reads the `state` member; null when it is missing or no object. `text` is the body it was
 * parsed from.
 */
export function readSession(state: unknown, text: string): Session | null {
  if (!isObject(state)) return null
  const id = textOf(state['StateID'])
  const at = parseInstant(textOf(state['LastUpdate']))?.getTime() ?? null
  const price = readPositive(state['InitialPricePerUnit'], 'InitialPricePerUnit', text)
  const units = readPositive(state['InitialPixelsPerUnit'], 'InitialPixelsPerUnit', text)
  return {
    id: id.length <= 64 ? id : '',
    authId: readAuthId(state['AuthID']),
    type: textOf(state['Type']),
    sequence: readCount(state['SequenceNumber']),
    at,
    authExpiry: readCount(state['AuthExpiry']) ?? 0,
    price,
    units,
    isValid: at !== null && price !== null && units !== null && isRational(state['Balance']),
  }
}

function readAuthId(value: unknown): string | null {
  if (value === undefined || value === null) return ''
  return typeof value === 'string' ? value : null
}

const readCount = (value: unknown): number | null =>
  typeof value === 'number' && Number.isSafeInteger(value) && value >= 0 ? value : null

/**
 * A positive int64. JSON.parse has already rounded one above 2^53, so its digits are then read from
 * the text again: the first occurrence of the member that rounds to what was parsed.
 */
function readPositive(value: unknown, member: string, text: string): number | bigint | null {
  if (typeof value !== 'number' || value <= 0) return null
  if (Number.isSafeInteger(value)) return value
  for (const [, digits = ''] of text.matchAll(
    new RegExp(`"${member}"\\s*:\\s*(\\d{1,19})\\b(?![.eE])`, 'g'),
  )) {
    if (Number(digits) === value) return BigInt(digits)
  }
  return null
}

/** The part of a session that its cost is computed from; null members are unknown. */
export type SessionPrice = Pick<Session, 'type' | 'price' | 'units'>

// The signer bills lv2v for 1280 x 720 pixels at 30 frames per second.
const pixelsPerMs = 27_648

/** Nano-dollars for one wei. */
export const nanosPerWei = (rate: EthRate): number => Number(rate) / 1e27

/**
 * Units the signer bills for `ms` of a session (docs/signer-protocol.md); null for a session type
 * whose units the caller chooses.
 */
export function unitsOf(type: string, ms: number): number | null {
  if (type === 'live') return Math.ceil(ms / 1000)
  if (type === 'lv2v') return pixelsPerMs * Math.ceil(ms)
  return type === 'fixed' ? 1 : null
}

// A product of four floats is off by less than this, so that a cost is rounded up, never down.
const roundingMargin = 1 + 4 * Number.EPSILON

/** Nano-dollars the signer will charge for `ms` of the session, rounded up; null when unknown. */
export function costOf(
  { type, price, units }: SessionPrice,
  ms: number,
  rate: number,
): number | null {
  const billedUnits = unitsOf(type, ms)
  if (billedUnits === null || price === null || units === null) return null
  return Math.ceil(((Number(price) * billedUnits) / Number(units)) * rate * roundingMargin)
}

/** Nano-dollars that a second of the session costs, unrounded; null when time has no price in it. */
export function costPerSecond({ type, price, units }: SessionPrice, rate: number): number | null {
  if ((type !== 'live' && type !== 'lv2v') || price === null || units === null) return null
  return ((Number(price) * (unitsOf(type, 1000) ?? 0)) / Number(units)) * rate * roundingMargin
}

// A Map, because the type is text of the caller, and an object would have `__proto__`.
const firstCallMs: ReadonlyMap<string, number> = new Map([
  ['live', 10_000],
  ['lv2v', 60_000],
])
const unseenCallMs = 60_000

/** The last call of a session that was allowed here. Changed in place, once for every call. */
export interface LastCall {
  readonly id: string
  sequence: number
  at: number
  from: number
  /** Nano-dollars charged with that call's answer for the time in which the signer may skip us. */
  advance: number
  /** Unix milliseconds of that charge. */
  advanceAt: number
}

/** The user of sessions. Most users have one at a time, which `latest` finds without a look-up. */
export interface SessionOwner {
  readonly authId: string
  latest: LastCall | null
}

/**
 * Remembers the last call of each session, to know how much time the next one bills: since the
 * previous call of its session that was allowed here. A replayed state is billed again from where
 * its first use was.
 */
export function createSessionCalls({ max }: { max: number }) {
  const calls = createBoundedMap<LastCall>({ max })

  const keyOf = ({ authId }: SessionOwner, { id }: Session): string => `${id} ${authId}`

  /** The last call of the session, when it was here and is not evicted. */
  function find(owner: SessionOwner, session: Session): LastCall | undefined {
    const { latest } = owner
    return latest?.id === session.id ? latest : calls.get(keyOf(owner, session))
  }

  /** Milliseconds that this call of the session is billed for, at most. */
  function billedMs(session: Session, last: LastCall | undefined): number {
    if (session.sequence === 0) return firstCallMs.get(session.type) ?? 0
    const from = startOf(last, session)
    if (session.at !== null && from !== null) return Math.max(0, session.at - from)
    return unseenCallMs
  }

  // Time that another sidecar charged in advance is paid for up to the expiry in the state.
  function startOf(last: LastCall | undefined, { sequence, authExpiry }: Session): number | null {
    if (!last || sequence === null || sequence < last.sequence)
      return authExpiry > 0 ? authExpiry * 1000 : null
    return sequence === last.sequence ? last.from : last.at
  }

  /** Remembers an allowed call as the start of the next one, with nothing charged in advance yet. */
  function remember(
    owner: SessionOwner,
    session: Session,
    last: LastCall | undefined,
  ): LastCall | null {
    const { id, at, sequence } = session
    if (at === null || sequence === null || id === '') return null
    if (!last) {
      const first = { id, sequence, at, from: at, advance: 0, advanceAt: 0 }
      calls.set(keyOf(owner, session), first)
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

  return { find, billedMs, remember, size: calls.size }
}

export type SessionCalls = ReturnType<typeof createSessionCalls>
