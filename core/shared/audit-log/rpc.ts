import type * as pb from '../../../proto/gen/ts-proto/tollgate/shared/v1/audit.ts'
import { DomainError } from '../../../proto/errors.ts'
import type { Pool } from '../../lib/sql.ts'
import { type Now, addSeconds, parseInstant, parseUtcDay } from '../../lib/time.ts'
import { operator } from '../../rpc/guards.ts'
import { type Handlers, rpc } from '../../rpc/serve.ts'
import { formatCursor, page, parseCursor, parseLimit } from '../cursor.ts'
import { isClientId } from '../ids.ts'
import * as store from './store.ts'

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

/** An entry in wire format. */
export const renderEntry = (row: store.AuditRow) => ({
  id: row.id,
  actor: row.actor,
  action: row.action,
  status: row.status,
  correlationId: row.correlation_id ?? undefined,
  detailsJson: JSON.stringify(row.details),
  createdAt: row.created_at.toISOString(),
  cursor: formatCursor({ createdAt: row.created_at, id: row.id }),
})

/**
 * Parses the bounds of a page. Throws REQUEST_INVALID for text that is neither an instant nor a
 * day, and for a span that ends before it begins.
 */
export function parseSpan(span: {
  readonly since?: string | undefined
  readonly until?: string | undefined
}) {
  const [since, until] = [parseBound('since', span.since), parseBound('until', span.until)]
  if (since && until && since > until)
    throw new DomainError('REQUEST_INVALID', 'since must not be after until')
  return { since, until }
}

function parseBound(name: string, text: string | undefined): Date | null {
  if (text === undefined || text === '') return null
  const bound = parseInstant(text) ?? parseUtcDay(text)
  if (bound) return bound
  throw new DomainError(
    'REQUEST_INVALID',
    `${name} must be an ISO 8601 instant such as 2026-04-01T00:00:00Z, or a day`,
  )
}
