/** What the writer takes: bigint for integers that must keep every digit. */
export type JsonOut =
  | null
  | boolean
  | number
  | bigint
  | string
  | readonly JsonOut[]
  | { readonly [name: string]: JsonOut }

const ESCAPES: Readonly<Record<string, string>> = {
  '<': '\\u003c',
  '>': '\\u003e',
  '&': '\\u0026',
  '\u2028': '\\u2028',
  '\u2029': '\\u2029',
}

function writeString(text: string): string {
  return JSON.stringify(text).replace(/[<>&\u2028\u2029]/g, (found) => ESCAPES[found] ?? found)
}

const isList = (value: object): value is readonly JsonOut[] => Array.isArray(value)

/**
 * Promise: compact JSON with the bytes Go's json.Marshal prints, members in insertion order.
 * Floats agree because Go and JavaScript switch to exponents at the same magnitudes.
 */
export function writeJson(value: JsonOut): string {
  if (typeof value === 'string') return writeString(value)
  if (value === null || typeof value !== 'object') return String(value)
  if (isList(value)) return `[${value.map(writeJson).join(',')}]`
  const members = Object.entries(value)
  return `{${members.map(([name, item]) => `${writeString(name)}:${writeJson(item)}`).join(',')}}`
}
