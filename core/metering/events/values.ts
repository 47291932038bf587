import { hash } from 'node:crypto'
import { type Json, isNumber } from '../../lib/exact-json.ts'

/** Reads single values of an event: numbers without a float, instants to the microsecond, labels. */

/** Returns the text of a JSON number or string; null for any other value. */
const readLiteral = (value: Json | undefined): string | null =>
  isNumber(value) ? value.literal : typeof value === 'string' ? value : null

/** Reads an integer from a JSON number or a decimal string. */
export function integerText(value: Json | undefined): string | null {
  const text = readLiteral(value)
  return text !== null && text.length <= 40 && integer.test(text) ? text : null
}

const integer = /^-?(?:0|[1-9]\d*)$/

const maxSequence = 2n ** 63n - 2n

/**
 * Reads 0 to 2^63-2, without a float. The maximum is that low because a Postgres range of bigint
 * must also hold its exclusive end.
 */
export function sequenceText(value: Json | undefined): string | null {
  const text = integerText(value)
  if (text === null || text.startsWith('-')) return null
  return text.length < 19 || BigInt(text) <= maxSequence ? text : null
}

/** Reads -2^63 to 2^63-1; zero if absent. */
export function int64Text(value: Json | undefined): string | null {
  const text = value === undefined || value === null ? '0' : integerText(value)
  if (text === null) return null
  return text.length < 19 || BigInt.asIntN(64, BigInt(text)) === BigInt(text)
    ? plainZero(text)
    : null
}

const plainZero = (text: string): string => (text === '-0' ? '0' : text)

/** Reads 0 to 2^31-1; zero if absent. */
export function int31(value: Json | undefined): number | null {
  const text = int64Text(value)
  const number = Number(text ?? NaN)
  return number >= 0 && number <= 0x7fff_ffff ? number : null
}

const decimal = /^(-?)(0|[1-9]\d*)(?:\.(\d+))?(?:[eE]([+-]?\d{1,5}))?$/
const maxWhole = 12
const maxPlaces = 30

/**
 * Reads a decimal below 10^12 in plain notation, cut after 30 places; zero if absent. Go writes
 * floats as 5.12 or 1e-09.
 */
export function decimalText(value: Json | undefined): string | null {
  if (value === undefined || value === null) return '0'
  const match = decimal.exec(readLiteral(value) ?? '')
  if (!match) return null
  const [text, sign = '', whole = '', fraction = '', exponent = '0'] = match
  if (exponent === '0' && whole.length <= maxWhole && fraction.length <= maxPlaces)
    return plainZero(text.replace(/[eE].*/, ''))
  return shifted({ sign, digits: whole + fraction, point: whole.length + Number(exponent) })
}

function shifted({
  sign,
  digits,
  point,
}: {
  sign: string
  digits: string
  point: number
}): string | null {
  const significant = digits.replace(/^0+/, '')
  if (significant === '') return '0'
  const start = point - (digits.length - significant.length)
  if (start > maxWhole) return null
  if (start < -maxPlaces) return '0'
  const whole = significant.slice(0, Math.max(start, 0)).padEnd(Math.max(start, 0), '0') || '0'
  const fraction = '0'.repeat(Math.max(-start, 0)) + significant.slice(Math.max(start, 0))
  return `${sign}${whole}.${fraction.slice(0, maxPlaces) || '0'}`
}

const rfc3339 =
  /^(\d{4})-(\d{2})-(\d{2})T(\d{2}):(\d{2}):(\d{2})(?:\.(\d{1,9})\d*)?(Z|[+-]\d{2}:\d{2})$/

export interface Instant {
  /** ISO 8601 UTC with microseconds; finer digits are cut. */
  readonly text: string
  readonly ms: number
  readonly micros: number
}

/** Parses RFC 3339 with any fraction and offset; returns UTC to the microsecond. */
export function toInstant(value: Json | undefined): Instant | null {
  const match = typeof value === 'string' && value.length <= 60 ? rfc3339.exec(value) : null
  if (!match) return null
  const [, year, month, day, hour, minute, second, fraction = '', zone = ''] = match
  const seconds = `${year}-${month}-${day}T${hour}:${minute}:${second}`
  const micros = fraction.slice(0, 6).padEnd(6, '0')
  const wall = wallClock({ year, month, day, hour, minute, second })
  const ms = wall + Number(micros.slice(0, 3)) - offsetMs(zone)
  if (Number.isNaN(ms)) return null
  const utc = zone === 'Z' ? seconds : new Date(ms).toISOString().slice(0, 19)
  return { text: `${utc}.${micros}Z`, ms, micros: ms * 1000 + Number(micros.slice(3)) }
}

/** Formats microseconds since 1970 as ISO 8601 UTC with microseconds. */
export const microsText = (micros: number): string =>
  new Date(Math.floor(micros / 1000))
    .toISOString()
    .replace('Z', `${String(micros % 1000).padStart(3, '0')}Z`)

/**
 * Returns milliseconds since 1970; NaN for a time that does not exist, such as the 31st of February
 * or 24:00.
 */
function wallClock(
  parts: Record<'year' | 'month' | 'day' | 'hour' | 'minute' | 'second', string | undefined>,
): number {
  const [year, month, day] = [Number(parts.year), Number(parts.month), Number(parts.day)]
  const [hour, minute, second] = [Number(parts.hour), Number(parts.minute), Number(parts.second)]
  if (month < 1 || month > 12 || day < 1 || hour > 23 || minute > 59 || second > 59) return NaN
  const midnight = Date.UTC(year, month - 1, day)
  // Date.UTC moves a nonexistent day into the next month.
  if (day > 28 && new Date(midnight).getUTCDate() !== day) return NaN
  return midnight + ((hour * 60 + minute) * 60 + second) * 1000
}

function offsetMs(zone: string): number {
  if (zone === 'Z') return 0
  const [hours, minutes] = [Number(zone.slice(1, 3)), Number(zone.slice(4))]
  return hours > 23 || minutes > 59
    ? NaN
    : (zone.startsWith('-') ? -1 : 1) * (hours * 60 + minutes) * 60_000
}

/**
 * Reads text that is only stored and shown. Other types become empty; NUL, which Postgres rejects,
 * is replaced; text longer than 256 bytes is shortened.
 */
export function labelText(value: Json | undefined): string {
  if (typeof value !== 'string') return ''
  const text = value.includes('\u0000') ? value.replaceAll('\u0000', '\ufffd') : value
  return text.length <= 64 ? text : shortened(text.toWellFormed())
}

const maxBytes = 256

// Keeps the beginning and appends a hash of the whole text, so that two long ids with the same
// beginning stay different.
function shortened(text: string): string {
  const bytes = Buffer.from(text)
  if (bytes.length <= maxBytes) return text
  const digest = hash('sha256', bytes, 'hex')
  const room = maxBytes - digest.length - 1
  const start = new TextDecoder().decode(bytes.subarray(0, room), { stream: true })
  return `${start}~${digest}`
}

const statedDecimal = /^(?:0|[1-9]\d{0,29})(?:\.\d{1,18})?$/

/** Reads an exact amount from text; null for a JSON number, because a float may have rounded it. */
export const exactDecimal = (value: Json | undefined): string | null =>
  typeof value === 'string' && statedDecimal.test(value) ? value : null

/** Reads a Unix time in milliseconds from decimal text or a number (docs/signer-events.md). */
export function unixMs(value: Json | undefined): number | null {
  const text = integerText(value)
  const ms = text === null ? NaN : Number(text)
  return ms > 0 && ms < 8.64e15 ? ms : null
}
