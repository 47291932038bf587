import { isUtf8 } from 'node:buffer'
import { subjectProblem } from '../../platform/ids.ts'
import { type Wei, wei } from '../../lib/money.ts'
import {
  type Instant,
  decimalText,
  describing,
  exactDecimal,
  instantOf,
  int31,
  int64Text,
  integerText,
  sequenceText,
  unixMs,
} from './fields.ts'
import {
  type JsonMembers,
  type JsonValue,
  hasMembers,
  isNumber,
  isObject,
  readExactJson,
} from '../../lib/exact-json.ts'
import { createLayouts } from './shape-cache.ts'
import type { ParsedEvent, Problem, QuarantineReason, SignedTicket } from '../types.ts'

/** The one type that is billed; everything else on the topic is somebody else's (signer-contract 5.6). */
const ticketType = 'create_signed_ticket'

export const maxEventBytes = 1024 * 1024
const maxIdLength = 200
const maxSessionIdLength = 128
/** More than all the ether there is (1.2e26 wei), and small enough that a cost fits its column. */
const maxFee = 10n ** 27n
const earliest = Date.UTC(2020, 0, 1)
const dayMs = 86_400_000

/**
 * What an event is, from its bytes alone: a ticket, ignorable by type, or a problem with a reason. Pure, exact and
 * total: no input throws, no number passes through a float. `now` bounds the signing time.
 */
export function parseEvent(bytes: Buffer, now: Date): ParsedEvent {
  if (bytes.length > maxEventBytes)
    return problem({ reason: 'too_large', detail: `${bytes.length} bytes` })
  const members = layouts.read(bytes)
  if (members) return parseEnvelope(members, now)
  if (!isUtf8(bytes)) return problem({ reason: 'not_utf8', detail: 'the bytes are not UTF-8' })
  const read = readExactJson(bytes.toString('utf8'))
  if ('fault' in read) return problem({ reason: read.fault, detail: `at character ${read.at}` })
  if (!isObject(read.value))
    return problem({ reason: 'not_an_object', detail: 'an envelope is a JSON object' })
  layouts.learn(read.value)
  return parseEnvelope(read.value, now)
}

const layouts = createLayouts()

function parseEnvelope(envelope: JsonMembers, now: Date): ParsedEvent {
  const type = envelope.get('type')
  if (typeof type === 'string' && type !== ticketType) return { kind: 'ignored' }
  const data = envelope.get('data')
  const found =
    checkEnvelope(envelope) ??
    (hasMembers(data)
      ? parseTicket(envelope, data, now)
      : ['invalid_data', 'data is not an object'])
  if (!Array.isArray(found)) return { kind: 'ticket', ticket: found }
  return problem({ ...hints(envelope, data), reason: found[0], detail: found[1] })
}

type Fault = [reason: QuarantineReason, detail: string]

function checkEnvelope(envelope: JsonMembers): Fault | null {
  const id = envelope.get('id')
  if (id === undefined || id === null || id === '')
    return ['no_id', 'without an id a repeat cannot be recognised']
  if (!isEventId(id)) return ['invalid_id', `an id is text of 1 to ${maxIdLength} characters`]
  return envelope.get('type') === ticketType ? null : ['no_type', 'type is missing or not text']
}

const isEventId = (id: JsonValue | undefined): id is string =>
  typeof id === 'string' &&
  id !== '' &&
  id.length <= maxIdLength &&
  !id.includes('\u0000') &&
  id.isWellFormed()

// What an operator wants to see of a problem, as far as it can be read.
function hints(
  envelope: JsonMembers,
  data: JsonValue | undefined,
): Omit<Problem, 'reason' | 'detail'> {
  const id = envelope.get('id')
  const fee = hasMembers(data) ? feeOf(data.get('computed_fee')) : null
  return {
    eventId: isEventId(id) ? id : null,
    authId: hasMembers(data) ? describing(authIdOf(data)) : null,
    fee: typeof fee === 'bigint' && fee < 10n ** 78n ? fee : null,
  }
}

function problem(given: Pick<Problem, 'reason' | 'detail'> & Partial<Problem>): ParsedEvent {
  return { kind: 'problem', problem: { eventId: null, authId: null, fee: null, ...given } }
}

