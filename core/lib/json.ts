/** An object as JSON.parse returns it. Where no digit may be lost, use exact-json.ts. */
export type JsonObject = Readonly<Record<string, unknown>>

export const isObject = (value: unknown): value is JsonObject =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

/** The value that `text` holds; undefined when it is not JSON. Never throws. */
export function parseJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

/** As `parseJson`, and null for what is no object. */
export function parseObject(text: string): JsonObject | null {
  const value = parseJson(text)
  return isObject(value) ? value : null
}

/** `value` when it is a string, otherwise "". */
export const textOf = (value: unknown): string => (typeof value === 'string' ? value : '')
