import { isUtf8 } from 'node:buffer'
import {
  type JsonObject,
  type Json,
  isNumber,
  isObject,
  readExactJson,
} from '../../lib/exact-json.ts'
import { type Wei, formatEth, wei } from '../../lib/money.ts'
import { canonicalEventId, isUuid, subjectProblem } from '../../shared/ids.ts'
import {
  type Instant,
  decimalText,
  exactDecimal,
  int31,
  int64Text,
  integerText,
  labelText,
  sequenceText,
  toInstant,
  unixMs,
} from './values.ts'

/** Parses one signer event exactly: first the envelope and its members, then single values. */

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
  if (!isUtf8(bytes)) return problem({ reason: 'not_utf8', detail: 'the bytes are not UTF-8' })
  const read = readExactJson(bytes.toString('utf8'))
  if ('fault' in read) return problem({ reason: read.fault, detail: `at character ${read.at}` })
  if (!isObject(read.value))
    return problem({ reason: 'not_an_object', detail: 'an envelope must be a JSON object' })
  return parseEnvelope(read.value, { now, ...limits })
}

interface SigningWindow extends SigningLimits {
  readonly now: Date
}

function parseEnvelope(envelope: JsonObject, window: SigningWindow): ParsedEvent {
  const type = envelope.get('type')
  if (typeof type === 'string' && type !== ticketType) return { kind: 'ignored' }
  const data = envelope.get('data')
  const ticket =
    checkEnvelope(envelope) ??
    (isObject(data)
      ? parseTicket(envelope, data, window)
      : ['invalid_data', 'data is not an object'])
  if (!Array.isArray(ticket))
    return { kind: 'ticket', ticket, isFolded: ticket.eventId !== envelope.get('id') }
  const [reason, detail] = ticket
  return problem({ ...readableParts(envelope, data), reason, detail })
}

type Fault = [reason: QuarantineReason, detail: string]

function checkEnvelope(envelope: JsonObject): Fault | null {
  const id = envelope.get('id')
  if (id === undefined || id === null || id === '')
    return ['no_id', 'the id is missing, so a repeat cannot be recognised']
  if (!isEventId(id)) return ['invalid_id', `an id must be text of 1 to ${maxIdLength} characters`]
  return envelope.get('type') === ticketType ? null : ['no_type', 'type is missing or not text']
}

const isEventId = (id: Json | undefined): id is string =>
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
  envelope: JsonObject,
  data: Json | undefined,
): Omit<EventProblem, 'reason' | 'detail'> {
  const id = envelope.get('id')
  const fee = isObject(data) ? feeOf(data.get('computed_fee')) : null
  return {
    eventId: isEventId(id) ? canonicalEventId(id) : null,
    authId: isObject(data) ? labelText(authIdOf(data)) : null,
    fee: typeof fee === 'bigint' && fee < 10n ** 78n ? fee : null,
  }
}

function problem(
  known: Pick<EventProblem, 'reason' | 'detail'> & Partial<EventProblem>,
): ParsedEvent {
  return { kind: 'problem', problem: { eventId: null, authId: null, fee: null, ...known } }
}

function parseTicket(
  envelope: JsonObject,
  data: JsonObject,
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
  readonly envelope: JsonObject
  readonly data: JsonObject
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

const isSessionId = (id: Json | undefined): id is string =>
  typeof id === 'string' && id !== '' && id.length <= maxSessionIdLength && !id.includes('\u0000')

// The signer sends text. A number is accepted only if it is small enough that no JSON library can
// have rounded it.
function feeOf(value: Json | undefined): Wei | null {
  const text =
    typeof value === 'string' && value.length > 40 ? longInteger(value) : integerText(value)
  if (text === null || text.startsWith('-')) return null
  const fee = BigInt(text)
  return isNumber(value) && fee > BigInt(Number.MAX_SAFE_INTEGER) ? null : wei(fee)
}

const longInteger = (text: string): string | null => (/^[1-9]\d{40,999}$/.test(text) ? text : null)

// Forks of the signer send the two halves of `auth_id` as separate members
// (docs/signer-events.md).
function authIdOf(data: JsonObject): string {
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
function pipelineOf(data: JsonObject): { pipeline: string; modelId: string } {
  const full = labelText(data.get('pipeline'))
  const colon = full.indexOf(':')
  const base = colon < 0 ? full : full.slice(0, colon)
  const model = colon < 0 ? '' : full.slice(colon + 1)
  return {
    pipeline: base || 'unknown',
    modelId: labelText(data.get('model_id')) || model || 'unknown',
  }
}
