import type { TSchema } from 'typebox'
import { type Reason, reasons } from '../../proto/errors.ts'
import type { LimitKind } from '../limits/limiter.ts'
import { IdempotencyHeader } from '../platform-api/request-schemas.ts'
import { OAuthError, Problem, ref } from '../platform-api/schemas.ts'

/**
 * Who may call a route. Most kinds are judged by core; `key` needs a Bearer key and `client` client
 * credentials, which core judges as it acts; `none` is public. `session` and the member kinds take the
 * dashboard's cookie; `m2m_or_member` takes it when there is no Authorization.
 */
export type GuardKind =
  | 'm2m'
  | 'm2m_basic'
  | 'user'
  | 'key'
  | 'client'
  | 'none'
  | 'secret'
  | 'session'
  | 'member_read'
  | 'member_edit'
  | 'member_own'
  | 'm2m_or_member'

export interface Guard {
  readonly kind: GuardKind
  readonly scope?: string
}

/** Error bodies of a route: problem documents (RFC 9457) or OAuth errors (RFC 6749 section 5.2). */
export type Wire = 'problem' | 'oauth'

export interface RouteRules {
  readonly guard: Guard
  readonly wire?: Wire
  /** The body's kind; JSON when absent. `either` goes by its Content-Type. */
  readonly body?: 'json' | 'form' | 'either'
  /** Form fields that may come several times. */
  readonly repeatable?: readonly string[]
  /** Body fields whose refusal is AMOUNT_INVALID. */
  readonly amounts?: readonly string[]
  /** The route that took this one's place. */
  readonly successor?: string
  /** On its way out, without a successor to link to. */
  readonly deprecated?: boolean
  /** Which rate limit the route is under (decision 24); none when absent. */
  readonly limit?: LimitKind
  /** What it refuses besides what its guard and schema make possible. */
  readonly refuses?: readonly Reason[]
  /** Its handler reads the request and writes every answer but 500 itself. */
  readonly apart?: boolean
  /** Needs metering, which may not be configured: 503 before what is wrong with the request. */
  readonly metered?: boolean
  /** Removed: its one answer is 410. */
  readonly gone?: boolean
}

declare module 'fastify' {
  interface FastifyContextConfig {
    rules?: RouteRules
  }
}

export interface RouteSchema {
  readonly summary: string
  readonly tags: readonly string[]
  readonly params?: TSchema
  readonly querystring?: TSchema
  readonly headers?: TSchema
  readonly body?: TSchema
  readonly response: Readonly<Record<number, TSchema>>
}

/**
 * The options of a route: its rules for the listener's hooks, and its schema completed with every
 * refusal that those rules make possible, so that what is documented is what is done.
 */
export function route<const S extends RouteSchema>(rules: RouteRules, schema: S) {
  const { guard, wire = 'problem', body = 'json' } = rules
  return {
    config: { rules },
    schema: {
      ...schema,
      ...(guard.kind in security ? { security: security[guard.kind] } : {}),
      ...(rules.successor === undefined && !rules.deprecated ? {} : { deprecated: true }),
      ...(schema.body && body !== 'json' ? { consumes: bodyTypes[body] } : {}),
      response: { ...refusalSchemas(refusals(rules, schema), wire), ...schema.response },
    },
  }
}

/** Kinds that a session cookie can satisfy. */
export const takesSession = (kind: GuardKind): boolean => sessionKinds.has(kind)

const sessionKinds = new Set<GuardKind>([
  'session',
  'member_read',
  'member_edit',
  'member_own',
  'm2m_or_member',
])

const bodyTypes = {
  form: ['application/x-www-form-urlencoded'],
  either: ['application/json', 'application/x-www-form-urlencoded'],
}

const security: Partial<Record<Guard['kind'], Record<string, string[]>[]>> = {
  m2m: [{ m2mBasic: [] }, { machineToken: [] }],
  m2m_basic: [{ m2mBasic: [] }],
  user: [{ userToken: [] }],
  key: [{ apiKey: [] }],
  client: [{ m2mBasic: [] }, {}],
  secret: [{ sharedSecret: [] }],
  session: [{ session: [] }],
  member_read: [{ session: [] }],
  member_edit: [{ session: [] }],
  member_own: [{ session: [] }],
  m2m_or_member: [{ m2mBasic: [] }, { machineToken: [] }, { session: [] }],
}

function refusals(rules: RouteRules, schema: RouteSchema): Reason[] {
  const { guard, wire, body, amounts, limit, gone, apart, refuses = [] } = rules
  if (gone) return ['ROUTE_GONE']
  if (apart) return ['INTERNAL']
  const found: Reason[] = ['INTERNAL', 'UNAVAILABLE', ...refuses]
  if (limit) found.push('RATE_LIMITED')
  if (schema.params || schema.querystring || schema.body || guard.kind !== 'none')
    found.push('REQUEST_INVALID')
  if (schema.params) found.push('NOT_FOUND')
  if (schema.body) found.push('BODY_TOO_LARGE')
  if (schema.body && body !== 'form') found.push('MEDIA_TYPE_UNSUPPORTED')
  if (schema.headers === IdempotencyHeader) found.push('IDEMPOTENCY_CONFLICT')
  if (amounts) found.push('AMOUNT_INVALID')
  if (guard.kind !== 'none') found.push(wire === 'oauth' ? 'CREDENTIAL_INVALID' : 'TOKEN_INVALID')
  // 403 is SCOPE_MISSING and EDIT_FORBIDDEN alike.
  if (guard.kind !== 'none' && guard.kind !== 'client') found.push('SCOPE_MISSING', 'NOT_FOUND')
  return found
}

function refusalSchemas(found: readonly Reason[], wire: Wire) {
  const content =
    wire === 'oauth'
      ? { 'application/json': { schema: ref(OAuthError) } }
      : { 'application/problem+json': { schema: ref(Problem) } }
  const rows = found.map((reason) => reasons[reason])
  return {
    ...Object.fromEntries(rows.map(({ http, title }) => [http, { description: title, content }])),
    default: { description: 'Another refusal', content },
  }
}
