import { toText } from '../ui/usage/search.ts'

/** What the address of a person's own view of an app may have after the question mark. */

export const parts = ['usage', 'access', 'payments'] as const
export type Part = (typeof parts)[number]

export interface MySearch {
  readonly part?: Part
  /** A UTC month such as `2026-03`. */
  readonly month?: string
  /** The processor's page leads back with it after a payment. */
  readonly paid?: true
}

export function parseMySearch(search: Record<string, unknown>): MySearch {
  const part = parts.find((one) => one === search['part'])
  const month = toText(search['month'])
  return {
    ...(part && part !== 'usage' && { part }),
    ...(month !== undefined && /^\d{4}-(0[1-9]|1[0-2])$/.test(month) && { month }),
    ...(search['paid'] === true && { paid: true }),
  }
}
