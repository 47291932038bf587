import type { UserId } from '../ids.ts'
import { type RowBuffer, uuidBytes } from '../lib/copy-sql.ts'
import { uuidV7 } from '../lib/crypto.ts'
import type { Db } from '../lib/sql.ts'
import type { Entry, Session } from './batch.ts'
import { rangesOf } from './sequences.ts'
import { type Repeated, addSessions } from './session-store.ts'
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

/** Writes new tickets with their sums and charges. Returns the users that have nothing left. */
export async function book(db: Db, { fresh, rows, out, at, charge }: Booking): Promise<UserId[]> {
  const chargeId = uuidV7(at.getTime())
  const sessions = sumSessions(fresh, at)
  const replayed = replays({ fresh, sessions, repeated: await addSessions(db, sessions) })
  const firstParts = rows.slice(0, rows.end())
  await store.copyTickets(db, wholeRows({ fresh, firstParts, out, chargeId, replayed, at }))
  await store.addHours(db, sumHours(fresh))
  const charges = fresh.flatMap((ticket) => chargeOf(ticket, firstParts))
  return charges.length === 0 ? [] : charge(db, charges, { id: chargeId, at })
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
