import { isUtf8 } from 'node:buffer'
import { hash } from 'node:crypto'
import {
  type JsonMembers,
  type JsonValue,
  hasMembers,
  isNumber,
  isObject,
  readExactJson,
} from '../../lib/exact-json.ts'
import { type Wei, formatEth, wei } from '../../lib/money.ts'
import { canonicalEventId, isUuid, subjectProblem } from '../../platform/ids.ts'
import { createShapeCache } from './shape-cache.ts'

/**
 * Parses one signer event exactly: first the envelope and its members, then single values.
 *
 * The parsers of integers, short decimals and instants within the same minute work digit by digit,
 * without a regular expression or a Date. Gains: they take a third of the time of the plain
 * expressions, in the `ingest by COPY` row of `npm run bench`. Plain version: those expressions,
 * with which test/core/metering/events/values.unit.test.ts compares them.
 */

/** Reasons why an event could not become a ticket. */
export const quarantineReasons = [
  'too_large',
  'not_utf8',
  'not_json',
  'too_deep',
  'duplicate_member',
  'not_an_object',
  'no_type',
  'no_id',
  'invalid_id',
  'invalid_data',
  'invalid_fee',
  'fee_out_of_range',
  'invalid_time',
  'time_out_of_range',
  'invalid_session',
  'invalid_sequence',
  'invalid_number',
  'unattributed',
  'unknown_client',
  'invalid_subject',
  'same_id_other_bytes',
  'rejected_by_database',
] as const
export type QuarantineReason = (typeof quarantineReasons)[number]

/** A `create_signed_ticket` event (docs/signer-events.md), checked and exact. */
export interface SignedTicket {
  readonly eventId: string
  readonly clientId: string
  readonly externalUserId: string
  /** ISO 8601 UTC with microseconds, the resolution of timestamptz. */
  readonly signedAt: string
  readonly signedAtMs: number
  readonly signedAtMicros: number
  readonly sessionId: string
  readonly sequenceNumber: string
  readonly requestId: string
  readonly manifestId: string
  readonly appName: string
  readonly pipeline: string
  readonly modelId: string
  readonly fee: Wei
  readonly billableSecs: string
  readonly pixels: string
  readonly numTickets: number
  readonly orchAddress: string
  readonly orchUrl: string
  readonly emittedAtMs: number | null
  /** The signer's exact statement of the cost in USD. Charges do not use it. */
  readonly statedUsd: string | null
}

/** The known parts of an event that cannot become a ticket. */
export interface EventProblem {
  readonly reason: QuarantineReason
  readonly detail: string
  readonly eventId: string | null
  readonly authId: string | null
  readonly fee: Wei | null
}

export type ParsedEvent =
  | {
      readonly kind: 'ticket'
      readonly ticket: SignedTicket
      /** Whether the event id was a UUID with upper-case letters. */
      readonly isFolded: boolean
    }
  | { readonly kind: 'ignored' }
  | { readonly kind: 'problem'; readonly problem: EventProblem }

/** The only billed event type; all others on the topic are ignored (docs/signer-events.md). */
const ticketType = 'create_signed_ticket'

/**
 * Limits of a ticket: age and lead of its signing time, and its fee in whole ETH
 * (`TICKET_MAX_...`).
 */
export interface SigningLimits {
  readonly maxAgeDays: number
  readonly maxAheadSeconds: number
  readonly maxFeeEth: number
}

/** Defaults of the settings. */
export const usualLimits: SigningLimits = {
  maxAgeDays: 365,
  maxAheadSeconds: 86_400,
  maxFeeEth: 100,
}

/** Limits for an event that was checked before. */
export const noLimits: SigningLimits = {
  maxAgeDays: Infinity,
  maxAheadSeconds: Infinity,
  maxFeeEth: 1_000_000_000,
}

export const maxEventBytes = 1024 * 1024
const maxIdLength = 200
const maxSessionIdLength = 128
const weiPerEth = 10n ** 18n
const dayMs = 86_400_000

