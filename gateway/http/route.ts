import { type TSchema, Type } from 'typebox'
import type { Scope } from '../../proto/scopes.ts'
import { type Reason, reasons } from '../../proto/errors.ts'
import { IdempotencyHeader, OAuthError, Problem, ref } from './schemas.ts'

/**
 * Who may call a route. Core checks most kinds.
 * - `none` needs no credential.
 * - `key` needs a Bearer key, `client` client credentials; core checks them when it uses them.
 * - `secret` is a secret of the deployment, which the route checks.
 * - `actor` and `provisioner` belong to the builder API: a user by JWT or `sk_` key, and a client
 *   that creates users.
 * - `session` and the member kinds take the dashboard's cookie. Without it, hidden kinds answer
 *   404. `self` is the session's account as its own end user of the app in the path.
 * - `m2m_or_member` and `m2m_or_editor` take the cookie if there is no Authorization.
 * - `hidden_m2m_or_member` answers 404 to a wrong credential, too.
 */
export type GuardKind =
  | 'm2m'
  | 'm2m_basic'
  | 'user'
  | 'actor'
  | 'provisioner'
  | 'key'
  | 'client'
  | 'none'
  | 'secret'
  | 'session'
  | 'self'
  | 'platform_admin'
  | 'member_read'
  | 'member_edit'
  | 'member_own'
  | 'hidden_member_read'
  | 'hidden_member_edit'
  | 'm2m_or_member'
  | 'hidden_m2m_or_member'
  | 'm2m_or_editor'

export interface Guard {
  readonly kind: GuardKind
  readonly scope?: Scope
}

/** Format of error bodies: problem documents (RFC 9457) or OAuth errors (RFC 6749 section 5.2). */
export type Wire = 'problem' | 'oauth'

/**
 * Kinds of limited routes, each with its own counters. `failures` counts only wrong credentials.
 */
export type LimitKind =
  'token' | 'device' | 'exchange' | 'validate' | 'users' | 'login' | 'edge' | 'failures'

export interface RouteRules {
  readonly guard: Guard
  readonly wire?: Wire
  /** The body's format. Default is JSON; `either` depends on its Content-Type. */
  readonly accepts?: 'json' | 'form' | 'either'
  /** Form fields that may be repeated. */
  readonly repeatable?: readonly string[]
  /** Body fields that hold an amount. An invalid one throws AMOUNT_INVALID. */
  readonly amounts?: readonly string[]
  /** The route that replaces this one. */
  readonly successor?: string
  /** Whether it is deprecated without a successor. */
  readonly deprecated?: boolean
  /** The route's rate limit (decision 24). Default: no limit. */
  readonly limit?: LimitKind
  /** Refusals in addition to those implied by the guard and the schema. */
  readonly refuses?: readonly Reason[]
  /**
   * Whether the handler writes to node's response itself. The listener then only answers 500 if it
   * fails.
   */
  readonly unmanaged?: boolean
  /**
   * Whether it needs metering. If metering is not configured, 503 precedes any validation error.
   */
  readonly metered?: boolean
  /**
   * Whether it is a public document that verifiers fetch often. Its answers are logged at level
   * debug.
   */
  readonly document?: boolean
  /** Whether the route was removed. It always answers 410. */
  readonly gone?: boolean
  /**
   * Members with these rights may call it, too, with the dashboard's session, under
   * `/api/v1/internal` (endpoint.ts). The route itself takes no session.
   */
  readonly members?: 'read' | 'edit'
}

/** A route's refusals that its document describes by reason. */
export interface Refusals {
  readonly wire: Wire
  readonly reasons: readonly Reason[]
}

declare module 'fastify' {
  interface FastifyContextConfig {
    rules?: RouteRules
    refusals?: Refusals
    /** The body's schema in the document, if requests are validated by another one. */
    documentedBody?: TSchema
    /** The same for the query. */
    documentedQuery?: TSchema
  }
}

export interface RouteSchema {
  /** The operation's name in generated clients: verb and noun, unique in the document. */
  readonly operationId: string
  /** A few words, for the list of operations. */
  readonly summary: string
  /** Complete sentences: what it does, what to send, and what the caller should know. */
  readonly description: string
  readonly tags: readonly string[]
  readonly params?: TSchema
  readonly querystring?: TSchema
  readonly headers?: TSchema
  readonly body?: TSchema
  /** The body's schema in the document, if core checks more than `body` does. */
  readonly documentedBody?: TSchema
  /** The same for the query. */
  readonly documentedQuery?: TSchema
  /**
   * The body's schema in the document, if only core validates the body, because the order of its
   * errors is a domain rule.
   */
  readonly coreBody?: TSchema
  /** Ways to authenticate, if the guard alone does not determine them. */
  readonly security?: Security
  readonly response: Readonly<Record<number, TSchema>>
}

/** A declared route: its rules, and its schema as validated, documented and serialized. */
export type Route = RouteRules & RouteSchema

