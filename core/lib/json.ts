/** An object as JSON.parse returns it. Use exact-json.ts if no digit may be lost. */
export type JsonObject = Readonly<Record<string, unknown>>

export const isObject = (value: unknown): value is JsonObject =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

/** The value of the JSON `text`; undefined if it is not JSON. Never throws. */
export function parseJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

/** Like `parseJson`; null if the value is not an object. */
export function parseObject(text: string): JsonObject | null {
  const value = parseJson(text)
  return isObject(value) ? value : null
}

/** `value` if it is a string, otherwise "". */
export const readText = (value: unknown): string => (typeof value === 'string' ? value : '')
