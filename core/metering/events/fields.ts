import { hash } from 'node:crypto'
import { type JsonValue, isNumber } from '../../lib/exact-json.ts'

/** Values of an event's members, read exactly. Each reader returns null for what it cannot take. */

/** An integer, as a JSON number or (signer-contract 6.4) a decimal string. */
export function integerText(value: JsonValue | undefined): string | null {
  const text = isNumber(value) ? value.literal : value
  return typeof text === 'string' && text.length <= 40 && isInteger(text) ? text : null
}

/** As /^-?(?:0|[1-9]\d*)$/ would say it, in a third of its time. */
function isInteger(text: string): boolean {
  const start = text.charCodeAt(0) === minus ? 1 : 0
  if (text.charCodeAt(start) === zero) return text.length === start + 1
  return text.length > start && !Number.isNaN(digitsOf(text, start, text.length))
}

const maxSequence = 2n ** 63n - 2n

/** 0 to 2^63-2, without passing through a float: what a range of Postgres's bigint can hold with its end. */
export function sequenceText(value: JsonValue | undefined): string | null {
  const text = integerText(value)
  if (text === null || text.startsWith('-')) return null
  return text.length < 19 || BigInt(text) <= maxSequence ? text : null
}

/** -2^63 to 2^63-1; absent is zero. */
export function int64Text(value: JsonValue | undefined): string | null {
  const text = value === undefined || value === null ? '0' : integerText(value)
  if (text === null) return null
  return text.length < 19 || BigInt.asIntN(64, BigInt(text)) === BigInt(text)
    ? plainZero(text)
    : null
}

const plainZero = (text: string): string => (text === '-0' ? '0' : text)

/** 0 to 2^31-1; absent is zero. */
export function int31(value: JsonValue | undefined): number | null {
  const text = int64Text(value)
  const number = Number(text ?? NaN)
  return number >= 0 && number <= 0x7fff_ffff ? number : null
}

const decimal = /^(-?)(0|[1-9]\d*)(?:\.(\d+))?(?:[eE]([+-]?\d{1,5}))?$/
const maxWhole = 12
const maxPlaces = 30

/** A decimal below 10^12 in plain notation, cut after 30 places; absent is zero. Go writes floats as 5.12 or 1e-09. */
export function decimalText(value: JsonValue | undefined): string | null {
  if (value === undefined || value === null) return '0'
  const given = isNumber(value) ? value.literal : typeof value === 'string' ? value : ''
  if (isShort(given)) return given
  const match = decimal.exec(given)
  if (!match) return null
  const [text, sign = '', whole = '', fraction = '', exponent = '0'] = match
  if (exponent === '0' && whole.length <= maxWhole && fraction.length <= maxPlaces)
    return plainZero(text.replace(/[eE].*/, ''))
  return shifted({ sign, digits: whole + fraction, point: whole.length + Number(exponent) })
}

/** Up to nine digits, a point, and up to nine more. */
function isShort(text: string): boolean {
  const at = text.indexOf('.')
  if (at < 1 || at > 9 || text.length > at + 10 || text.length === at + 1) return false
  if (text.charCodeAt(0) === zero && at > 1) return false
  return !Number.isNaN(digitsOf(text, 0, at) + digitsOf(text, at + 1, text.length))
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
  /** With microseconds, what follows cut. */
  readonly text: string
  readonly ms: number
  readonly micros: number
}

/** RFC 3339 with any fraction and offset, as UTC to the microsecond. */
export function instantOf(value: JsonValue | undefined): Instant | null {
  return (
    (typeof value === 'string' && value.length <= 60 ? sameMinute(value) : null) ??
    anyInstant(value)
  )
}

/** The minute that was read last, up to its colon: events follow each other, and most are of the same. */
let minute = { text: '', ms: 0 }
const minuteLength = '2026-01-01T00:00:'.length

/** Null for what is not plainly a time in UTC, with a fraction, in the minute that was read last. */
function sameMinute(text: string): Instant | null {
  const start = minuteLength + 3
  const end = text.length - 1
  if (end <= start || minute.text === '' || !text.startsWith(minute.text)) return null
  if (text.charCodeAt(start - 1) !== point || text.charCodeAt(end) !== zulu) return null
  const seconds = digitsOf(text, minuteLength, start - 1)
  const kept = Math.min(end, start + 6)
  const micros = digitsOf(text, start, kept) * 10 ** (6 - kept + start)
  if (!(seconds < 60 && micros >= 0 && digitsOf(text, kept, end) >= 0)) return null
  const ms = Math.floor(micros / 1000)
  const plain = end === start + 6 ? text : `${text.slice(0, kept)}${'0'.repeat(6 - kept + start)}Z`
  return instant(plain, minute.ms + seconds * 1000 + ms, micros - ms * 1000)
}

