import { Type } from 'typebox'
import type { AuditEntry } from '../../../proto/gen/es/tollgate/identity/v1/management_pb.ts'
import type { App } from '../../http/app.ts'
import { route } from '../../http/route.ts'
import { addSchemas, named, ref } from '../../http/schemas.ts'
import { AppParams, Instant, nextPage, nullable, pageQuery, text } from '../schemas.ts'

const AuditLog = named(
  Type.Object({
    entries: Type.Array(
      Type.Object({
        id: Type.String(),
        actor: Type.String({ description: 'An account id, an M2M client id, or operator.' }),
        action: Type.String(),
        status: Type.String(),
        correlationId: nullable({}),
        details: Type.Object({}, { additionalProperties: true }),
        createdAt: Instant('When it happened.'),
      }),
    ),
    nextCursor: Type.Optional(Type.String()),
  }),
  'AuditLog',
)

/** The audit log of an app. */
export function auditRoutes(app: App): void {
  addSchemas(app, [AuditLog])
  app.get(
    '/api/v1/apps/:clientId/audit',
    route(
      { guard: { kind: 'member_edit' } },
      {
        operationId: 'listAudit',
        summary: 'What was done to the app, newest first',
        description:
          'Changes of the app and its users with their author, the newest first, in pages.',
        tags: ['apps'],
        params: AppParams,
        querystring: Type.Object({ ...pageQuery, action: Type.Optional(text('only this action')) }),
        response: { 200: ref(AuditLog) },
      },
    ),
    async ({ params, query: { limit, ...filter }, core }) => {
      const { entries, nextCursor } = await core.management.listAudit({
        ...params,
        ...filter,
        limit: Number(limit ?? 0),
      })
      return { entries: entries.map(toEntry), ...nextPage(nextCursor) }
    },
  )
}

const toEntry = (entry: AuditEntry) => ({
  id: entry.id,
  actor: entry.actor,
  action: entry.action,
  status: entry.status,
  correlationId: entry.correlationId ?? null,
  details: toDetails(entry.detailsJson),
  createdAt: entry.createdAt,
})

function toDetails(json: string): object {
  const value: unknown = JSON.parse(json)
  return typeof value === 'object' && value !== null ? value : {}
}
