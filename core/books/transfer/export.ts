import { hash } from 'node:crypto'
import { DomainError } from '../../../proto/errors.ts'
import { isUuid } from '../../shared/ids.ts'
import type { Pool } from '../../lib/sql.ts'
import { parseInstant, parseUtcDay } from '../../lib/time.ts'
import { findApp } from '../store.ts'
import * as store from './store.ts'

/** Tickets per page. A line has at most a few kilobytes. */
const ticketsAtOnce = 500

export interface TicketPage {
  readonly lines: Buffer
  readonly tickets: number
  readonly sha256: string
  readonly next: store.TicketCursor | null
}

export interface ExportQuery {
  readonly clientId: string
  readonly from?: string | undefined
  readonly to?: string | undefined
  readonly cursor?: string | undefined
}

/**
 * Exports tickets page by page, each in its own query, so that a slow export holds no transaction.
 */
export function createExport({ pool }: { pool: Pool }) {
  /**
   * Throws CONFLICT when a ticket has no envelope, because an import could not recognise its
   * duplicate.
   */
  async function page(
    selection: store.TicketSelection,
    after: store.TicketCursor | null,
  ): Promise<TicketPage> {
    const rows = await store.ticketsAfter(pool, selection, { after, limit: ticketsAtOnce })
    const lines = Buffer.from(
      rows
        .map(({ eventId, line }) => {
          if (line === null)
            throw new DomainError(
              'CONFLICT',
              `the ticket ${eventId} has no envelope; see tollgate verify`,
            )
          return `${line}\n`
        })
        .join(''),
    )
    const next = rows.length < ticketsAtOnce ? null : (rows.at(-1) ?? null)
    return { lines, tickets: rows.length, sha256: hash('sha256', lines, 'hex'), next }
  }

  /** Yields all pages of a selection. */
  async function* pages(selection: store.TicketSelection): AsyncGenerator<TicketPage> {
    for (let after: store.TicketCursor | null = null; ;) {
      const one: TicketPage = await page(selection, after)
      if (one.tickets > 0) yield one
      if (one.next === null) return
      after = one.next
    }
  }

  /**
   * Returns a page for an operator. Throws NOT_FOUND for an unknown app, REQUEST_INVALID for an
   * invalid time or cursor.
   */
  async function exportPage({ clientId, from, to, cursor }: ExportQuery) {
    const app = await findApp(pool, clientId)
    if (!app) throw new DomainError('NOT_FOUND', 'no app has this client id')
    const selection = { appId: app.id, from: parseTime('from', from), to: parseTime('to', to) }
    if (selection.from && selection.to && selection.from >= selection.to) {
      throw new DomainError('REQUEST_INVALID', 'from must be before to')
    }
    const after = parseTicketCursor(cursor)
    const total = after === null ? await store.countTickets(pool, selection) : 0n
    const { lines, tickets, sha256, next } = await page(selection, after)
    return {
      lines,
      tickets,
      sha256,
      totalTickets: total.toString(),
      nextCursor: next ? formatTicketCursor(next) : undefined,
    }
  }

  return { exportPage, pages }
}

export type TicketExport = ReturnType<typeof createExport>

function parseTime(name: string, text: string | undefined): Date | null {
  if (text === undefined) return null
  const instant = parseUtcDay(text) ?? parseInstant(text)
  if (!instant)
    throw new DomainError(
      'REQUEST_INVALID',
      `${name} must be an ISO 8601 date or instant with a zone`,
    )
  return instant
}

const formatTicketCursor = ({ userId, signedAt, eventId }: store.TicketCursor): string =>
  Buffer.from(`${userId} ${signedAt} ${eventId}`).toString('base64url')

function parseTicketCursor(text: string | undefined): store.TicketCursor | null {
  if (text === undefined) return null
  const [userId = '', signedAt = '', ...rest] = Buffer.from(text, 'base64url')
    .toString('utf8')
    .split(' ')
  const cursor = { userId, signedAt, eventId: rest.join(' ') }
  if (
    !isUuid(userId) ||
    !parseInstant(signedAt) ||
    cursor.eventId.includes('\u0000') ||
    formatTicketCursor(cursor) !== text
  ) {
    throw new DomainError('REQUEST_INVALID', 'cursor is not one that this list returned')
  }
  return cursor
}
