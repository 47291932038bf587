import type * as pb from '../../proto/gen/ts-proto/tollgate/shared/v1/audit.ts'
import { DomainError } from '../../proto/errors.ts'
import type { Pool } from '../lib/sql.ts'
import { type Now, addSeconds } from '../lib/time.ts'
import { operator } from '../rpc/guards.ts'
import { type Handlers, rpc } from '../rpc/serve.ts'
import { parseSpan, renderEntry } from '../shared/audit-log/render.ts'
import * as store from '../shared/audit-log/store.ts'
import { page, parseCursor, parseLimit } from '../shared/cursor.ts'
import { isClientId } from '../shared/ids.ts'

// Longer than any statement may take, so that a late commit is not skipped.
const settlingSeconds = 15

export function createAuditRpc({ pool, now }: { pool: Pool; now: Now }) {
  const auditService: Handlers<pb.AuditServiceServer> = {
    exportAudit: rpc(operator(), async (request: pb.ExportAuditRequest) => {
      const { clientId } = request
      if (clientId !== undefined && !isClientId(clientId))
        throw new DomainError('REQUEST_INVALID', 'clientId must be the client id of an app')
      const limit = parseLimit(request.limit)
      const span = parseSpan(request)
      const until = request.settled ? settled(span.until, now()) : span.until
      const auditPage = { ...span, until, after: parseCursor(request.cursor), limit }
      const rows = await (clientId === undefined
        ? store.listAll(pool, auditPage)
        : store.listOfClient(pool, clientId, auditPage))
      const { items, nextCursor } = page(
        rows.map((row) => ({ ...row, createdAt: row.created_at })),
        limit,
      )
      const entries = items.map((row) => ({
        ...renderEntry(row),
        clientId: row.client_id ?? undefined,
      }))
      return { entries, nextCursor }
    }),
  }
  return { auditService }
}

function settled(until: Date | null, at: Date): Date {
  const newest = addSeconds(at, -settlingSeconds)
  return until && until < newest ? until : newest
}
