import { DomainError } from '../../../proto/errors.ts'
import { audit } from '../../platform/audit.ts'
import { parseCursor, parseLimit, page } from '../../platform/cursor.ts'
import { authId, isClientId, isUuid, parseExternalUserId } from '../../platform/ids.ts'
import { parseReadable } from '../../platform/text.ts'
import type { Log } from '../../lib/log.ts'
import { type Db, type Pool, tx } from '../../lib/sql.ts'
import { type Now, parseInstant } from '../../lib/time.ts'
import type { NamedUser, Subject } from '../batch/subjects.ts'
import {
  type SignedTicket,
  type SigningLimits,
  parseEvent,
  quarantineReasons,
} from '../events/parse.ts'
import { type ManualIngest, conflictOnPoison } from '../ingest/manual-ingest.ts'
import * as store from './store.ts'
import { type Decision, rewritten } from './rewrite.ts'

export interface QuarantineDeps {
  readonly pool: Pool
  readonly now: Now
  readonly log: Log
  readonly manualIngest: ManualIngest
  readonly limits: SigningLimits
  /** Throws REQUEST_INVALID for an unknown user that must not be created by hand (decision 43). */
  readonly users: { readonly refuseNewSubject: (user: NamedUser) => Promise<void> }
  readonly invalidations: {
    publish(event: { readonly kind: 'access'; readonly id: string }): Promise<void>
  }
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
const conflict = (message: string): DomainError => new DomainError('CONFLICT', message)

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
  async function attribute(request: {
    id: string
    clientId: string
    externalUserId: string
    author: string
  }) {
    const author = parseAuthor(request.author)
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
    return drive(event, { author, action: 'quarantine_attributed', decision })
  }

  /**
   * Ingests the event again. Throws CONFLICT if it cannot become a ticket or is already decided.
   */
  async function redrive(request: { id: string; author: string; underNewId: boolean }) {
    const author = parseAuthor(request.author)
    const event = await get(request.id)
    if (!request.underNewId)
      return drive(event, { author, action: 'quarantine_redriven', decision: {} })
    if (event.reason !== 'same_id_other_bytes') {
      throw conflict(
        `only an event whose id belongs to another event can get a new id; this one is ${event.reason}`,
      )
    }
    // Derived from the bytes, so that a repeat gives the same id.
    const decision = { eventId: `redriven:${event.digest}` }
    return drive(event, { author, action: 'quarantine_redriven', decision })
  }

  interface Drive {
    readonly author: string
    readonly action: string
    readonly decision: Decision
  }

  async function drive(
    event: store.QuarantinedEvent,
    { author, action, decision }: Drive,
  ): Promise<store.QuarantineEntry> {
    refuseDecided(event.status)
    const ticket = ticketOf(event, decision)
    const subjects = await manualIngest.prepare([ticket])
    const subject = subjects.get(authId(ticket.clientId, ticket.externalUserId))
    if (!subject)
      throw conflict(
        `no app has the client id that the event names, ${authId(ticket.clientId, ticket.externalUserId)}; assign the event to a user`,
      )
    const exhausted = await conflictOnPoison(() =>
      tx(pool, (db) => write(db, event, { author, action, decision, ticket, subject })),
    )
    log.info(
      { appId: subject.appId, userId: subject.userId, quarantineId: event.id, author, action },
      'quarantined event redriven',
    )
    for (const id of exhausted) await invalidations.publish({ kind: 'access', id })
    return get(event.id)
  }

  interface Write extends Drive {
    readonly ticket: SignedTicket
    readonly subject: Subject
  }

  async function write(
    db: Db,
    event: store.QuarantinedEvent,
    { author, action, decision, ticket, subject }: Write,
  ) {
    refuseDecided(await store.lockStatus(db, event.id))
    const at = now()
    const outcome = await manualIngest.ingest(db, [{ ticket, subject, digest: event.digest }], at)
    if (outcome.conflicts.length > 0) {
      throw conflict(
        'another event has this id; this event can become a separate ticket only under a new id',
      )
    }
    const isRepeat = outcome.duplicates.length > 0
    await store.resolve(db, {
      id: event.id,
      status: 'redriven',
      at,
      by: author,
      attributedTo: decision.authId ?? null,
      ticketEventId: ticket.eventId,
      resolution: isRepeat ? 'had become a ticket by itself' : 'became a ticket',
    })
    await audit(db, {
      appId: subject.appId,
      actor: `operator:${author}`,
      action,
      status: 'success',
      at,
      details: {
        quarantineId: event.id,
        userId: subject.userId,
        eventId: ticket.eventId,
        feeWei: String(ticket.fee),
      },
    })
    return outcome.exhausted
  }

  // Parses the event relative to now: a signing time once too far ahead may be valid now.
  function ticketOf(event: store.QuarantinedEvent, decision: Decision): SignedTicket {
    if (event.byteCount > event.bytes.length)
      throw conflict('only the beginning of the event was kept, so it cannot be redriven')
    const bytes =
      decision.authId === undefined && decision.eventId === undefined
        ? event.bytes
        : rewritten(event.bytes, decision)
    const parsed = bytes && parseEvent(bytes, now(), limits)
    if (!parsed || parsed.kind === 'ignored') throw conflict('events of this type are not billed')
    if (parsed.kind === 'problem')
      throw conflict(
        `the event is still not a ticket: ${parsed.problem.reason}, ${parsed.problem.detail}`,
      )
    return parsed.ticket
  }

  /** Decides that the event is no ticket; its row records the reason and the author. */
  async function discard(request: {
    id: string
    author: string
    reason: string
  }): Promise<store.QuarantineEntry> {
    const author = parseAuthor(request.author)
    const reason = parseText('reason', request.reason, 500)
    const event = await get(request.id)
    await tx(pool, async (db) => {
      refuseDecided(await store.lockStatus(db, event.id))
      const at = now()
      await store.resolve(db, {
        id: event.id,
        status: 'discarded',
        at,
        by: author,
        resolution: reason,
        attributedTo: null,
        ticketEventId: null,
      })
      await audit(db, {
        appId: null,
        actor: `operator:${author}`,
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
    log.info({ quarantineId: event.id, author }, 'quarantined event discarded')
    return get(event.id)
  }

  return { list, get, attribute, redrive, discard }
}

export type Quarantine = ReturnType<typeof createQuarantine>

function refuseDecided(status: string | null): void {
  if (status !== 'open') throw conflict(`this event is already ${status ?? 'gone'}`)
}

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

const parseAuthor = (text: string): string => parseText('author', text, 100)

const parseText = (field: string, text: string, max: number): string =>
  parseReadable(text, { field, max })
