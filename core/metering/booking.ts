import type { UserId } from '../ids.ts'
import { type RowBuffer, uuidBytes } from '../lib/copy-sql.ts'
import { uuidV7 } from '../lib/crypto.ts'
import type { Db } from '../lib/sql.ts'
import type { Entry, Session } from './batch.ts'
import { rangesOf } from './sequences.ts'
import { type Repeated, addSessions, closeHoles } from './session-store.ts'
import * as store from './store.ts'
import { type Fresh, type SessionSums, sumHours, sumSessions } from './sums.ts'
import { eventIdIn, writeOutcome } from './ticket-row.ts'
import type { Charge, Subject, TicketCharge } from './types.ts'

export interface Booking {
  readonly fresh: readonly Fresh[]
  /** The first parts of their rows. */
  readonly rows: RowBuffer
  /** For the whole rows. */
  readonly out: RowBuffer
  readonly at: Date
  readonly charge: Charge
}

/** What is not as it should be with sessions of a batch, as numbers of tickets. */
export interface Irregular {
  /** Their sequence number had come before: the signer's state was replayed, or two sessions share an id. */
  readonly forked: number
  /** They came long after they were signed. */
  readonly late: number
  /** Given up as lost, because their sessions have too many holes. */
  readonly lost: bigint
}

export const regular: Irregular = { forked: 0, late: 0, lost: 0n }

/** Tickets that were written, and the users that have nothing left. */
export interface Booked { readonly exhausted: readonly UserId[]; readonly irregular: Irregular }

/** Writes new tickets with their sums and charges. */
export async function book(db: Db, { fresh, rows, out, at, charge }: Booking): Promise<Booked> {
  const chargeId = uuidV7(at.getTime())
  const sessions = sumSessions(fresh, at)
  const { repeated, overgrown } = await addSessions(db, sessions)
  const lost = overgrown.length === 0 ? 0n : await closeHoles(db, overgrown)
  const replayed = replays({ fresh, sessions, repeated })
  const firstParts = rows.slice(0, rows.end())
  await store.copyTickets(db, wholeRows({ fresh, firstParts, out, chargeId, replayed, at }))
  await store.addHours(db, sumHours(fresh))
  const charges = fresh.flatMap((ticket) => chargeOf(ticket, firstParts))
  const exhausted = charges.length === 0 ? [] : await charge(db, charges, { id: chargeId, at })
  const late = sessions.reduce((sum, session) => sum + session.late, 0)
  return { exhausted, irregular: { forked: replayed.size, late, lost } }
}

interface Rows extends Pick<Booking, 'fresh' | 'out' | 'at'> {
  readonly firstParts: Buffer
  readonly chargeId: string
  readonly replayed: ReadonlySet<Entry>
}

function wholeRows({ fresh, firstParts, out, chargeId, replayed, at }: Rows): Buffer {
  const start = out.end()
  const charge = uuidBytes(chargeId)
  const ids = new Map<Subject, { appId: Buffer; userId: Buffer }>()
  for (const { entry, subject, price } of fresh) {
    const known = ids.get(subject)
    const id = known ?? { appId: uuidBytes(subject.appId), userId: uuidBytes(subject.userId) }
    if (!known) ids.set(subject, id)
    out.copy(firstParts, entry.from, entry.to)
    writeOutcome(out, {
      ...id, replayed: replayed.has(entry), receivedAtMs: at.getTime(),
      price: price && { rateId: price.rateId, costAttos: String(price.cost), chargeId: charge },
    })
  }
  return out.slice(start, out.end())
}

function chargeOf({ entry, subject, price }: Fresh, rows: Buffer): TicketCharge[] {
  if (price === null) return []
  const { pipeline, modelId } = entry.feature
  return [{
    appId: subject.appId, userId: subject.userId, eventId: eventIdIn(rows, entry.from), pipeline, modelId,
    signedAt: new Date(entry.signedAtMs), cost: price.cost,
  }]
}

/** Tickets whose session had their sequence number before, in the database or in the batch itself. */
function replays({ fresh, sessions, repeated }: {
  fresh: readonly Fresh[]; sessions: readonly SessionSums[]; repeated: readonly Repeated[]
}): ReadonlySet<Entry> {
  const suspects = new Map<Session, { ranges: [bigint, bigint][]; seen: Set<bigint> }>()
  for (const { session, sequences } of sessions) {
    if (new Set(sequences).size < sequences.length) suspects.set(session, { ranges: [], seen: new Set() })
  }
  for (const { position, ranges } of repeated) {
    const session = sessions[position]?.session
    if (session) suspects.set(session, { ranges: rangesOf(ranges), seen: new Set() })
  }
  const found = new Set<Entry>()
  if (suspects.size === 0) return found
  for (const { entry } of fresh) {
    const suspect = suspects.get(entry.session)
    if (!suspect) continue
    const { ranges, seen } = suspect
    const before = ranges.some(([from, to]) => entry.sequence >= from && entry.sequence < to)
    if (before || seen.has(entry.sequence)) found.add(entry)
    seen.add(entry.sequence)
  }
  return found
}
