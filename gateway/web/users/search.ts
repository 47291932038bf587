import type { UserFilter } from '../api/users.ts'
import { toText } from '../ui/usage/search.ts'
import { statuses } from './status.tsx'

/** What the addresses of these views may have after the question mark. */

export const parts = ['money', 'statement', 'keys', 'limits', 'usage', 'decisions'] as const
export type Part = (typeof parts)[number]

export interface UserSearch {
  readonly part?: Part
  /** A UTC month such as `2026-03`. */
  readonly month?: string
  readonly by?: 'session'
  /** The event id of the ticket to explain. */
  readonly ticket?: string
  /** The id of the key whose limits are shown. */
  readonly key?: string
  /** Only decisions with this code. */
  readonly code?: string
  /** The id of the decision to explain. */
  readonly decision?: string
}

type Search = Record<string, unknown>

export function parseUsersSearch(search: Search): UserFilter {
  const status = statuses.find((one) => one === search['status'])
  const user = toText(search['user'])
  return { ...(status && { status }), ...(user !== undefined && { user }) }
}

export function parseUserSearch(search: Search): UserSearch {
  const part = parts.find((one) => one === search['part'])
  const month = toText(search['month'])
  const [ticket, code, decision, key] = ['ticket', 'code', 'decision', 'key'].map((name) =>
    toText(search[name]),
  )
  return {
    ...(part && part !== 'money' && { part }),
    ...(month !== undefined && /^\d{4}-(0[1-9]|1[0-2])$/.test(month) && { month }),
    ...(search['by'] === 'session' && { by: 'session' }),
    ...(ticket !== undefined && { ticket }),
    ...(code !== undefined && { code }),
    ...(decision !== undefined && { decision }),
    ...(key !== undefined && { key }),
  }
}