const [zulu, minus, point, zero] = [90, 45, 46, 48]

/** The number that the digits from `from` to `to` are; NaN when one of them is none. */
function digitsOf(text: string, from: number, to: number): number {
  let number = 0
  for (let i = from; i < to; i++) {
    const digit = text.charCodeAt(i) - zero
    if (!(digit >= 0 && digit <= 9)) return NaN
    number = number * 10 + digit
  }
  return number
}

const instant = (text: string, ms: number, micros: number): Instant => ({
  text,
  ms,
  micros: ms * 1000 + micros,
})

function anyInstant(value: JsonValue | undefined): Instant | null {
  const match = typeof value === 'string' && value.length <= 60 ? rfc3339.exec(value) : null
  if (!match) return null
  const [, year, month, day, hour, minutes, second, fraction = '', zone = ''] = match
  const seconds = `${year}-${month}-${day}T${hour}:${minutes}:${second}`
  const micros = fraction.slice(0, 6).padEnd(6, '0')
  const wall = wallClock({ year, month, day, hour, minute: minutes, second })
  const ms = wall + Number(micros.slice(0, 3)) - offsetMs(zone)
  if (Number.isNaN(ms)) return null
  if (zone === 'Z')
    minute = {
      text: `${year}-${month}-${day}T${hour}:${minutes}:`,
      ms: wall - Number(second) * 1000,
    }
  const utc = zone === 'Z' ? seconds : new Date(ms).toISOString().slice(0, 19)
  return instant(`${utc}.${micros}Z`, ms, Number(micros.slice(3)))
}

/** The text of a time in microseconds since 1970, exact. */
export const microsText = (micros: number): string =>
  new Date(Math.floor(micros / 1000))
    .toISOString()
    .replace('Z', `${String(micros % 1000).padStart(3, '0')}Z`)

/** NaN for a time that no calendar has: the 31st of February, or 24:00. */
function wallClock(
  parts: Record<'year' | 'month' | 'day' | 'hour' | 'minute' | 'second', string | undefined>,
): number {
  const [year, month, day] = [Number(parts.year), Number(parts.month), Number(parts.day)]
  const [hour, minute, second] = [Number(parts.hour), Number(parts.minute), Number(parts.second)]
  if (month < 1 || month > 12 || day < 1 || hour > 23 || minute > 59 || second > 59) return NaN
  const midnight = Date.UTC(year, month - 1, day)
  // A day that the month lacks becomes one of the next.
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

/** Text that describes and never decides: anything else is empty, NUL (which Postgres refuses) is replaced. */
export function describing(value: JsonValue | undefined): string {
  if (typeof value !== 'string') return ''
  const text = value.includes('\u0000') ? value.replaceAll('\u0000', '\ufffd') : value
  return text.length <= 64 ? text : shortened(text.toWellFormed())
}

const maxBytes = 256

// A long client-chosen id keeps its beginning and the hash of all of it, so that two that begin alike stay two.
function shortened(text: string): string {
  const bytes = Buffer.from(text)
  if (bytes.length <= maxBytes) return text
  const digest = hash('sha256', bytes, 'hex')
  const room = maxBytes - digest.length - 1
  const start = new TextDecoder().decode(bytes.subarray(0, room), { stream: true })
  return `${start}~${digest}`
}

const statedDecimal = /^(?:0|[1-9]\d{0,29})(?:\.\d{1,18})?$/

/** An exact amount in text; a number, which a float may have rounded, is as good as none. */
export const exactDecimal = (value: JsonValue | undefined): string | null =>
  typeof value === 'string' && statedDecimal.test(value) ? value : null

/** A Unix time in milliseconds as decimal text or number (signer-contract 5.3). */
export function unixMs(value: JsonValue | undefined): number | null {
  const text = integerText(value)
  const ms = text === null ? NaN : Number(text)
  return ms > 0 && ms < 8.64e15 ? ms : null
}