function parseTicket(envelope: JsonMembers, data: JsonMembers, now: Date): SignedTicket | Fault {
  const fee = feeOf(data.get('computed_fee'))
  if (fee === null)
    return ['invalid_fee', 'computed_fee is not a whole number of wei in decimal text']
  if (fee > maxFee) return ['fee_out_of_range', 'computed_fee is more ether than there is']
  const signed = instantOf(data.get('current_time'))
  if (!signed) return ['invalid_time', 'current_time is not an RFC 3339 instant']
  if (signed.ms < earliest || signed.ms > now.getTime() + dayMs)
    return ['time_out_of_range', signed.text]
  const sessionId = data.get('session_id')
  if (!isSessionId(sessionId))
    return ['invalid_session', `session_id is not text of 1 to ${maxSessionIdLength} characters`]
  const subject = subjectOf(authIdOf(data))
  if (Array.isArray(subject)) return subject
  return assemble({ envelope, data, fee, signed, sessionId, subject })
}

interface Parts {
  readonly envelope: JsonMembers
  readonly data: JsonMembers
  readonly fee: Wei
  readonly signed: Instant
  readonly sessionId: string
  readonly subject: Named
}

function assemble({
  envelope,
  data,
  fee,
  signed,
  sessionId,
  subject,
}: Parts): SignedTicket | Fault {
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
    eventId: String(envelope.get('id')),
    signedAt: signed.text,
    signedAtMs: signed.ms,
    signedAtMicros: signed.micros,
    sessionId,
    sequenceNumber,
    fee,
    billableSecs,
    pixels,
    numTickets,
    requestId: describing(data.get('request_id')),
    manifestId: describing(data.get('manifest_id')),
    appName: describing(data.get('app')),
    orchAddress: describing(data.get('orch_address')),
    orchUrl: describing(data.get('orch_url')),
    emittedAtMs: unixMs(envelope.get('timestamp')),
    statedUsd: exactDecimal(data.get('computed_fee_usd')),
  }
}

const isSessionId = (id: JsonValue | undefined): id is string =>
  typeof id === 'string' && id !== '' && id.length <= maxSessionIdLength && !id.includes('\u0000')

// The signer sends text. A number is taken when no JSON library in between can have rounded it (vector K13).
function feeOf(value: JsonValue | undefined): Wei | null {
  const text =
    typeof value === 'string' && value.length > 40 ? longInteger(value) : integerText(value)
  if (text === null || text.startsWith('-')) return null
  const fee = BigInt(text)
  return isNumber(value) && fee > BigInt(Number.MAX_SAFE_INTEGER) ? null : wei(fee)
}

const longInteger = (text: string): string | null => (/^[1-9]\d{40,999}$/.test(text) ? text : null)

// Forks name the halves apart instead of joined (billing facts 2.3).
function authIdOf(data: JsonMembers): string {
  const authId = data.get('auth_id')
  if (typeof authId === 'string' && authId !== '') return authId
  const client = data.get('client_id')
  const subject = data.get('usage_subject')
  return typeof client === 'string' && typeof subject === 'string' && client && subject
    ? `${client}:${subject}`
    : ''
}

interface Named {
  readonly clientId: string
  readonly externalUserId: string
}

const maxSubjects = 10_000
const subjects = new Map<string, Named>()

/** Remembers what it has read: a user's tickets are many, and texts that are the same one are found faster. */
function subjectOf(authId: string): Named | Fault {
  const known = subjects.get(authId)
  if (known) return known
  // A copy: what was cut out of an event keeps all of its text in memory.
  const kept = Buffer.from(authId).toString()
  const subject = readSubject(kept)
  if (Array.isArray(subject)) return subject
  if (subjects.size >= maxSubjects) subjects.clear()
  subjects.set(kept, subject)
  return subject
}

function readSubject(authId: string): Named | Fault {
  if (authId === '') return ['unattributed', 'auth_id is empty: nobody can be charged']
  const colon = authId.indexOf(':')
  if (colon < 1) return ['unknown_client', 'auth_id names no client']
  const wrong = subjectProblem(authId.slice(colon + 1))
  if (wrong !== null) return ['invalid_subject', wrong]
  return { clientId: authId.slice(0, colon), externalUserId: authId.slice(colon + 1).trim() }
}

// `base:model` in one member, or the model in its own, which then wins (billing facts 2.3).
function pipelineOf(data: JsonMembers): { pipeline: string; modelId: string } {
  const full = describing(data.get('pipeline'))
  const colon = full.indexOf(':')
  const base = colon < 0 ? full : full.slice(0, colon)
  const model = colon < 0 ? '' : full.slice(colon + 1)
  return {
    pipeline: base || 'unknown',
    modelId: describing(data.get('model_id')) || model || 'unknown',
  }
}
