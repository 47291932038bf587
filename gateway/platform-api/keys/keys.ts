import { Type } from 'typebox'
import { Scope } from '../../../proto/scopes.ts'
import type { App } from '../../http/app.ts'
import { del, get, post } from '../../http/endpoint.ts'
import { CorrelationId, IdempotencyHeader, addSchemas, named, ref } from '../../http/schemas.ts'
import { Instant, UserParams, nullable, pageQuery, required } from '../schemas.ts'

const url = '/api/v1/apps/:clientId/users/:externalUserId/keys'
const tags = ['keys']
const rules = { guard: { kind: 'm2m', scope: Scope.usersWrite } } as const

export const Key = named(
  Type.Object({
    keyId: Type.String(),
    id: Type.String({ description: 'The same as keyId.' }),
    createdAt: Instant('When the key was created.'),
    status: Type.String(),
    revokedAt: nullable({ format: 'date-time' }),
    lastUsedAt: nullable({ format: 'date-time' }),
    prefix: Type.String({ description: 'The first characters of the key, for display.' }),
    label: nullable({}),
  }),
  'Key',
)
const KeyList = named(
  Type.Object({
    clientId: Type.String(),
    externalUserId: Type.String(),
    keys: Type.Array(ref(Key)),
    nextCursor: Type.Optional(Type.String()),
  }),
  'KeyList',
)
const CreatedKey = named(
  Type.Object({
    keyId: Type.String(),
    id: Type.String({ description: 'The same as keyId.' }),
    apiKey: Type.String({ description: 'The full secret. It is shown only here.' }),
    createdAt: Instant('When the key was created.'),
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
    effectiveBy: Instant('The time after which no cache accepts this key.'),
  }),
  'RevokedKey',
)

// The label is optional. A label that is too long is truncated, not rejected.
const KeyBody = Type.Object({
  label: Type.Optional(
    nullable({
      format: 'label',
      description: 'A name for people; longer names are cut to 100 characters.',
    }),
  ),
})

/** API keys of a user. */
export function keyRoutes(app: App): void {
  addSchemas(app, [Key, KeyList, CreatedKey, RevokedKey])
  listKeys(app)
  createKey(app)
  revokeKey(app)
}

const listKeys = get({
  url,
  ...rules,
  members: 'read',
  operationId: 'listKeys',
  summary: "List a user's keys",
  description:
    'Lists the keys of the user, including revoked ones, in pages. Secrets are never shown again.',
  tags,
  params: UserParams,
  querystring: Type.Object(pageQuery),
  response: { 200: ref(KeyList) },
  handler: async ({ params, query: { limit, ...page }, core }) => {
    const { keys, nextCursor } = await core.keys.listKeys({
      ...params,
      ...page,
      limit: Number(limit ?? 0),
    })
    return { ...params, keys: keys.map((key) => ({ ...key, id: key.keyId })), nextCursor }
  },
})

const createKey = post({
  url,
  ...rules,
  members: 'edit',
  refuses: ['CONFLICT'],
  operationId: 'createKey',
  summary: 'Create a key',
  description:
    "Creates an API key of the user and returns its secret once. The user's program exchanges it for tokens.",
  tags,
  params: UserParams,
  headers: IdempotencyHeader,
  body: KeyBody,
  response: { 201: ref(CreatedKey) },
  handler: async ({ params, headers, body, core, correlationId }, reply) => {
    const key = await core.keys.createKey({
      ...params,
      label: toLabel(body.label),
      idempotencyKey: headers['idempotency-key'],
    })
    return reply.code(201).send({ ...key, id: key.keyId, correlation_id: correlationId })
  },
})

const revokeKey = del({
  url,
  ...rules,
  members: 'edit',
  operationId: 'revokeKey',
  summary: 'Revoke a key',
  description:
    'Revokes a key and every token that was issued for it. Until effectiveBy a cache may still accept it.',
  tags,
  params: UserParams,
  querystring: Type.Object({ keyId: required('The key to revoke.') }),
  response: { 200: ref(RevokedKey) },
  handler: async ({ params, query: { keyId }, core, correlationId }) => {
    const { revokedAt, effectiveBy } = await core.keys.revokeKey({ ...params, keyId })
    return { success: true, correlation_id: correlationId, keyId, revokedAt, effectiveBy }
  },
})

const toLabel = (label: string | null | undefined): string | undefined =>
  label?.trim().slice(0, 100).toWellFormed() || undefined
