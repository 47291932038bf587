import { hash } from 'node:crypto'
import { LRUCache } from 'lru-cache'
import type { Now } from '../../core/lib/time.ts'
import { type JsonObject, isObject, parseObject } from '../../core/lib/json.ts'
import { listMembers } from './ndjson.ts'

/**
 * Completes usage pushes, `{type, data}` (docs/signer-events.md): tickets without the envelope of
 * the event stream. They have no id and no time, so both are added on arrival:
 *
 * - The id is the hash of the bytes and of the UTC day. A sender's retry repeats the bytes and gets
 *   the same id; another payment has another `request_id`. Because that has only 32 bits, the day
 *   separates payments of different days.
 * - Bytes that were received before within two minutes keep their first day and time, so that a
 *   retry becomes the same event byte by byte.
 *
 * So two payments of one user on one day that agree in every member, including `request_id`, count
 * once; and a retry that crosses midnight and reaches another or a restarted sidecar counts twice.
 * A sender that sets `current_time` has neither limit.
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

interface PushData {
  readonly outer: JsonObject
  readonly members: JsonObject
  /** Index after its opening bracket. */
  readonly inside: number
}

const maxPushBytes = 64 * 1024
const envelopeStart = Buffer.from('{"id":')
const dayMs = 86_400_000

/** Returns the data of a usage push; null for everything else, which goes to core unchanged. */
function dataOf(envelope: Buffer): PushData | null {
  if (
    envelope.length > maxPushBytes ||
    envelope.subarray(0, envelopeStart.length).equals(envelopeStart)
  )
    return null
  const outer = parseObject(envelope.toString())
  if (!outer || 'id' in outer || outer['type'] !== 'create_signed_ticket') return null
  const members = outer['data']
  if (!isObject(members) || !isPayment(members)) return null
  // A repeated member is ambiguous: core quarantines it.
  const [data, another] = listMembers(envelope).filter(({ name }) => name === 'data')
  return data && !another ? { outer, members, inside: data.at + 1 } : null
}

function isPayment(members: JsonObject): boolean {
  const isNamed = isText(members['client_id']) && isText(members['usage_subject'])
  const hasUser = isNamed || isText(members['auth_id'])
  return hasUser && isText(members['request_id']) && members['computed_fee'] !== undefined
}

const isText = (value: unknown): value is string => typeof value === 'string' && value !== ''

function idOf(digest: string, { members }: PushData, arrivedMs: number): string {
  const day = members['current_time'] === undefined ? Math.floor(arrivedMs / dayMs) : 'timed'
  return `usage-push-${hash('sha256', `${digest} ${day}`, 'hex').slice(0, 40)}`
}

interface Parts extends PushData {
  readonly id: string
  readonly arrivedMs: number
}

// Inserts into the original bytes, so that no digit changes.
function assemble(envelope: Buffer, { outer, members, inside, id, arrivedMs }: Parts): Buffer {
  const start = envelope.indexOf('{') + 1
  const time = new Date(arrivedMs).toISOString()
  // Add nothing of the arrival to an event with its own time, so that it is the same in every
  // sidecar.
  const isTimed = members['current_time'] !== undefined
  return Buffer.concat([
    envelope.subarray(0, start),
    missing(outer, { id, ...(!isTimed && { timestamp: String(arrivedMs) }) }),
    envelope.subarray(start, inside),
    missing(members, { current_time: time, session_id: members['request_id'], sequence_number: 0 }),
    envelope.subarray(inside),
  ])
}

/** Returns the `members` that `object` lacks, as text to insert before its own. */
function missing(object: JsonObject, members: JsonObject): Buffer {
  const lacking = Object.entries(members).filter(([name]) => object[name] === undefined)
  const texts = lacking.map(([name, value]) => `${JSON.stringify(name)}:${JSON.stringify(value)},`)
  return Buffer.from(texts.join(''))
}
