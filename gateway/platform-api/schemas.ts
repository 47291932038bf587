import { type Static, type TSchema, Type } from 'typebox'

/** The public JSON of the platform listener; the OpenAPI document is made from it. */

export const Micros = (description: string) => Type.String({ pattern: '^-?[0-9]+$', description })
export const Wei = (description: string) => Type.String({ pattern: '^[0-9]+$', description })
export const Instant = (description: string) => Type.String({ format: 'date-time', description })
// OpenAPI 3.0 has no null type and wants enum beside type.
export const nullable = (schema: object) =>
  Type.Unsafe<string | null>({ type: 'string', nullable: true, ...schema })
export const oneOf = <const T extends string>(values: readonly T[], description: string) =>
  Type.Unsafe<T>({ type: 'string', enum: [...values], description })

/** A reference to a schema that is registered by its `$id`. */
export const ref = <T extends TSchema & { readonly $id: string }>(schema: T) =>
  Type.Unsafe<Static<T>>({ $ref: `${schema.$id}#` })

export const named = <T extends TSchema, N extends string>(
  schema: T,
  $id: N,
): T & { readonly $id: N } => ({ ...schema, $id })

export const CorrelationId = Type.String({ description: 'Also in X-Correlation-Id.' })

export const Problem = named(
  Type.Object({
    type: Type.String({ format: 'uri' }),
    title: Type.String(),
    status: Type.Integer(),
    detail: Type.String(),
    code: Type.String(),
    error: Type.String({ description: 'The same word as code.' }),
    correlation_id: CorrelationId,
  }),
  'Problem',
)

export const OAuthError = named(
  Type.Object({
    error: Type.String(),
    error_description: Type.String(),
    correlation_id: CorrelationId,
  }),
  'OAuthError',
)

const userFields = {
  id: Type.String({ format: 'uuid' }),
  clientId: Type.String(),
  externalUserId: Type.String(),
  email: nullable({}),
  status: oneOf(['active', 'inactive'], 'Inactive users get no tokens.'),
  role: Type.String(),
  createdAt: Instant('When the user was first provisioned.'),
  updatedAt: Instant('When an attribute last changed.'),
  deactivatedAt: nullable({ format: 'date-time' }),
}

export const User = named(Type.Object(userFields), 'User')
export const UpdatedUser = named(
  Type.Object({ success: Type.Boolean(), ...userFields }),
  'UpdatedUser',
)
export const UserList = named(
  Type.Object({
    users: Type.Array(ref(User)),
    nextCursor: Type.Optional(Type.String()),
  }),
  'UserList',
)
export const Deactivated = named(
  Type.Object({
    success: Type.Boolean(),
    status: Type.String(),
    correlation_id: CorrelationId,
    effectiveBy: Instant('From then on no cache permits this user anything.'),
  }),
  'Deactivated',
)

export const Key = named(
  Type.Object({
    keyId: Type.String(),
    id: Type.String({ description: 'The same as keyId.' }),
    createdAt: Instant('When the key was made.'),
    status: Type.String(),
    revokedAt: nullable({ format: 'date-time' }),
    lastUsedAt: nullable({ format: 'date-time' }),
    prefix: Type.String({ description: 'How the key begins, for display.' }),
    label: nullable({}),
  }),
  'Key',
)
export const KeyList = named(
  Type.Object({
    clientId: Type.String(),
    externalUserId: Type.String(),
    keys: Type.Array(ref(Key)),
    nextCursor: Type.Optional(Type.String()),
  }),
  'KeyList',
)
export const CreatedKey = named(
  Type.Object({
    keyId: Type.String(),
    id: Type.String({ description: 'The same as keyId.' }),
    apiKey: Type.String({ description: 'The full secret. It is shown only here.' }),
    createdAt: Instant('When the key was made.'),
    clientId: Type.String(),
    externalUserId: Type.String(),
    label: nullable({}),
    correlation_id: CorrelationId,
  }),
  'CreatedKey',
)
export const RevokedKey = named(
  Type.Object({
    success: Type.Boolean(),
    correlation_id: CorrelationId,
    keyId: Type.String(),
    revokedAt: Instant('When the key was first revoked.'),
    effectiveBy: Instant('From then on no cache permits this key anything.'),
  }),
  'RevokedKey',
)

