import {
  type Json,
  type JsonObject,
  isNumber,
  isObject,
  readExactJson,
} from '../../lib/exact-json.ts'

/** What an operator decides about a quarantined event; its bytes stay as they came. */
export interface Decision {
  /** Whose it is, in place of what it says. */
  readonly authId?: string
  /** Its id, where its own stands for another event. */
  readonly eventId?: string
}

/** The event as it would be with those members; every number stays as it was written. Null when it is no such object. */
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