/**
 * Parses the bytes of one event into a ticket, an event of another type, or a problem with its
 * reason. Never throws, passes no number through a float, and depends only on the arguments; `now`
 * and `limits` bound the signing time.
 */
export function parseEvent(
  bytes: Buffer,
  now: Date,
  limits: SigningLimits = usualLimits,
): ParsedEvent {
  if (bytes.length > maxEventBytes)
    return problem({ reason: 'too_large', detail: `${bytes.length} bytes` })
  const members = shapes.read(bytes)
  if (members) return parseEnvelope(members, { now, ...limits })
  if (!isUtf8(bytes)) return problem({ reason: 'not_utf8', detail: 'the bytes are not UTF-8' })
  const read = readExactJson(bytes.toString('utf8'))
  if ('fault' in read) return problem({ reason: read.fault, detail: `at character ${read.at}` })
  if (!isObject(read.value))
    return problem({ reason: 'not_an_object', detail: 'an envelope must be a JSON object' })
  shapes.learn(read.value)
  return parseEnvelope(read.value, { now, ...limits })
}

const shapes = createShapeCache()

interface SigningWindow extends SigningLimits {
  readonly now: Date
}

function parseEnvelope(envelope: JsonMembers, window: SigningWindow): ParsedEvent {
  const type = envelope.get('type')
  if (typeof type === 'string' && type !== ticketType) return { kind: 'ignored' }
  const data = envelope.get('data')
  const ticket =
    checkEnvelope(envelope) ??
    (hasMembers(data)
      ? parseTicket(envelope, data, window)
      : ['invalid_data', 'data is not an object'])
  if (!Array.isArray(ticket))
    return { kind: 'ticket', ticket, isFolded: ticket.eventId !== envelope.get('id') }
  const [reason, detail] = ticket
  return problem({ ...readableParts(envelope, data), reason, detail })
}

type Fault = [reason: QuarantineReason, detail: string]

function checkEnvelope(envelope: JsonMembers): Fault | null {
  const id = envelope.get('id')
  if (id === undefined || id === null || id === '')
    return ['no_id', 'the id is missing, so a repeat cannot be recognised']
  if (!isEventId(id)) return ['invalid_id', `an id must be text of 1 to ${maxIdLength} characters`]
  return envelope.get('type') === ticketType ? null : ['no_type', 'type is missing or not text']
}

const isEventId = (id: JsonValue | undefined): id is string =>
  typeof id === 'string' &&
  id !== '' &&
  id.length <= maxIdLength &&
  !id.includes('\u0000') &&
  id.isWellFormed()

/**
 * Returns the bytes to compare with those of repeats: if `eventId` is a UUID, with its upper-case
 * spelling replaced by lower case. Returns the same object if nothing is replaced, as nearly
 * always.
 */
export function foldEvent(bytes: Buffer, eventId: string): Buffer {
  if (!isUuid(eventId) || bytes.includes(`"${eventId}"`)) return bytes
  const text = bytes.toString('latin1')
  return Buffer.from(text.replace(new RegExp(eventId, 'gi'), eventId), 'latin1')
}

// Returns the readable parts for an operator's decision: event id, user and fee.
function readableParts(
  envelope: JsonMembers,
  data: JsonValue | undefined,
): Omit<EventProblem, 'reason' | 'detail'> {
  const id = envelope.get('id')
  const fee = hasMembers(data) ? feeOf(data.get('computed_fee')) : null
  return {
    eventId: isEventId(id) ? canonicalEventId(id) : null,
    authId: hasMembers(data) ? labelText(authIdOf(data)) : null,
    fee: typeof fee === 'bigint' && fee < 10n ** 78n ? fee : null,
  }
}

function problem(
  known: Pick<EventProblem, 'reason' | 'detail'> & Partial<EventProblem>,
): ParsedEvent {
  return { kind: 'problem', problem: { eventId: null, authId: null, fee: null, ...known } }
}