const tokenFields = {
  access_token: Type.String(),
  token_type: Type.String(),
  expires_in: Type.Integer({ description: 'Seconds.' }),
  scope: Type.String(),
  correlation_id: CorrelationId,
}

export const UserToken = named(
  Type.Object({ ...tokenFields, subject_type: Type.String() }),
  'UserToken',
)
export const KeyToken = named(
  Type.Object({ ...tokenFields, externalUserId: Type.String() }),
  'KeyToken',
)

export const grantSources = ['trial', 'manual', 'promo', 'plan_adjustment'] as const

export const Grant = named(
  Type.Object({
    id: Type.String(),
    amountUsdMicros: Micros('What was granted.'),
    source: oneOf(grantSources, 'Why it was granted.'),
    createdAt: Instant('When it was granted.'),
    featureKey: nullable({ description: 'Set when the grant pays for one feature only.' }),
    expiresAt: nullable({ format: 'date-time' }),
    remainingUsdMicros: Micros('What is left of it.'),
  }),
  'Grant',
)

const amounts = {
  balanceUsdMicros: Micros('Remaining entitlement.'),
  consumedUsdMicros: Micros('Consumed this period.'),
  lifetimeGrantedUsdMicros: Micros('Starter and all grants.'),
}
const hasAccess = Type.Boolean({ description: 'Whether anything remains.' })

const allowanceFields = {
  externalUserId: Type.String(),
  ...amounts,
  grants: Type.Array(ref(Grant)),
  remainingUsdMicros: Micros('The balance less what is in flight.'),
  hasAccess,
  allowances: Type.Object({ ...amounts, hasAccess }, { description: 'The same figures again.' }),
}

export const Allowance = named(Type.Object(allowanceFields), 'Allowance')
export const GrantedAllowance = named(
  Type.Object({ ...allowanceFields, grant: ref(Grant) }),
  'GrantedAllowance',
)

export const Balance = named(
  Type.Object({
    externalUserId: Type.String(),
    balanceUsdMicros: amounts.balanceUsdMicros,
    remainingUsdMicros: Micros('The balance less what is in flight.'),
    consumedUsdMicros: amounts.consumedUsdMicros,
    lifetimeGrantedUsdMicros: amounts.lifetimeGrantedUsdMicros,
    hasAccess,
    unpricedCount: Type.Integer({
      description: 'Tickets that wait for a rate, not in the figures yet.',
    }),
    asOf: Type.Optional(Instant('The past instant of the figures, where one was asked for.')),
  }),
  'Balance',
)

export const LegacySubscriptions = named(
  Type.Object({
    subscriptions: Type.Array(Type.Object({}, { additionalProperties: true }), {
      description: 'Always empty.',
    }),
    deprecation: Type.String({ description: 'What to use instead.' }),
  }),
  'LegacySubscriptions',
)

export const IngestDiagnosis = named(
  Type.Object({
    ok: Type.Boolean(),
    diagnostic: Type.Boolean({ description: 'Always true: nothing is metered by this route.' }),
    ingested: Type.Boolean({ description: 'Always false.' }),
    duplicate: Type.Boolean({ description: 'Always false: what was ingested is not looked up.' }),
    requestId: Type.String(),
    clientId: Type.String(),
    externalUserId: Type.String(),
    correlation_id: CorrelationId,
  }),
  'IngestDiagnosis',
)

export const Jwks = named(
  Type.Object({
    keys: Type.Array(
      Type.Object({
        kty: Type.String(),
        kid: Type.String(),
        alg: Type.String(),
        use: Type.String(),
        n: Type.Optional(Type.String()),
        e: Type.Optional(Type.String()),
        crv: Type.Optional(Type.String()),
        x: Type.Optional(Type.String()),
        y: Type.Optional(Type.String()),
      }),
    ),
  }),
  'Jwks',
)

export const shared = [
  Problem,
  OAuthError,
  User,
  UpdatedUser,
  UserList,
  Deactivated,
  Key,
  KeyList,
  CreatedKey,
  RevokedKey,
  UserToken,
  KeyToken,
  Grant,
  Allowance,
  GrantedAllowance,
  Balance,
  LegacySubscriptions,
  IngestDiagnosis,
  Jwks,
]
