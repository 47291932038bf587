import { DomainError } from '../../../proto/errors.ts'
import type { Log } from '../../lib/log.ts'
import { type Db, type Pool, tx } from '../../lib/sql.ts'
import type { Now } from '../../lib/time.ts'
import { audit } from '../../shared/audit.ts'
import { authId } from '../../shared/ids.ts'
import type { Subject } from '../batch/subjects.ts'
import { type SignedTicket, type SigningLimits, parseEvent } from '../events/parse.ts'
import { type ManualIngest, conflictOnPoison } from '../ingest/manual-ingest.ts'
import * as store from '../quarantine/store.ts'
import type { Author } from './author.ts'
import { type Decision, rewritten } from './rewrite.ts'

export interface DriveDeps {
  readonly pool: Pool
  readonly now: Now
  readonly log: Log
  readonly manualIngest: ManualIngest
  readonly limits: SigningLimits
  readonly invalidations: {
    publish(event: { readonly kind: 'access'; readonly id: string }): Promise<void>
  }
}

interface Drive {
  readonly author: Author
  readonly action: string
  readonly decision: Decision
}

interface Write extends Drive {
  readonly ticket: SignedTicket
  readonly subject: Subject
}

/** Creates the function that ingests a quarantined event again. */
export function createDrive({ pool, now, log, manualIngest, limits, invalidations }: DriveDeps) {
  /** Ingests the event again, as `decision` changes it, and records the result. */
  async function drive(
    event: store.QuarantinedEvent,
    { author, action, decision }: Drive,
  ): Promise<void> {
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
      {
        appId: subject.appId,
        userId: subject.userId,
        quarantineId: event.id,
        author: author.name,
        action,
      },
      'quarantined event redriven',
    )
    for (const id of exhausted) await invalidations.publish({ kind: 'access', id })
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
      by: author.name,
      attributedTo: decision.authId ?? null,
      ticketEventId: ticket.eventId,
      resolution: isRepeat ? 'had become a ticket by itself' : 'became a ticket',
    })
    await audit(db, {
      appId: subject.appId,
      actor: author.actor,
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

  return drive
}

export const conflict = (message: string): DomainError => new DomainError('CONFLICT', message)

export function refuseDecided(status: string | null): void {
  if (status !== 'open') throw conflict(`this event is already ${status ?? 'gone'}`)
}
