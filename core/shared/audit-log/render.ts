import { DomainError } from '../../../proto/errors.ts'
import { parseInstant, parseUtcDay } from '../../lib/time.ts'
import { formatCursor } from '../cursor.ts'
import type * as store from './store.ts'

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
