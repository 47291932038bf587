import { Type } from 'typebox'
import type { AppKey as AppKeyMessage } from '../../../proto/gen/es/tollgate/keys/v1/keys_pb.ts'
import type { App } from '../../http/listener.ts'
import { AppKeyList, CreatedAppKey } from '../apps/schemas.ts'
import { AppParams, IdempotencyHeader, pageQuery, required, text } from '../request-schemas.ts'
import { route } from '../../http/route.ts'
import { RevokedKey, ref } from '../schemas.ts'

const url = '/api/v1/apps/:clientId/keys'
const tags = ['keys']

const KeyBody = Type.Object(
  {
    label: Type.Optional(text('A name for people.')),
    subscriptionId: Type.Optional(text("A subscription of the app's.")),
  },
  { additionalProperties: false },
)

/** Keys of an app and of no user; keys of users took their place (facts 5.8). */
export function appKeyRoutes(app: App): void {
  app.get(
    url,
    route(
      { guard: { kind: 'member_read' }, deprecated: true },
      {
        summary: 'List app-level keys',
        tags,
        params: AppParams,
        querystring: Type.Object(pageQuery),
        response: { 200: ref(AppKeyList) },
      },
    ),
    async ({ params, query: { limit, ...page }, core }) => {
      const { keys, nextCursor } = await core.appKeys.list({
        ...params,
        ...page,
        limit: Number(limit ?? 0),
      })
      const shown = keys.map((key) => toKey(key, params.clientId))
      return { keys: shown, ...(nextCursor === undefined ? {} : { nextCursor }) }
    },
  )

  app.post(
    url,
    route(
      { guard: { kind: 'member_edit' }, deprecated: true, refuses: ['CONFLICT'] },
      {
        summary: 'Create an app-level key',
        tags,
        params: AppParams,
        headers: IdempotencyHeader,
        body: KeyBody,
        response: { 201: ref(CreatedAppKey) },
      },
    ),
    async ({ params, headers, body: { label, subscriptionId }, core, correlationId }, reply) => {
      const made = await core.appKeys.create({
        ...params,
        label: label?.trim() || undefined,
        subscriptionId,
        idempotencyKey: headers['idempotency-key'],
      })
      return reply.code(201).send({
        keyId: made.keyId,
        id: made.keyId,
        apiKey: made.apiKey,
        createdAt: made.createdAt,
        label: made.label ?? null,
        message: 'Store the key now; it is not shown again.',
        correlation_id: correlationId,
      })
    },
  )

  app.delete(
    url,
    route(
      { guard: { kind: 'member_edit' }, deprecated: true },
      {
        summary: 'Revoke an app-level key',
        tags,
        params: AppParams,
        querystring: Type.Object({ keyId: required('Which key.') }),
        response: { 200: ref(RevokedKey) },
      },
    ),
    async ({ params, query: { keyId }, core, correlationId }) => {
      const { revokedAt, effectiveBy } = await core.appKeys.revoke({ ...params, keyId })
      return { success: true, correlation_id: correlationId, keyId, revokedAt, effectiveBy }
    },
  )
}

const toKey = (key: AppKeyMessage, clientId: string) => ({
  keyId: key.keyId,
  id: key.keyId,
  clientId,
  label: key.label ?? null,
  prefix: key.prefix,
  subscriptionId: key.subscriptionId ?? null,
  status: key.status,
  createdAt: key.createdAt,
  lastUsedAt: key.lastUsedAt ?? null,
  revokedAt: key.revokedAt ?? null,
})
