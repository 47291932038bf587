/** An object as JSON.parse returns it. Where no digit may be lost, use exact-json.ts. */
export type JsonObject = Readonly<Record<string, unknown>>

export const isObject = (value: unknown): value is JsonObject =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

/** The object that `text` holds; null when it is not JSON or another kind of value. Never throws. */
export function parseObject(text: string): JsonObject | null {
  try {
    const value: unknown = JSON.parse(text)
    return isObject(value) ? value : null
  } catch {
    return null
  }
}

/** `value` when it is a string, otherwise "". */
export const textOf = (value: unknown): string => (typeof value === 'string' ? value : '')