function parseTicket(
  envelope: JsonMembers,
  data: JsonMembers,
  window: SigningWindow,
): SignedTicket | Fault {
  const fee = feeOf(data.get('computed_fee'))
  if (fee === null)
    return ['invalid_fee', 'computed_fee is not a whole number of wei in decimal text']
  const tooHigh = aboveMaxFee(fee, window)
  if (tooHigh !== null) return ['fee_out_of_range', tooHigh]
  const signed = toInstant(data.get('current_time'))
  if (!signed) return ['invalid_time', 'current_time is not an RFC 3339 instant']
  const tooFar = outsideWindow(signed, window)
  if (tooFar !== null) return ['time_out_of_range', tooFar]
  const sessionId = data.get('session_id')
  if (!isSessionId(sessionId))
    return ['invalid_session', `session_id is not text of 1 to ${maxSessionIdLength} characters`]
  const subject = subjectOf(authIdOf(data))
  if (Array.isArray(subject)) return subject
  return assemble({ envelope, data, fee, signed, sessionId, subject })
}

/** Returns the bound that a fee exceeds, and what to do about it; null for a fee within it. */
function aboveMaxFee(fee: Wei, { maxFeeEth }: SigningLimits): string | null {
  // The setting is at least 1 ETH, so nearly all fees need no multiplication.
  if (fee <= weiPerEth || fee <= BigInt(maxFeeEth) * weiPerEth) return null
  const text = String(fee)
  const amount = text.length > 60 ? `a number of ${text.length} digits` : `${formatEth(fee)} ETH`
  return `computed_fee is ${amount}, more than TICKET_MAX_FEE_ETH=${maxFeeEth} allows; raise the setting and redrive the event if the signer did sign it, else discard it`
}

/** Describes the bound that a signing time exceeds; null if it is within both. */
function outsideWindow({ text, ms }: Instant, window: SigningWindow): string | null {
  const { now, maxAgeDays, maxAheadSeconds } = window
  if (ms < now.getTime() - maxAgeDays * dayMs)
    return `signed ${text}, further back than TICKET_MAX_AGE_DAYS=${maxAgeDays} allows`
  if (ms > now.getTime() + maxAheadSeconds * 1000)
    return `signed ${text}, further ahead than TICKET_MAX_AHEAD_SECONDS=${maxAheadSeconds} allows`
  return null
}

interface TicketParts {
  readonly envelope: JsonMembers
  readonly data: JsonMembers
  readonly fee: Wei
  readonly signed: Instant
  readonly sessionId: string
  readonly subject: NamedUser
}

function assemble({
  envelope,
  data,
  fee,
  signed,
  sessionId,
  subject,
}: TicketParts): SignedTicket | Fault {
  const sequenceNumber = sequenceText(data.get('sequence_number'))
  if (sequenceNumber === null)
    return ['invalid_sequence', 'sequence_number is not an integer from 0 to 2^63-2']
  const billableSecs = decimalText(data.get('billable_secs'))
  const pixels = int64Text(data.get('pixels'))
  const numTickets = int31(data.get('num_tickets'))
  if (billableSecs === null) return ['invalid_number', 'billable_secs is not a decimal below 10^12']
  if (pixels === null) return ['invalid_number', 'pixels is not a 64-bit integer']
  if (numTickets === null) return ['invalid_number', 'num_tickets is not a 32-bit count']
  return {
    ...subject,
    ...pipelineOf(data),
    eventId: canonicalEventId(String(envelope.get('id'))),
    signedAt: signed.text,
    signedAtMs: signed.ms,
    signedAtMicros: signed.micros,
    sessionId,
    sequenceNumber,
    fee,
    billableSecs,
    pixels,
    numTickets,
    requestId: labelText(data.get('request_id')),
    manifestId: labelText(data.get('manifest_id')),
    appName: labelText(data.get('app')),
    orchAddress: labelText(data.get('orch_address')),
    orchUrl: labelText(data.get('orch_url')),
    emittedAtMs: unixMs(envelope.get('timestamp')),
    statedUsd: exactDecimal(data.get('computed_fee_usd')),
  }
}

