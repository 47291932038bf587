import { type TSchema, Type } from 'typebox'
import type { Scope } from '../../proto/scopes.ts'
import { type Reason, reasons } from '../../proto/errors.ts'
import type { LimitKind } from '../limits/limiter.ts'
import { IdempotencyHeader, OAuthError, Problem, ref } from './schemas.ts'

/**
 * Who may call a route. Core checks most kinds; `key` needs a Bearer key and `client` client credentials, which core
 * checks when it acts on them; `secret` is a secret of the deployment, which the route checks; `none` is public.
 * `actor` and `provisioner` are those of the builder API: a user by JWT or `sk_` key, and whoever creates users.
 * `session` and the member kinds take the dashboard's cookie; without it the hidden ones answer 404; `m2m_or_member` and
 * `m2m_or_editor` take it when there is no Authorization; `hidden_m2m_or_member` answers 404 to a wrong credential, too.
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

/** Error bodies of a route: problem documents (RFC 9457) or OAuth errors (RFC 6749 section 5.2). */
export type Wire = 'problem' | 'oauth'

export interface RouteRules {
  readonly guard: Guard
  readonly wire?: Wire
  /** The body's kind; JSON when absent. `either` goes by its Content-Type. */
  readonly body?: 'json' | 'form' | 'either'
  /** Form fields that may be repeated. */
  readonly repeatable?: readonly string[]
  /** Body fields that hold an amount: a wrong one is AMOUNT_INVALID. */
  readonly amounts?: readonly string[]
  /** The route that replaces this one. */
  readonly successor?: string
  /** Deprecated without a successor to link to. */
  readonly deprecated?: boolean
  /** The rate limit of the route (decision 24); none when absent. */
  readonly limit?: LimitKind
  /** Reasons of refusals in addition to those that the guard and the schema imply. */
  readonly refuses?: readonly Reason[]
  /** The handler works on node's request and response: nothing of this listener but the 500 applies. */
  readonly unmanaged?: boolean
  /** Needs metering. Where none is configured, 503 comes before any complaint about the request. */
  readonly metered?: boolean
  /** A document for everyone, which verifiers fetch all the time: its answers are logged at the level debug. */
  readonly document?: boolean
  /** The route was removed: its one answer is 410. */
  readonly gone?: boolean
}

/** The refusals of a route that its document describes by their reasons. */
export interface Refusals {
  readonly wire: Wire
  readonly reasons: readonly Reason[]
}

declare module 'fastify' {
  interface FastifyContextConfig {
    rules?: RouteRules
    refusals?: Refusals
    /** The body's schema for the document, where requests are checked by another one. */
    documentedBody?: TSchema
    /** As `documentedBody`, of the query. */
    documentedQuery?: TSchema
  }
}

export interface RouteSchema {
  /** The operation's name in generated clients: a verb and a noun, unique in the document. */
  readonly operationId: string
  /** A few words for the list of operations. */
  readonly summary: string
  /** What it does, what to send, and what the caller should know: complete sentences. */
  readonly description: string
  readonly tags: readonly string[]
  readonly params?: TSchema
  readonly querystring?: TSchema
  readonly headers?: TSchema
  readonly body?: TSchema
  /** The body's schema for the document, where core checks more than `body` does. */
  readonly documentedBody?: TSchema
  /** As `documentedBody`, of the query. */
  readonly documentedQuery?: TSchema
  /** The ways to authenticate, where the guard alone does not determine them. */
  readonly security?: Security
  readonly response: Readonly<Record<number, TSchema>>
}

/**
 * The options of a route for Fastify: its rules, which the listener's hooks read, and its schema, completed with every
 * refusal that the rules make possible, so that the document cannot differ from the behaviour.
 */
export function route<const S extends RouteSchema>(rules: RouteRules, schema: S) {
  const { guard, wire = 'problem', body = 'json' } = rules
  const { documentedBody, documentedQuery, ...checked } = schema
  const reasons = refusalReasons(rules, schema)
  const ways = schema.security ?? securityOf(guard.kind)
  return {
    config: {
      rules,
      refusals: { wire, reasons: reasons.filter(isNotIn(schema.response)) },
      ...(documentedBody && { documentedBody }),
      ...(documentedQuery && { documentedQuery }),
    },
    schema: {
      ...checked,
      ...(refusesUnknownQuery(rules, schema) ? { querystring: closed(schema.querystring) } : {}),
      ...(ways && { security: ways }),
      ...(rules.successor === undefined && !rules.deprecated ? {} : { deprecated: true }),
      ...(schema.body && body !== 'json' ? { consumes: bodyTypes[body] } : {}),
      response: { ...refusalSchemas(reasons, wire), ...schema.response },
    },
  }
}

