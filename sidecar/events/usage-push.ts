import { hash } from 'node:crypto'
import { LRUCache } from 'lru-cache'
import type { Now } from '../../core/lib/time.ts'
import { membersOf } from './ndjson.ts'

/**
 * The usage push of signer-contract 6.4, `{type, data}`: a ticket without the envelope of the event
 * stream. It has no id and no time, so both are given to it here, where it arrives:
 *
 * - Its id is the hash of its bytes and of the UTC day. A sender's retry repeats the bytes and gets
 *   the same id; another payment has another `request_id`. That has 32 bits only, so the day makes
 *   two payments of different days two, whatever they say.
 * - What was first seen within the last minutes keeps its first day and time, so that a retry
 *   becomes the same event byte by byte.
 *
 * So two payments of one user on one day that agree in every member, `request_id` too, count once;
 * and a retry that crosses midnight and meets another sidecar, or one that has just been restarted,
 * counts twice. A sender that gives `current_time` has neither limit.
 */
export function createUsagePushes({ now }: { readonly now: Now }): (envelope: Buffer) => Buffer {
  const firstSeen = new LRUCache<string, number>({ max: 50_000, ttl: 120_000 })

  function complete(envelope: Buffer): Buffer {
    const data = dataOf(envelope)
    if (!data) return envelope
    const nowMs = now().getTime()
    const digest = hash('sha256', envelope, 'hex')
    const seenMs = firstSeen.get(digest)
    if (seenMs === undefined) firstSeen.set(digest, nowMs)
    const arrivedMs = seenMs ?? nowMs
    return assemble(envelope, { ...data, arrivedMs, id: idOf(digest, data, arrivedMs) })
  }

  return complete
}

type Members = Readonly<Record<string, unknown>>

interface Data {
  readonly outer: Members
  readonly members: Members
  /** Behind the bracket that opens it. */
  readonly inside: number
}

const largest = 64 * 1024
const usual = Buffer.from('{"id":')
const dayMs = 86_400_000

/** The data of a usage push; null for everything else, which core judges as it came. */
function dataOf(envelope: Buffer): Data | null {
  if (envelope.length > largest || envelope.subarray(0, usual.length).equals(usual)) return null
  const outer = objectOf(envelope)
  if (!outer || 'id' in outer || outer['type'] !== 'create_signed_ticket') return null
  const members = outer['data']
  if (!isObject(members) || !isPayment(members)) return null
  // Twice the same member is ambiguous: core puts that aside.
  const [data, another] = membersOf(envelope).filter(({ name }) => name === 'data')
  return data && !another ? { outer, members, inside: data.at + 1 } : null
}

function isPayment(members: Members): boolean {
  const isNamed = isText(members['client_id']) && isText(members['usage_subject'])
  const isSomebodys = isNamed || isText(members['auth_id'])
  return isSomebodys && isText(members['request_id']) && members['computed_fee'] !== undefined
}

const isText = (value: unknown): value is string => typeof value === 'string' && value !== ''

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

function objectOf(bytes: Buffer): Record<string, unknown> | null {
  try {
    const value: unknown = JSON.parse(bytes.toString())
    return isObject(value) ? value : null
  } catch {
    return null
  }
}

function idOf(digest: string, { members }: Data, arrivedMs: number): string {
  const day = members['current_time'] === undefined ? Math.floor(arrivedMs / dayMs) : 'timed'
  return `usage-push-${hash('sha256', `${digest} ${day}`, 'hex').slice(0, 40)}`
}

interface Parts extends Data {
  readonly id: string
  readonly arrivedMs: number
}

// Put in between the bytes that came, so that every digit of them stays.
function assemble(envelope: Buffer, { outer, members, inside, id, arrivedMs }: Parts): Buffer {
  const start = envelope.indexOf('{') + 1
  const time = new Date(arrivedMs).toISOString()
  // Nothing of the arrival is in an event that has its own time: it is the same wherever it comes.
  const isTimed = members['current_time'] !== undefined
  return Buffer.concat([
    envelope.subarray(0, start),
    missing(outer, { id, ...(!isTimed && { timestamp: String(arrivedMs) }) }),
    envelope.subarray(start, inside),
    missing(members, { current_time: time, session_id: members['request_id'], sequence_number: 0 }),
    envelope.subarray(inside),
  ])
}

/** The members that `object` lacks, as text to stand before its own. */
function missing(object: Members, members: Members): Buffer {
  const lacking = Object.entries(members).filter(([name]) => object[name] === undefined)
  const texts = lacking.map(([name, value]) => `${JSON.stringify(name)}:${JSON.stringify(value)},`)
  return Buffer.from(texts.join(''))
}