const isSessionId = (id: JsonValue | undefined): id is string =>
  typeof id === 'string' && id !== '' && id.length <= maxSessionIdLength && !id.includes('\u0000')

// The signer sends text. A number is accepted only if it is small enough that no JSON library can
// have rounded it.
function feeOf(value: JsonValue | undefined): Wei | null {
  const text =
    typeof value === 'string' && value.length > 40 ? longInteger(value) : integerText(value)
  if (text === null || text.startsWith('-')) return null
  const fee = BigInt(text)
  return isNumber(value) && fee > BigInt(Number.MAX_SAFE_INTEGER) ? null : wei(fee)
}

const longInteger = (text: string): string | null => (/^[1-9]\d{40,999}$/.test(text) ? text : null)

// Forks of the signer send the two halves of `auth_id` as separate members
// (docs/signer-events.md).
function authIdOf(data: JsonMembers): string {
  const authId = data.get('auth_id')
  if (typeof authId === 'string' && authId !== '') return authId
  const client = data.get('client_id')
  const subject = data.get('usage_subject')
  return typeof client === 'string' && typeof subject === 'string' && client && subject
    ? `${client}:${subject}`
    : ''
}

interface NamedUser {
  readonly clientId: string
  readonly externalUserId: string
}

const maxSubjects = 10_000
const subjects = new Map<string, NamedUser>()

/**
 * Splits an auth id into its two ids. Caches the result: a user signs many tickets, and map keys
 * compare faster if they are the same string object.
 */
function subjectOf(authId: string): NamedUser | Fault {
  const known = subjects.get(authId)
  if (known) return known
  // A slice would keep the whole event text in memory; a copy does not.
  const copy = Buffer.from(authId).toString()
  const subject = readSubject(copy)
  if (Array.isArray(subject)) return subject
  if (subjects.size >= maxSubjects) subjects.clear()
  subjects.set(copy, subject)
  return subject
}

function readSubject(authId: string): NamedUser | Fault {
  if (authId === '') return ['unattributed', 'auth_id is empty, so no user can be charged']
  const colon = authId.indexOf(':')
  if (colon < 1) return ['unknown_client', 'auth_id names no client']
  const invalid = subjectProblem(authId.slice(colon + 1))
  if (invalid !== null) return ['invalid_subject', invalid]
  return { clientId: authId.slice(0, colon), externalUserId: authId.slice(colon + 1).trim() }
}

// `base:model` in one member, or the model in a separate member, which then wins
// (docs/signer-events.md).
function pipelineOf(data: JsonMembers): { pipeline: string; modelId: string } {
  const full = labelText(data.get('pipeline'))
  const colon = full.indexOf(':')
  const base = colon < 0 ? full : full.slice(0, colon)
  const model = colon < 0 ? '' : full.slice(colon + 1)
  return {
    pipeline: base || 'unknown',
    modelId: labelText(data.get('model_id')) || model || 'unknown',
  }
}

/** Reads an integer from a JSON number or a decimal string. */
export function integerText(value: JsonValue | undefined): string | null {
  const text = isNumber(value) ? value.literal : value
  return typeof text === 'string' && text.length <= 40 && isInteger(text) ? text : null
}

/** Equals /^-?(?:0|[1-9]\d*)$/, in a third of the time. */
function isInteger(text: string): boolean {
  const start = text.charCodeAt(0) === minus ? 1 : 0
  if (text.charCodeAt(start) === zero) return text.length === start + 1
  return text.length > start && !Number.isNaN(digitsOf(text, start, text.length))
}

const maxSequence = 2n ** 63n - 2n

