import { isObject, readText } from '../../core/lib/json.ts'

/** An instant of the signer's clock, to the nanosecond. */
export interface SignerTime {
  /** Unix seconds. */
  readonly seconds: number
  /** Nanoseconds within the second. */
  readonly nanos: number
}

/** The part of the signer's payment-session state that decisions use (docs/signer-webhook.md). */
export interface Session extends SignerTime {
  readonly id: string
  /** The identity bound by an earlier answer, "" when missing; null when it is not text. */
  readonly authId: string | null
  /** "" for a type whose units the caller chooses. */
  readonly type: SessionType
  readonly app: string
  /**
   * Whether the time of the event may differ from this state: in v0.8.11, whose states have no
   * `App`.
   */
  readonly isApproximate: boolean
  readonly sequence: number
  /**
   * Exact wei for `units`: a bigint only above 2^53; null when either is not a positive integer.
   */
  readonly price: number | bigint | null
  readonly units: number | bigint | null
  /** The credit at the orchestrator, unparsed. */
  readonly balance: unknown
  /**
   * False when the id, number or time is not one that a signer writes: such a call could never be
   * settled.
   */
  readonly isReadable: boolean
}

export type SessionType = 'live' | 'lv2v' | 'fixed' | ''

const digits = /^\d+(?:\/[1-9]\d*)?$/
const maxRational = 1_000

/**
 * `6000/7`, `0`, `49999999880000`: Go's text of a big.Rat that is not negative. Real signers write
 * 160 to 175 digits on each side, because the values of their tickets are fractions of 2^256 − 1.
 */
export const isRational = (text: unknown): boolean =>
  typeof text === 'string' && text.length <= maxRational && digits.test(text)

/**
 * Reads the `state` member; null when it is missing, not an object, or empty. `text` is the body
 * that it was parsed from.
 */
export function readSession(state: unknown, text: string): Session | null {
  if (!isObject(state) || isEmpty(state)) return null
  const id = readId(state['StateID'])
  const at = parseSignerTime(readText(state['LastUpdate']))
  const sequence = readCount(state['SequenceNumber'])
  return {
    id,
    authId: readAuthId(state['AuthID']),
    type: readType(state['Type']),
    app: readApp(state['App']),
    isApproximate: state['App'] === undefined,
    sequence: sequence ?? 0,
    seconds: at ? at.seconds : 0,
    nanos: at ? at.nanos : 0,
    price: readPositive(state['InitialPricePerUnit'], 'InitialPricePerUnit', text),
    units: readPositive(state['InitialPixelsPerUnit'], 'InitialPixelsPerUnit', text),
    balance: state['Balance'],
    isReadable: id !== '' && at !== null && sequence !== null,
  }
}

function isEmpty(object: object): boolean {
  for (const _ in object) return false
  return true
}

const sessionId = /^[\x21-\x7e]{1,128}$/

const readId = (value: unknown): string =>
  typeof value === 'string' && sessionId.test(value) ? value : ''

function readAuthId(value: unknown): string | null {
  if (value === undefined || value === null) return ''
  return typeof value === 'string' ? value : null
}

const readType = (value: unknown): SessionType =>
  value === 'live' || value === 'lv2v' || value === 'fixed' ? value : ''

const unprintable = /[\p{Cc}\p{Cs}]/u

// Core stores it as text, so drop characters that a database does not accept.
function readApp(value: unknown): string {
  if (typeof value !== 'string' || value.length > 256) return ''
  return unprintable.test(value) ? '' : value
}

const readCount = (value: unknown): number | null =>
  typeof value === 'number' && Number.isSafeInteger(value) && value >= 0 ? value : null

/**
 * A positive int64. JSON.parse rounds numbers above 2^53, so their digits are read from the text:
 * from the first occurrence of the member that rounds to the parsed value.
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

// The years 1 to 9999 in UTC. Core stores no others, and refuses the whole report with one.
const secondsMin = -62_135_596_800
const secondsMax = 253_402_300_799
const goTime =
  /^(\d{4}-\d{2}-(\d{2}))T((?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d)(?:\.(\d{1,9}))?(Z|[+-](?:[01]\d|2[0-3]):[0-5]\d)$/

/**
 * Reads a time in Go's format (RFC 3339, up to nine fraction digits, any offset, the years 1 to
 * 9999 in UTC); null for other text.
 */
export function parseSignerTime(text: string): SignerTime | null {
  const [, date, day, time, fraction = '', zone] = goTime.exec(text) ?? []
  if (date === undefined || !isCalendarDay(date, Number(day))) return null
  const seconds = Date.parse(`${date}T${time}${zone}`) / 1000
  if (seconds < secondsMin || seconds > secondsMax) return null
  return { seconds, nanos: Number(fraction.padEnd(9, '0')) }
}

// Date turns the 31st of February into a day in March.
const isCalendarDay = (date: string, day: number): boolean =>
  new Date(`${date}T00:00:00Z`).getUTCDate() === day
