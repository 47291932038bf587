import {
  type Json,
  type JsonObject,
  isNumber,
  isObject,
  readExactJson,
} from '../../lib/exact-json.ts'

/**
 * An operator's changes to a quarantined event before it is ingested. Its stored bytes do not
 * change.
 */
export interface Decision {
  /** The user to charge instead of the one in the event. */
  readonly authId?: string
  /** A new id, if another event has this one. */
  readonly eventId?: string
}

/**
 * Returns the event with those members replaced; each number keeps its digits. Null if the bytes
 * are not such an event.
 */
export function rewritten(bytes: Buffer, { authId, eventId }: Decision): Buffer | null {
  const read = readExactJson(bytes.toString('utf8'))
  if ('fault' in read || !isObject(read.value)) return null
  const data = read.value.get('data')
  if (!isObject(data)) return null
  const envelope = new Map(read.value)
  if (eventId !== undefined) envelope.set('id', eventId)
  if (authId !== undefined) envelope.set('data', new Map(data).set('auth_id', authId))
  return Buffer.from(writeJson(envelope))
}

function writeJson(value: Json): string {
  if (isObject(value)) return writeObject(value)
  if (isNumber(value)) return value.literal
  if (isArray(value)) return `[${value.map(writeJson).join(',')}]`
  return JSON.stringify(value)
}

const isArray = (value: Json): value is readonly Json[] => Array.isArray(value)

const writeObject = (value: JsonObject): string =>
  `{${[...value].map(([name, member]) => `${JSON.stringify(name)}:${writeJson(member)}`).join(',')}}`
