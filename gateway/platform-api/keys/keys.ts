import { Type } from 'typebox'
import type { Key as KeyMessage } from '../../../proto/gen/es/tollgate/keys/v1/keys_pb.ts'
import type { App } from '../../http/listener.ts'
import { IdempotencyHeader, UserParams, pageQuery, required } from '../request-schemas.ts'
import { route } from '../../http/route.ts'
import { CreatedKey, KeyList, RevokedKey, nullable, ref } from '../schemas.ts'

const url = '/api/v1/apps/:clientId/users/:externalUserId/keys'
const tags = ['keys']
const rules = { guard: { kind: 'm2m', scope: 'users:write' } } as const

// The specification has no body here. A label is taken, too long a one forgiven (facts 5.7).
const KeyBody = Type.Object({
  label: Type.Optional(
    nullable({ description: 'A name for people; 100 characters of it are kept.' }),
  ),
})

/** Per-user API keys. */
export function keyRoutes(app: App): void {
  app.get(
    url,
    route(rules, {
      summary: "List a user's keys",
      tags,
      params: UserParams,
      querystring: Type.Object(pageQuery),
      response: { 200: ref(KeyList) },
    }),
    async ({ params, query: { limit, ...page }, core }) => {
      const { keys, nextCursor } = await core.keys.list({
        ...params,
        ...page,
        limit: Number(limit ?? 0),
      })
      return {
        ...params,
        keys: keys.map(toKey),
        ...(nextCursor === undefined ? {} : { nextCursor }),
      }
    },
  )

  app.post(
    url,
    route(rules, {
      summary: 'Create a key',
      tags,
      params: UserParams,
      headers: IdempotencyHeader,
      body: KeyBody,
      response: { 201: ref(CreatedKey) },
    }),
    async ({ params, headers, body, core, correlationId }, reply) => {
      const key = await core.keys.create({
        ...params,
        label: toLabel(body.label),
        idempotencyKey: headers['idempotency-key'],
      })
      const { keyId, apiKey, createdAt, clientId, externalUserId, label } = key
      return reply.code(201).send({
        keyId,
        id: keyId,
        apiKey,
        createdAt,
        clientId,
        externalUserId,
        label: label ?? null,
        correlation_id: correlationId,
      })
    },
  )

  app.delete(
    url,
    route(rules, {
      summary: 'Revoke a key',
      tags,
      params: UserParams,
      querystring: Type.Object({ keyId: required('Which key.') }),
      response: { 200: ref(RevokedKey) },
    }),
    async ({ params, query: { keyId }, core, correlationId }) => {
      const { revokedAt, effectiveBy } = await core.keys.revoke({ ...params, keyId })
      return { success: true, correlation_id: correlationId, keyId, revokedAt, effectiveBy }
    },
  )
}

const toLabel = (label: string | null | undefined): string | undefined =>
  label?.trim().slice(0, 100).toWellFormed() || undefined

const toKey = (key: KeyMessage) => ({
  keyId: key.keyId,
  id: key.keyId,
  createdAt: key.createdAt,
  status: key.status,
  revokedAt: key.revokedAt ?? null,
  lastUsedAt: key.lastUsedAt ?? null,
  prefix: key.prefix,
  label: key.label ?? null,
})
