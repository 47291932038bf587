/** Reading answers of another system: nothing about them is taken for granted. */

export function member(value: unknown, name: string): unknown {
  return typeof value === 'object' &&
    value !== null &&
    !Array.isArray(value) &&
    Object.hasOwn(value, name)
    ? new Map(Object.entries(value)).get(name)
    : undefined
}

export function textOf(value: unknown, name: string): string | null {
  const found = member(value, name)
  return typeof found === 'string' ? found : null
}

export function listOf(value: unknown, name: string): readonly unknown[] {
  const found = name === '' ? value : member(value, name)
  return Array.isArray(found) ? found : []
}

/** The members of an object that are text. */
export function textsOf(value: unknown, name: string): Record<string, string> {
  const found = member(value, name)
  if (typeof found !== 'object' || found === null || Array.isArray(found)) return {}
  return Object.fromEntries(
    Object.entries(found).filter(
      (entry): entry is [string, string] => typeof entry[1] === 'string',
    ),
  )
}

/** A sum may come as number or as decimal text (billing facts 5.1); null for anything else. */
export function numberOf(value: unknown, name: string): number | null {
  const found = member(value, name)
  const number = typeof found === 'string' && /^-?\d+(\.\d+)?$/.test(found) ? Number(found) : found
  return typeof number === 'number' && Number.isFinite(number) ? number : null
}

/** The named members, as they are; absent ones stay absent. */
export const picked = (value: unknown, names: readonly string[]): Record<string, unknown> =>
  Object.fromEntries(
    names.flatMap((name) => {
      const found = member(value, name)
      return found === undefined || found === null ? [] : [[name, found]]
    }),
  )
