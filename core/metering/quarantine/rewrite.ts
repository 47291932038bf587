import {
  type Json,
  type JsonObject,
  isNumber,
  isObject,
  readExactJson,
} from '../../lib/exact-json.ts'

/** What an operator changes of a quarantined event before it is ingested. Its stored bytes do not change. */
export interface Decision {
  /** The user to charge instead of the one that the event names. */
  readonly authId?: string
  /** A new id, when another event has the id of this one. */
  readonly eventId?: string
}

/** The event with those members replaced; each number keeps its digits. Null for bytes that are no such event. */
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