// A status that the route describes itself keeps its own body.
const isNotIn =
  (response: RouteSchema['response']) =>
  (reason: Reason): boolean =>
    response[reasons[reason].http] === undefined

const anyObject = Type.Object({}, { additionalProperties: true })

/**
 * As `route`, for a body that core checks and nobody before it, because the order in which its faults are told is a rule of
 * the domain. The document has the body's schema all the same.
 */
export function routeForCore<const S extends RouteSchema & { readonly body: TSchema }>(
  rules: RouteRules,
  schema: S,
) {
  return route(rules, { ...schema, body: anyObject, documentedBody: schema.body })
}

// A filter that is mistyped and ignored would answer with everybody's figures (decision 44).
const moneyTags = new Set(['usage', 'balance', 'allowances', 'plans', 'billing'])

const refusesUnknownQuery = ({ metered, gone }: RouteRules, { tags }: RouteSchema): boolean =>
  gone !== true && (metered === true || tags.some((tag) => moneyTags.has(tag)))

const closed = (querystring: TSchema = Type.Object({})) => ({
  ...querystring,
  additionalProperties: false,
})

/** Whether a session cookie can satisfy the guard. */
export const takesSession = (kind: GuardKind): boolean => sessionKinds.has(kind)

const sessionKinds = new Set<GuardKind>([
  'session',
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

/** Whether an M2M client may come in place of a session. */
export const takesM2m = (kind: GuardKind): boolean => m2mKinds.has(kind)

const m2mKinds = new Set<GuardKind>(['m2m_or_member', 'hidden_m2m_or_member', 'm2m_or_editor'])

const bodyTypes = {
  form: ['application/x-www-form-urlencoded'],
  either: ['application/json', 'application/x-www-form-urlencoded'],
}

/** Ways to authenticate; one of them is enough. The empty way is none. */
type Security = readonly Readonly<Record<string, readonly string[]>>[]

// Each operation has copies: the document adds the CSRF token to those that change something.
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

function refusalReasons(rules: RouteRules, schema: RouteSchema): Reason[] {
  if (rules.gone) return [...(rules.refuses ?? ['ROUTE_GONE'])]
  if (rules.unmanaged) return ['INTERNAL']
  return [
    ...new Set<Reason>([
      ...requestReasons(rules, schema),
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

/** What routes about figures of the metering backend refuse besides. */
export const meteringReasons = ['METERING_NOT_CONFIGURED', 'METERING_UNREACHABLE'] as const

/** What routes that may make a user active refuse besides (docs/billing.md). */
export const provisioningReasons = [
  'OWNER_PAYMENT_METHOD_REQUIRED',
  'END_USER_CAP_REACHED',
] as const

/** What routes that may put a plan on sale refuse besides. */
export const sellingReasons = ['STRIPE_CONNECT_REQUIRED', 'STRIPE_CONNECT_PENDING'] as const

/** What can be wrong with the parts of the request. */
function requestReasons({ guard, body, amounts }: RouteRules, schema: RouteSchema): Reason[] {
  const reasons: Reason[] = []
  if (schema.params || schema.querystring || schema.body || guard.kind !== 'none')
    reasons.push('REQUEST_INVALID')
  if (schema.params) reasons.push('NOT_FOUND')
  if (schema.body) reasons.push('BODY_TOO_LARGE')
  if (schema.body && body !== 'form') reasons.push('MEDIA_TYPE_UNSUPPORTED')
  if (schema.headers === IdempotencyHeader) reasons.push('IDEMPOTENCY_CONFLICT')
  if (amounts) reasons.push('AMOUNT_INVALID')
  return reasons
}

/**
 * What can be wrong with the caller. CREDENTIAL_INVALID is there for the header itself, such as two of it (credentials.ts);
 * a key route has one answer for whatever is wrong (errors.ts).
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
    // For the serializer and the types of handlers; the document lists every refusal by its reason.
    default: { description: 'Another refusal', content },
  }
}
