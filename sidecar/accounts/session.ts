import { isObject, textOf } from '../http/json.ts'
import { readInstant } from '../identity/rfc3339.ts'

/** What the webhook uses of the signer's payment-session state (signer-contract.md 1.3). */
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
  /** False when a value is not what the signer writes: then nothing is promised ahead. */
  readonly sound: boolean
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
  const at = readInstant(textOf(state['LastUpdate']))
  const price = positive(state['InitialPricePerUnit'], 'InitialPricePerUnit', text)
  const units = positive(state['InitialPixelsPerUnit'], 'InitialPixelsPerUnit', text)
  return {
    id: id.length <= 64 ? id : '',
    authId: boundIdentity(state['AuthID']),
    type: textOf(state['Type']),
    sequence: count(state['SequenceNumber']),
    at,
    authExpiry: count(state['AuthExpiry']) ?? 0,
    price,
    units,
    sound: at !== null && price !== null && units !== null && isRational(state['Balance']),
  }
}

function boundIdentity(value: unknown): string | null {
  if (value === undefined || value === null) return ''
  return typeof value === 'string' ? value : null
}

const count = (value: unknown): number | null =>
  typeof value === 'number' && Number.isSafeInteger(value) && value >= 0 ? value : null

/**
 * A positive int64. JSON.parse has already rounded one above 2^53, so its digits are then read from
 * the text again: the first occurrence of the member that rounds to what was parsed.
 */
function positive(value: unknown, member: string, text: string): number | bigint | null {
  if (typeof value !== 'number' || value <= 0) return null
  if (Number.isSafeInteger(value)) return value
  for (const [, digits = ''] of text.matchAll(
    new RegExp(`"${member}"\\s*:\\s*(\\d{1,19})\\b(?![.eE])`, 'g'),
  )) {
    if (Number(digits) === value) return BigInt(digits)
  }
  return null
}
