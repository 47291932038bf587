import { DomainError } from '../../../proto/errors.ts'
import { audit } from '../../platform/audit.ts'
import { parseCursor, parseLimit, page } from '../../platform/cursor.ts'
import { authId, isClientId, isUuid, parseExternalUserId } from '../../platform/ids.ts'
import type { Log } from '../../lib/log.ts'
import { type Db, type Pool, tx } from '../../lib/sql.ts'
import { type Now, parseInstant } from '../../lib/time.ts'
import type { Subject } from '../batch/subjects.ts'
import { type SignedTicket, parseEvent, quarantineReasons } from '../events/parse.ts'
import { type ManualIngest, conflictOnPoison } from '../ingest/manual-ingest.ts'
import * as store from './store.ts'
import { type Decision, rewritten } from './rewrite.ts'

export interface QuarantineDeps {
  readonly pool: Pool
  readonly now: Now
  readonly log: Log
  readonly manualIngest: ManualIngest
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

/** What is wrong with these is only whom they name. */
const attributable: readonly string[] = ['unattributed', 'unknown_client', 'invalid_subject']

const invalid = (message: string): DomainError => new DomainError('REQUEST_INVALID', message)
const conflict = (message: string): DomainError => new DomainError('CONFLICT', message)

/**
 * What is done about events that could not become tickets. An event leaves quarantine once, as a ticket or discarded;
 * driven through again it is unique, priced and charged like any other, and its bytes stay as they came.
 */
export function createQuarantine({ pool, now, log, manualIngest, invalidations }: QuarantineDeps) {
  /** REQUEST_INVALID for a status, reason, instant or cursor that is none. */
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

  /** NOT_FOUND for an id that is none. */
  async function get(id: string): Promise<store.Held> {
    const held = isUuid(id) ? await store.find(pool, id) : null
    if (!held) throw new DomainError('NOT_FOUND', 'no such event in quarantine')
    return held
  }

  /**
   * Gives an event to a user and drives it through. CONFLICT for an event that names its user itself, that is decided
   * already, or that is no ticket even so; NOT_FOUND for an app that is not there.
   */
  async function attribute(request: {
    id: string
    clientId: string
    externalUserId: string
    author: string
  }) {
    const author = parseAuthor(request.author)
    const held = await get(request.id)
    if (!attributable.includes(held.reason)) {
      throw conflict(
        `only events without a known user can be given to one; this one is ${held.reason}`,
      )
    }
    if (!isClientId(request.clientId))
      throw new DomainError('NOT_FOUND', 'no app has this client id')
    const to = authId(request.clientId, parseExternalUserId(request.externalUserId))
    return drive(held, { author, action: 'quarantine_attributed', decision: { authId: to } })
  }

  /** Takes the event in again. CONFLICT as long as it cannot become a ticket, and when it is decided already. */
  async function redrive(request: { id: string; author: string; underNewId: boolean }) {
    const author = parseAuthor(request.author)
    const held = await get(request.id)
    if (!request.underNewId)
      return drive(held, { author, action: 'quarantine_redriven', decision: {} })
    if (held.reason !== 'same_id_other_bytes') {
      throw conflict(
        `only an event whose id stands for another takes a new id; this one is ${held.reason}`,
      )
    }
    // Made of the bytes, so that it is the same however often it is asked for.
    const decision = { eventId: `redriven:${held.digest}` }
    return drive(held, { author, action: 'quarantine_redriven', decision })
  }

  interface Drive {
    readonly author: string
    readonly action: string
    readonly decision: Decision
  }

  async function drive(
    held: store.Held,
    { author, action, decision }: Drive,
  ): Promise<store.Quarantined> {
    refuseDecided(held.status)
    const ticket = ticketOf(held, decision)
    const subjects = await manualIngest.prepare([ticket])
    const subject = subjects.get(authId(ticket.clientId, ticket.externalUserId))
    if (!subject)
      throw conflict(
        `no app has the client id that it names, ${authId(ticket.clientId, ticket.externalUserId)}; give it to a user`,
      )
    const exhausted = await conflictOnPoison(() =>
      tx(pool, (db) => write(db, held, { author, action, decision, ticket, subject })),
    )
    log.info(
      { appId: subject.appId, userId: subject.userId, quarantineId: held.id, author, action },
      'quarantined event driven through',
    )
    for (const id of exhausted) await invalidations.publish({ kind: 'access', id })
    return get(held.id)
  }

  interface Write extends Drive {
    readonly ticket: SignedTicket
    readonly subject: Subject
  }

  async function write(
    db: Db,
    held: store.Held,
    { author, action, decision, ticket, subject }: Write,
  ) {
    refuseDecided(await store.lockStatus(db, held.id))
    const at = now()
    const outcome = await manualIngest.ingest(db, [{ ticket, subject, digest: held.digest }], at)
    if (outcome.conflicts.length > 0) {
      throw conflict(
        'another event came under this id; it can be a ticket of its own only under a new id',
      )
    }
    const isRepeat = outcome.duplicates.length > 0
    await store.resolve(db, {
      id: held.id,
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
        quarantineId: held.id,
        userId: subject.userId,
        eventId: ticket.eventId,
        feeWei: String(ticket.fee),
      },
    })
    return outcome.exhausted
  }

  // The event is judged as if it came now: what was in the future then may be in the past.
  function ticketOf(held: store.Held, decision: Decision): SignedTicket {
    if (held.byteCount > held.bytes.length)
      throw conflict('only its beginning was kept; it cannot be driven through')
    const bytes =
      decision.authId === undefined && decision.eventId === undefined
        ? held.bytes
        : rewritten(held.bytes, decision)
    const parsed = bytes && parseEvent(bytes, now())
    if (!parsed || parsed.kind === 'ignored') throw conflict('it is no event that is billed')
    if (parsed.kind === 'problem')
      throw conflict(`it is still no ticket: ${parsed.problem.reason}, ${parsed.problem.detail}`)
    return parsed.ticket
  }

  /** Decides that it is no ticket; the reason and the author are kept with its bytes. */
  async function discard(request: {
    id: string
    author: string
    reason: string
  }): Promise<store.Quarantined> {
    const author = parseAuthor(request.author)
    const reason = parseText('reason', request.reason, 500)
    const held = await get(request.id)
    await tx(pool, async (db) => {
      refuseDecided(await store.lockStatus(db, held.id))
      const at = now()
      await store.resolve(db, {
        id: held.id,
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
          quarantineId: held.id,
          reason,
          authId: held.authId,
          feeWei: held.fee === null ? null : String(held.fee),
        },
      })
    })
    log.info({ quarantineId: held.id, author }, 'quarantined event discarded')
    return get(held.id)
  }

  /** What waits for a decision, by reason. */
  const waiting = () => store.waiting(pool)

  return { list, get, waiting, attribute, redrive, discard }
}

export type Quarantine = ReturnType<typeof createQuarantine>

function refuseDecided(status: string | null): void {
  if (status !== 'open') throw conflict(`this event is ${status ?? 'gone'} already`)
}

function parseStatus(text: string | undefined): store.Status {
  const found = store.statuses.find((status) => status === (text ?? 'open'))
  if (!found) throw invalid(`status must be one of ${store.statuses.join(', ')}`)
  return found
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

function parseText(name: string, text: string, max: number): string {
  const trimmed = text.trim()
  if (trimmed === '' || trimmed.length > max || /\p{Cc}/u.test(trimmed)) {
    throw invalid(`${name} must be 1 to ${max} characters without control characters`)
  }
  return trimmed
}