/**
 * Returns the options of a Fastify route: its rules, which the listener's hooks read, and its
 * schema with every refusal that the rules allow, so that the document matches the behaviour.
 */
export function route<const Declared extends Route>(declared: Declared) {
  const { guard, wire = 'problem', successor, deprecated, querystring, response }: Route = declared
  const { body, ...documented } = bodyOf(declared)
  const reasons = refusalReasons({ ...declared, ...body })
  const ways = declared.security ?? securityOf(guard.kind)
  const rules: RouteRules = declared
  return {
    config: {
      rules,
      refusals: { wire, reasons: reasons.filter(isNotIn(response)) },
      ...documented,
    },
    schema: Object.assign({}, declared, {
      ...body,
      ...(refusesUnknownQuery(declared) ? { querystring: closed(querystring) } : {}),
      ...(ways && { security: ways }),
      ...(successor === undefined && !deprecated ? {} : { deprecated: true }),
      response: { ...refusalSchemas(reasons, wire), ...response },
    }),
  }
}

/** Returns the body's schema with its formats, and the schemas that the document shows instead. */
function bodyOf({ body, coreBody, accepts = 'json', ...schema }: Route) {
  const { documentedBody = coreBody, documentedQuery } = schema
  return {
    body: {
      ...(coreBody && { body: anyObject }),
      ...((body ?? coreBody) && accepts !== 'json' ? { consumes: bodyTypes[accepts] } : {}),
    },
    ...(documentedBody && { documentedBody }),
    ...(documentedQuery && { documentedQuery }),
  }
}

// A status that the route describes keeps its own body.
const isNotIn =
  (response: RouteSchema['response']) =>
  (reason: Reason): boolean =>
    response[reasons[reason].http] === undefined

const anyObject = Type.Object({}, { additionalProperties: true })

// Ignoring a mistyped filter would return all users' figures (decision 44).
const moneyTags = new Set(['usage', 'balance', 'allowances', 'plans', 'billing'])

const refusesUnknownQuery = ({ metered, gone, tags }: Route): boolean =>
  gone !== true && (metered === true || tags.some((tag) => moneyTags.has(tag)))

const closed = (querystring: TSchema = Type.Object({})) => ({
  ...querystring,
  additionalProperties: false,
})

/** Whether a session cookie can satisfy the guard. */
export const takesSession = (kind: GuardKind): boolean => sessionKinds.has(kind)

const sessionKinds = new Set<GuardKind>([
  'session',
  'self',
  'platform_admin',
  'member_read',
  'member_edit',
  'member_own',
  'hidden_member_read',
  'hidden_member_edit',
  'm2m_or_member',
  'hidden_m2m_or_member',
  'm2m_or_editor',
])

/** Whether the guard accepts an M2M client instead of a session. */
export const takesM2m = (kind: GuardKind): boolean => m2mKinds.has(kind)

const m2mKinds = new Set<GuardKind>(['m2m_or_member', 'hidden_m2m_or_member', 'm2m_or_editor'])

const bodyTypes = {
  form: ['application/x-www-form-urlencoded'],
  either: ['application/json', 'application/x-www-form-urlencoded'],
}

/** Alternative ways to authenticate. The empty object is access without credentials. */
type Security = readonly Readonly<Record<string, readonly string[]>>[]

// Copied per operation, because the document adds the CSRF token to those that change something.
const securityOf = (kind: GuardKind): Security | undefined => structuredClone(security[kind])

const security: Partial<Record<GuardKind, Security>> = {
  m2m: [{ m2mBasic: [] }, { machineToken: [] }],
  m2m_basic: [{ m2mBasic: [] }],
  user: [{ userToken: [] }],
  actor: [{ userToken: [] }, { apiKey: [] }],
  provisioner: [{ tenantBasic: [] }, { m2mBasic: [] }],
  key: [{ apiKey: [] }],
  client: [{ m2mBasic: [] }, {}],
  secret: [{ sharedSecret: [] }],
  session: [{ session: [] }],
  self: [{ session: [] }],
  platform_admin: [{ session: [] }],
  member_read: [{ session: [] }],
  member_edit: [{ session: [] }],
  member_own: [{ session: [] }],
  hidden_member_read: [{ session: [] }],
  hidden_member_edit: [{ session: [] }],
  m2m_or_member: [{ m2mBasic: [] }, { machineToken: [] }, { session: [] }],
  hidden_m2m_or_member: [{ m2mBasic: [] }, { machineToken: [] }, { session: [] }],
  m2m_or_editor: [{ m2mBasic: [] }, { machineToken: [] }, { session: [] }],
}

