import { DomainError } from '../../../proto/errors.ts'
import { parseInstant, parseUtcDay } from '../../lib/time.ts'

/** Parses a what-if request. Throws REQUEST_INVALID with the reason. */

export interface WhatIfRange {
  /** Range of signing times, half-open. */
  readonly from: Date
  readonly to: Date
}

/** Names of the drafts for users; null keeps the current plan. */
export interface Assignment {
  readonly fallback: string | null
  /** By id or name of the current plan. */
  readonly byPlan: ReadonlyMap<string, string | null>
  readonly byUser: ReadonlyMap<string, string | null>
}

export interface WhatIfRequest {
  readonly range: WhatIfRange
  readonly plans: readonly Readonly<Record<string, unknown>>[]
  /** Null when absent: all users are on the only draft. */
  readonly assign: Assignment | null
}

const maxDays = 366
const dayMs = 86_400_000
const plansMax = 50
const usersMax = 10_000

const invalid = (message: string, cause?: unknown): DomainError =>
  new DomainError('REQUEST_INVALID', message, { cause })

export function parseRequest(json: string): WhatIfRequest {
  const body = objectOf(parsed(json), 'the body')
  requireKnown(body, ['from', 'to', 'plans', 'assign'], 'the body')
  return {
    range: parseRange(body['from'], body['to']),
    plans: parsePlans(body['plans']),
    assign: body['assign'] === undefined ? null : parseAssignment(body['assign']),
  }
}

function parsed(json: string): unknown {
  try {
    return JSON.parse(json)
  } catch (error) {
    throw invalid('invalid JSON', error)
  }
}

function objectOf(value: unknown, name: string): Readonly<Record<string, unknown>> {
  if (typeof value === 'object' && value !== null && !Array.isArray(value))
    return Object.fromEntries(Object.entries(value))
  throw invalid(`${name} must be a JSON object`)
}

function requireKnown(body: object, known: readonly string[], name: string): void {
  const unknown = Object.keys(body).find((member) => !known.includes(member))
  if (unknown !== undefined)
    throw invalid(
      `${name} has the unknown field ${unknown.slice(0, 64)}; known are: ${known.join(', ')}`,
    )
}

function parseRange(fromText: unknown, toText: unknown): WhatIfRange {
  const [from, to] = [parseTime('from', fromText), parseTime('to', toText)]
  if (from >= to) throw invalid('from must be before to')
  if (to.getTime() - from.getTime() > maxDays * dayMs)
    throw invalid(`from and to may be at most ${maxDays} days apart`)
  return { from, to }
}

function parseTime(name: string, text: unknown): Date {
  if (text === undefined || text === null || text === '') throw invalid(`${name} is required`)
  const instant = typeof text === 'string' ? (parseUtcDay(text) ?? parseInstant(text)) : null
  if (instant) return instant
  throw invalid(`${name} must be an ISO 8601 date or instant with a zone`)
}

function parsePlans(value: unknown): WhatIfRequest['plans'] {
  if (!Array.isArray(value)) throw invalid('plans must be an array of plans')
  if (value.length < 1 || value.length > plansMax)
    throw invalid(`plans must have 1 to ${plansMax} plans`)
  return value.map((plan: unknown, index) => objectOf(plan, `plans[${index}]`))
}

function parseAssignment(value: unknown): Assignment {
  const body = objectOf(value, 'assign')
  requireKnown(body, ['default', 'plans', 'users'], 'assign')
  const byUser = parseNames(body['users'], 'assign.users')
  if (byUser.size > usersMax) throw invalid(`assign.users may have at most ${usersMax} users`)
  return {
    fallback: parseName(body['default'] ?? null, 'assign.default'),
    byPlan: parseNames(body['plans'], 'assign.plans'),
    byUser,
  }
}

function parseNames(value: unknown, name: string): Map<string, string | null> {
  if (value === undefined) return new Map()
  return new Map(
    Object.entries(objectOf(value, name)).map(([key, draft]) => [
      key,
      parseName(draft, `${name}[${JSON.stringify(key.slice(0, 64))}]`),
    ]),
  )
}

function parseName(value: unknown, name: string): string | null {
  if (value === null || typeof value === 'string') return value
  throw invalid(`${name} must be a name in plans, or null for no change`)
}