/**
 * Reads 0 to 2^63-2, without a float. The maximum is that low because a Postgres range of bigint
 * must also hold its exclusive end.
 */
export function sequenceText(value: JsonValue | undefined): string | null {
  const text = integerText(value)
  if (text === null || text.startsWith('-')) return null
  return text.length < 19 || BigInt(text) <= maxSequence ? text : null
}

/** Reads -2^63 to 2^63-1; zero if absent. */
export function int64Text(value: JsonValue | undefined): string | null {
  const text = value === undefined || value === null ? '0' : integerText(value)
  if (text === null) return null
  return text.length < 19 || BigInt.asIntN(64, BigInt(text)) === BigInt(text)
    ? plainZero(text)
    : null
}

const plainZero = (text: string): string => (text === '-0' ? '0' : text)

/** Reads 0 to 2^31-1; zero if absent. */
export function int31(value: JsonValue | undefined): number | null {
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
export function decimalText(value: JsonValue | undefined): string | null {
  if (value === undefined || value === null) return '0'
  const literal = isNumber(value) ? value.literal : typeof value === 'string' ? value : ''
  return isShort(literal) ? literal : plainDecimal(literal)
}

function plainDecimal(literal: string): string | null {
  const match = decimal.exec(literal)
  if (!match) return null
  const [text, sign = '', whole = '', fraction = '', exponent = '0'] = match
  if (exponent === '0' && whole.length <= maxWhole && fraction.length <= maxPlaces)
    return plainZero(text.replace(/[eE].*/, ''))
  return shifted({ sign, digits: whole + fraction, point: whole.length + Number(exponent) })
}

/** Matches one to nine digits, a point, and one to nine more digits. */
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
  /** ISO 8601 UTC with microseconds; finer digits are cut. */
  readonly text: string
  readonly ms: number
  readonly micros: number
}

/** Parses RFC 3339 with any fraction and offset; returns UTC to the microsecond. */
export function toInstant(value: JsonValue | undefined): Instant | null {
  return (
    (typeof value === 'string' && value.length <= 60 ? sameMinute(value) : null) ??
    anyInstant(value)
  )
}

/**
 * The minute of the last instant in UTC, with its final colon: most stream events share the minute
 * of the event before.
 */
let minute = { text: '', ms: 0 }
const minuteLength = '2026-01-01T00:00:'.length

/** Parses a UTC time with a fraction in the minute of the last instant; null for any other text. */
function sameMinute(text: string): Instant | null {
  const start = minuteLength + 3
  const end = text.length - 1
  if (end <= start || minute.text === '' || !text.startsWith(minute.text)) return null
  if (text.charCodeAt(start - 1) !== point || text.charCodeAt(end) !== zulu) return null
  const seconds = digitsOf(text, minuteLength, start - 1)
  const cut = Math.min(end, start + 6)
  const micros = digitsOf(text, start, cut) * 10 ** (6 - cut + start)
  if (!(seconds < 60 && micros >= 0 && digitsOf(text, cut, end) >= 0)) return null
  const ms = Math.floor(micros / 1000)
  const plain = end === start + 6 ? text : `${text.slice(0, cut)}${'0'.repeat(6 - cut + start)}Z`
  return instant(plain, minute.ms + seconds * 1000 + ms, micros - ms * 1000)
}

const [zulu, minus, point, zero] = [90, 45, 46, 48]

/** Parses the decimal digits from `from` to `to`; NaN if a character is not a digit. */
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
export function labelText(value: JsonValue | undefined): string {
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
export const exactDecimal = (value: JsonValue | undefined): string | null =>
  typeof value === 'string' && statedDecimal.test(value) ? value : null

/** Reads a Unix time in milliseconds from decimal text or a number (docs/signer-events.md). */
export function unixMs(value: JsonValue | undefined): number | null {
  const text = integerText(value)
  const ms = text === null ? NaN : Number(text)
  return ms > 0 && ms < 8.64e15 ? ms : null
}
