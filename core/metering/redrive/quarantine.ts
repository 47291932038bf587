import { DomainError } from '../../../proto/errors.ts'
import { audit } from '../../shared/audit.ts'
import { parseCursor, parseLimit, page } from '../../shared/cursor.ts'
import { authId, isClientId, isUuid, parseExternalUserId } from '../../shared/ids.ts'
import { parseReadable } from '../../shared/text.ts'
import { tx } from '../../lib/sql.ts'
import { parseInstant } from '../../lib/time.ts'
import type { NamedUser } from '../batch/subjects.ts'
import { quarantineReasons } from '../events/parse.ts'
import * as store from '../quarantine/store.ts'
import type { Author } from './author.ts'
import { type DriveDeps, conflict, createDrive, refuseDecided } from './drive.ts'

export interface QuarantineDeps extends DriveDeps {
  /** Throws REQUEST_INVALID for an unknown user that must not be created by hand (decision 43). */
  readonly users: { readonly refuseNewSubject: (user: NamedUser) => Promise<void> }
}

export interface ListQuery {
  readonly status?: string | undefined
  readonly reason?: string | undefined
  readonly authId?: string | undefined
  readonly from?: string | undefined
  readonly to?: string | undefined
  readonly limit: number
  readonly cursor?: string | undefined
}

/** Reasons that mean only that the user is unknown. */
const attributable: readonly string[] = ['unattributed', 'unknown_client', 'invalid_subject']

const invalid = (message: string): DomainError => new DomainError('REQUEST_INVALID', message)

/**
 * Decisions about events that could not become tickets. An event leaves quarantine once, as a
 * ticket or discarded. A redriven event is deduplicated, priced and charged like any other; its
 * stored bytes never change.
 */
export function createQuarantine({
  pool,
  now,
  log,
  manualIngest,
  limits,
  users,
  invalidations,
}: QuarantineDeps) {
  const drive = createDrive({ pool, now, log, manualIngest, limits, invalidations })

  /** Throws REQUEST_INVALID for an invalid status, reason, instant or cursor. */
  async function list(query: ListQuery) {
    const limit = parseLimit(query.limit)
    const events = await store.list(pool, {
      status: parseStatus(query.status),
      reason: parseReason(query.reason),
      authId: query.authId ?? null,
      from: parseTime('from', query.from),
      to: parseTime('to', query.to),
      after: parseCursor(query.cursor),
      limit: limit + 1,
    })
    const { items, nextCursor } = page(
      events.map((event) => ({ ...event, createdAt: event.receivedAt })),
      limit,
    )
    return { events: items, nextCursor, waiting: await store.waiting(pool) }
  }

  /** Throws NOT_FOUND for an unknown id. */
  async function get(id: string): Promise<store.QuarantinedEvent> {
    const event = isUuid(id) ? await store.find(pool, id) : null
    if (!event) throw new DomainError('NOT_FOUND', 'no such event in quarantine')
    return event
  }

  /**
   * Attributes an event to a user and redrives it. Throws CONFLICT for an event that names a known
   * user, is already decided or still cannot become a ticket; NOT_FOUND for an unknown app.
   */
  async function attribute(
    request: { id: string; clientId: string; externalUserId: string },
    author: Author,
  ) {
    const event = await get(request.id)
    if (!attributable.includes(event.reason)) {
      throw conflict(
        `only events without a known user can be assigned to a user; this one is ${event.reason}`,
      )
    }
    if (!isClientId(request.clientId))
      throw new DomainError('NOT_FOUND', 'no app has this client id')
    const subject = {
      clientId: request.clientId,
      externalUserId: parseExternalUserId(request.externalUserId),
    }
    await users.refuseNewSubject(subject)
    const decision = { authId: authId(subject.clientId, subject.externalUserId) }
    await drive(event, { author, action: 'quarantine_attributed', decision })
    return get(event.id)
  }

  /**
   * Ingests the event again. Throws CONFLICT if it cannot become a ticket or is already decided.
   */
  async function redrive(request: { id: string; underNewId: boolean }, author: Author) {
    const event = await get(request.id)
    if (request.underNewId && event.reason !== 'same_id_other_bytes') {
      throw conflict(
        `only an event whose id belongs to another event can get a new id; this one is ${event.reason}`,
      )
    }
    // Derived from the bytes, so that a repeat gives the same id.
    const decision = request.underNewId ? { eventId: `redriven:${event.digest}` } : {}
    await drive(event, { author, action: 'quarantine_redriven', decision })
    return get(event.id)
  }

  /** Decides that the event is no ticket; its row records the reason and the author. */
  async function discard(
    request: { id: string; reason: string },
    author: Author,
  ): Promise<store.QuarantineEntry> {
    const reason = parseReadable(request.reason, { field: 'reason', max: 500 })
    const event = await get(request.id)
    await tx(pool, async (db) => {
      refuseDecided(await store.lockStatus(db, event.id))
      const at = now()
      await store.resolve(db, {
        id: event.id,
        status: 'discarded',
        at,
        by: author.name,
        resolution: reason,
        attributedTo: null,
        ticketEventId: null,
      })
      await audit(db, {
        appId: null,
        actor: author.actor,
        action: 'quarantine_discarded',
        status: 'success',
        at,
        details: {
          quarantineId: event.id,
          reason,
          authId: event.authId,
          feeWei: event.fee === null ? null : String(event.fee),
        },
      })
    })
    log.info({ quarantineId: event.id, author: author.name }, 'quarantined event discarded')
    return get(event.id)
  }

  return { list, get, attribute, redrive, discard }
}

export type Quarantine = ReturnType<typeof createQuarantine>

function parseStatus(text: string | undefined): store.Status {
  const status = store.statuses.find((known) => known === (text ?? 'open'))
  if (!status) throw invalid(`status must be one of ${store.statuses.join(', ')}`)
  return status
}

function parseReason(text: string | undefined): string | null {
  if (text === undefined) return null
  if (!quarantineReasons.some((reason) => reason === text))
    throw invalid(`reason must be one of ${quarantineReasons.join(', ')}`)
  return text
}

function parseTime(name: string, text: string | undefined): Date | null {
  if (text === undefined) return null
  const instant = parseInstant(text)
  if (!instant) throw invalid(`${name} must be an ISO 8601 instant such as 2026-01-31T12:00:00Z`)
  return instant
}