function refusalReasons(rules: Route): Reason[] {
  if (rules.gone) return [...(rules.refuses ?? ['ROUTE_GONE'])]
  if (rules.unmanaged) return ['INTERNAL']
  return [
    ...new Set<Reason>([
      ...requestReasons(rules),
      ...guardReasons[rules.guard.kind],
      ...(rules.guard.scope ? (['SCOPE_MISSING'] as const) : []),
      ...(rules.limit ? (['RATE_LIMITED'] as const) : []),
      ...(rules.metered ? meteringReasons : []),
      ...(rules.refuses ?? []),
      'INTERNAL',
      'UNAVAILABLE',
      'SERVICE_TOKEN_INVALID',
    ]),
  ]
}

/** Additional refusals of routes about figures of the metering backend. */
export const meteringReasons = ['METERING_NOT_CONFIGURED', 'METERING_UNREACHABLE'] as const

/** Additional refusals of routes that may make a user active (docs/billing.md). */
export const provisioningReasons = [
  'OWNER_PAYMENT_METHOD_REQUIRED',
  'END_USER_CAP_REACHED',
] as const

/** Additional refusals of routes that may put a plan on sale. */
export const sellingReasons = ['STRIPE_CONNECT_REQUIRED', 'STRIPE_CONNECT_PENDING'] as const

/** Returns the refusals about the parts of the request. */
function requestReasons({ guard, accepts, amounts, ...schema }: Route): Reason[] {
  const reasons: Reason[] = []
  if (schema.params || schema.querystring || schema.body || guard.kind !== 'none')
    reasons.push('REQUEST_INVALID')
  if (schema.params) reasons.push('NOT_FOUND')
  if (schema.body) reasons.push('BODY_TOO_LARGE')
  if (schema.body && accepts !== 'form') reasons.push('MEDIA_TYPE_UNSUPPORTED')
  if (schema.headers === IdempotencyHeader) reasons.push('IDEMPOTENCY_CONFLICT')
  if (amounts) reasons.push('AMOUNT_INVALID')
  return reasons
}

/**
 * Refusals of the caller. CREDENTIAL_INVALID includes a malformed header, such as a repeated one
 * (credentials.ts). Key routes give one answer for all refused keys (errors.ts).
 */
const guardReasons: Readonly<Record<GuardKind, readonly Reason[]>> = {
  none: [],
  key: ['CREDENTIAL_INVALID', 'NOT_FOUND'],
  client: ['CREDENTIAL_INVALID'],
  secret: ['CREDENTIAL_INVALID', 'TOKEN_INVALID'],
  user: ['CREDENTIAL_INVALID', 'TOKEN_INVALID'],
  actor: ['CREDENTIAL_INVALID', 'TOKEN_INVALID', 'NOT_FOUND'],
  provisioner: ['CREDENTIAL_INVALID', 'NOT_FOUND', 'SCOPE_MISSING'],
  m2m: ['CREDENTIAL_INVALID', 'TOKEN_INVALID', 'NOT_FOUND', 'SCOPE_MISSING'],
  m2m_basic: ['CREDENTIAL_INVALID', 'NOT_FOUND'],
  m2m_or_member: ['CREDENTIAL_INVALID', 'TOKEN_INVALID', 'NOT_FOUND'],
  hidden_m2m_or_member: ['NOT_FOUND'],
  m2m_or_editor: ['CREDENTIAL_INVALID', 'TOKEN_INVALID', 'NOT_FOUND', 'EDIT_FORBIDDEN'],
  session: ['CREDENTIAL_INVALID', 'TOKEN_INVALID', 'EDIT_FORBIDDEN'],
  self: ['CREDENTIAL_INVALID', 'TOKEN_INVALID', 'NOT_FOUND', 'EDIT_FORBIDDEN'],
  platform_admin: ['CREDENTIAL_INVALID', 'TOKEN_INVALID', 'EDIT_FORBIDDEN'],
  member_read: ['CREDENTIAL_INVALID', 'TOKEN_INVALID', 'NOT_FOUND'],
  member_edit: ['CREDENTIAL_INVALID', 'TOKEN_INVALID', 'NOT_FOUND', 'EDIT_FORBIDDEN'],
  member_own: ['CREDENTIAL_INVALID', 'TOKEN_INVALID', 'NOT_FOUND', 'EDIT_FORBIDDEN'],
  hidden_member_read: ['CREDENTIAL_INVALID', 'TOKEN_INVALID', 'NOT_FOUND'],
  hidden_member_edit: ['CREDENTIAL_INVALID', 'TOKEN_INVALID', 'NOT_FOUND', 'EDIT_FORBIDDEN'],
}

function refusalSchemas(refusals: readonly Reason[], wire: Wire) {
  const content =
    wire === 'oauth'
      ? { 'application/json': { schema: ref(OAuthError) } }
      : { 'application/problem+json': { schema: ref(Problem) } }
  const rows = refusals.map((reason) => reasons[reason])
  return {
    ...Object.fromEntries(rows.map(({ http, title }) => [http, { description: title, content }])),
    // For the serializer and the handlers' types; the document lists refusals by reason.
    default: { description: 'Another refusal', content },
  }
}
