import { Type } from 'typebox'
import type { App } from '../../http/app.ts'
import { del, get, post } from '../../http/endpoint.ts'
import { CorrelationId, IdempotencyHeader, addSchemas, named, ref } from '../../http/schemas.ts'
import { AppParams, Instant, nullable, pageQuery, required, text } from '../schemas.ts'
import { RevokedKey } from './keys.ts'

const url = '/api/v1/apps/:clientId/keys'
const tags = ['keys']

const AppKeyList = named(
  Type.Object({
    keys: Type.Array(
      Type.Object({
        keyId: Type.String(),
        id: Type.String({ description: 'The same as keyId.' }),
        clientId: Type.String(),
        label: nullable({}),
        prefix: Type.String({ description: 'The first characters of the key, for display.' }),
        subscriptionId: nullable({}),
        status: Type.String(),
        createdAt: Instant('When the key was created.'),
        lastUsedAt: nullable({ format: 'date-time' }),
        revokedAt: nullable({ format: 'date-time' }),
      }),
    ),
    nextCursor: Type.Optional(Type.String()),
  }),
  'AppKeyList',
)
const CreatedAppKey = named(
  Type.Object({
    keyId: Type.String(),
    id: Type.String({ description: 'The same as keyId.' }),
    apiKey: Type.String({ description: 'The full secret. It is shown only here.' }),
    createdAt: Instant('When the key was created.'),
    label: nullable({}),
    message: Type.String(),
    correlation_id: CorrelationId,
  }),
  'CreatedAppKey',
)

const KeyBody = Type.Object(
  {
    label: Type.Optional({ ...text('A name for people.'), format: 'label' }),
    subscriptionId: Type.Optional(text('A subscription of the app.')),
  },
  { additionalProperties: false },
)

/** App keys that belong to no user; deprecated in favour of user keys. */
export function appKeyRoutes(app: App): void {
  addSchemas(app, [AppKeyList, CreatedAppKey])
  listAppKeys(app)
  createAppKey(app)
  revokeAppKey(app)
}

const listAppKeys = get({
  url,
  guard: { kind: 'member_read' },
  deprecated: true,
  operationId: 'listAppKeys',
  summary: 'List app-level keys',
  description: 'Lists the keys that belong to the app instead of a user, in pages.',
  tags,
  params: AppParams,
  querystring: Type.Object(pageQuery),
  response: { 200: ref(AppKeyList) },
  handler: async ({ params, query: { limit, ...page }, core }) => {
    const { keys, nextCursor } = await core.keys.listAppKeys({
      ...params,
      ...page,
      limit: Number(limit ?? 0),
    })
    return { keys: keys.map((key) => ({ ...params, ...key, id: key.keyId })), nextCursor }
  },
})

const createAppKey = post({
  url,
  guard: { kind: 'member_edit' },
  deprecated: true,
  refuses: ['CONFLICT'],
  operationId: 'createAppKey',
  summary: 'Create an app-level key',
  description: 'Creates a key of the app and returns its secret once.',
  tags,
  params: AppParams,
  headers: IdempotencyHeader,
  body: KeyBody,
  response: { 201: ref(CreatedAppKey) },
  handler: async (
    { params, headers, body: { label, subscriptionId }, core, correlationId },
    reply,
  ) => {
    const key = await core.keys.createAppKey({
      ...params,
      label: label?.trim() || undefined,
      subscriptionId,
      idempotencyKey: headers['idempotency-key'],
    })
    return reply.code(201).send({
      ...key,
      id: key.keyId,
      message: 'Store the key now; it is not shown again.',
      correlation_id: correlationId,
    })
  },
})

const revokeAppKey = del({
  url,
  guard: { kind: 'member_edit' },
  deprecated: true,
  operationId: 'revokeAppKey',
  summary: 'Revoke an app-level key',
  description: 'Revokes a key of the app. Until effectiveBy a cache may still accept it.',
  tags,
  params: AppParams,
  querystring: Type.Object({ keyId: required('Which key.') }),
  response: { 200: ref(RevokedKey) },
  handler: async ({ params, query: { keyId }, core, correlationId }) => {
    const { revokedAt, effectiveBy } = await core.keys.revokeAppKey({ ...params, keyId })
    return { success: true, correlation_id: correlationId, keyId, revokedAt, effectiveBy }
  },
})
