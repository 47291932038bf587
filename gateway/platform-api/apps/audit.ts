import { Readable } from 'node:stream'
import type { FastifyReply } from 'fastify'
import { Type } from 'typebox'
import type { AuditEntry } from '../../../proto/gen/es/tollgate/identity/v1/management_pb.ts'
import type { App } from '../../http/app.ts'
import { get } from '../../http/endpoint.ts'
import { addSchemas, named, ref } from '../../http/schemas.ts'
import { AppParams, Instant, nullable, pageQuery, text } from '../schemas.ts'

const entryFields = {
  id: Type.String(),
  actor: Type.String({ description: 'An account id, an M2M client id, or operator.' }),
  action: Type.String(),
  status: Type.String(),
  correlationId: nullable({}),
  details: Type.Object({}, { additionalProperties: true }),
  createdAt: Instant('When it happened.'),
}
const ExportedEntry = { ...Type.Object({ ...entryFields, cursor: Type.String() }) }
const AuditLog = named(
  Type.Object({
    entries: Type.Array(Type.Object(entryFields)),
    nextCursor: Type.Optional(Type.String()),
  }),
  'AuditLog',
)

const auditQuery = {
  action: Type.Optional(text('only this action')),
  actor: Type.Optional(text('only this actor, as in an entry')),
  since: Type.Optional(text('an ISO 8601 instant or day: only entries at or after it')),
  until: Type.Optional(text('an ISO 8601 instant or day: only entries before it')),
}

const exportExample = `{"id":"019da5c2-6f4e-7c51-9e1b-0d5c1f6a7b82","actor":"m2m_0123456789abcdef01234567",\
"action":"api_key_created","status":"success","correlationId":"4f6c1a0e","details":{},\
"createdAt":"2026-04-02T10:00:01.250Z","cursor":"MjAyNi0wNC0wMlQxMDowMDowMS4yNTBa"}
`

/** Routes of an app's audit log. */
export function auditRoutes(app: App): void {
  addSchemas(app, [AuditLog])
  listRoute(app)
  exportRoute(app)
}

const listRoute = get({
  url: '/api/v1/apps/:clientId/audit',
  guard: { kind: 'member_edit' },
  operationId: 'listAudit',
  summary: "The app's audit log, newest first",
  description:
    'Lists changes of the app and its users with their authors, the newest first, in pages.',
  tags: ['apps'],
  params: AppParams,
  querystring: Type.Object({ ...pageQuery, ...auditQuery }),
  response: { 200: ref(AuditLog) },
  handler: async ({ params, query: { limit, ...filter }, core }) => {
    const { entries, nextCursor } = await core.management.listAuditEntries({
      ...params,
      ...filter,
      limit: Number(limit ?? 0),
    })
    return { entries: entries.map(toEntry), nextCursor }
  },
})

const ndjson = 'application/x-ndjson'
const exportDescription =
  'Newline-delimited JSON: an entry on each line, the oldest first, with the members of an entry of the list and a cursor.'
const exportPage = 500

const exportRoute = get({
  url: '/api/v1/apps/:clientId/audit/export',
  guard: { kind: 'member_edit' },
  operationId: 'exportAudit',
  summary: 'The whole audit log, as NDJSON',
  description:
    'Streams every entry as a line of JSON, the oldest first. To continue later, or after a disconnection, send the cursor of the last line that arrived. An interrupted stream ends without its last line break or with a connection error; the lines that arrived are valid.',
  tags: ['apps'],
  params: AppParams,
  querystring: Type.Object({
    ...auditQuery,
    cursor: Type.Optional(text('the cursor of a line: only entries after it')),
  }),
  response: {
    200: {
      description: exportDescription,
      content: { [ndjson]: { schema: { type: 'string' }, example: exportExample } },
    },
  },
  handler: async ({ params, query, core }, reply) => {
    const read = (cursor: string | undefined) =>
      core.management.listAuditEntries({
        ...params,
        ...query,
        cursor,
        limit: exportPage,
        oldestFirst: true,
      })
    return streamLines(reply, read, await read(query.cursor))
  },
})

interface AuditPage {
  readonly entries: readonly AuditEntry[]
  readonly nextCursor?: string | undefined
}

/** Sends the first page, then reads further pages as fast as the client accepts them. */
function streamLines(
  reply: FastifyReply,
  read: (cursor: string) => Promise<AuditPage>,
  first: AuditPage,
): FastifyReply {
  const serialize = reply.compileSerializationSchema(ExportedEntry)
  const toLine = (entry: AuditEntry): string => `${serialize(toEntry(entry))}\n`
  async function* lines(): AsyncGenerator<string> {
    for (let page = first; ; page = await read(page.nextCursor)) {
      if (page.entries.length > 0) yield page.entries.map(toLine).join('')
      if (page.nextCursor === undefined) return
    }
  }
  void reply.type(`${ndjson}; charset=utf-8`).header('cache-control', 'no-store')
  return reply.send(Readable.from(lines(), { objectMode: false }))
}

const toEntry = (entry: AuditEntry) => ({ ...entry, details: toDetails(entry.detailsJson) })

function toDetails(json: string): object {
  const value: unknown = JSON.parse(json)
  return typeof value === 'object' && value !== null ? value : {}
}
