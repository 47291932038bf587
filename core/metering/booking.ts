import { setImmediate as nextTurn } from 'node:timers/promises'
import type { UserId } from '../ids.ts'
import { type RowBuffer, uuidBytes } from '../lib/copy-sql.ts'
import { uuidV7 } from '../lib/crypto.ts'
import type { UsdAttos } from '../lib/money.ts'
import type { Db, Statement } from '../lib/sql.ts'
import type { EmitPriced } from './backend/emit.ts'
import type { TicketKey } from './backend/emit-store.ts'
import type { Entry, Session } from './batch.ts'
import { microsText } from './fields.ts'
import { rangesOf } from './sequences.ts'
import { type Repeated, addSessions, addingSessions, closeHoles } from './session-store.ts'
import * as store from './store.ts'
import { type Fresh, type SessionSums, createSums } from './sums.ts'
import { eventIdIn, writeOutcome } from './ticket-row.ts'
import type { Charge, Subject, TicketCharge } from './types.ts'

/** New tickets with all that is written of them. */
export interface Bookable {
  readonly fresh: readonly Fresh[]
  readonly chargeId: string
  readonly at: Date
  readonly sessions: readonly SessionSums[]
  readonly addingSessions: Statement
  readonly addingHours: Statement
  /** As if no sequence number had come before. */
  readonly rows: Buffer
  readonly charges: readonly TicketCharge[]
}

export interface Given {
  /** The first parts of the tickets' rows. */
  readonly firstParts: Buffer
  /** For the whole rows. */
  readonly out: RowBuffer
  readonly at: Date
}

const breath = 250

/** All that can be worked out of new tickets without the database. Lets others have their turn: one may be writing. */
export async function bookable(fresh: readonly Fresh[], { firstParts, out, at }: Given): Promise<Bookable> {
  const chargeId = uuidV7(at.getTime())
  const sums = createSums(at)
  const charges: TicketCharge[] = []
  const start = out.end()
  const write = rowWriter({ chargeId, at }, { firstParts, out })
  for (const [i, ticket] of fresh.entries()) {
    write(ticket, false)
    sums.take(ticket)
    if (ticket.price) charges.push(chargeOf(ticket, { cost: ticket.price.cost, rows: firstParts }))
    if (i % breath === breath - 1) await nextTurn()
  }
  const rows = out.slice(start, out.end())
  const { sessions, hours } = sums.read()
  const addingHours = store.addingHours(hours)
  await nextTurn()
  return { fresh, chargeId, at, sessions, addingSessions: addingSessions(sessions), addingHours, rows, charges }
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

export interface Told {
  readonly charge: Charge
  /** Sends priced tickets on, where they are to be sent. */
  readonly emit?: EmitPriced | undefined
}

/** Writes tickets with their sums and charges. */
export async function book(db: Db, tickets: Bookable, { firstParts, out, charge, emit }: Given & Told): Promise<Booked> {
  const { fresh, chargeId, at, sessions, charges } = tickets
  const { repeated, overgrown } = await addSessions(db, tickets.addingSessions)
  const lost = overgrown.length === 0 ? 0n : await closeHoles(db, overgrown)
  const replayed = replays(tickets, repeated)
  await store.copyTickets(db, replayed.size === 0 ? tickets.rows : rowsWith(replayed, tickets, { firstParts, out }))
  await store.addHours(db, tickets.addingHours)
  await emit?.(db, fresh.flatMap((ticket) => keyOf(ticket, firstParts)), at)
  const exhausted = charges.length === 0 ? [] : await charge(db, charges, { id: chargeId, at })
  const late = sessions.reduce((sum, session) => sum + session.late, 0)
  return { exhausted, irregular: { forked: replayed.size, late, lost } }
}

function keyOf({ entry, subject, price }: Fresh, rows: Buffer): TicketKey[] {
  if (price === null) return []
  return [{ ...subject, signedAt: microsText(entry.signedAtMicros), eventId: eventIdIn(rows, entry.from) }]
}

function rowsWith(replayed: ReadonlySet<Entry>, { fresh, ...charge }: Bookable, rows: Pick<Given, 'firstParts' | 'out'>): Buffer {
  const start = rows.out.end()
  const write = rowWriter(charge, rows)
  for (const ticket of fresh) write(ticket, replayed.has(ticket.entry))
  return rows.out.slice(start, rows.out.end())
}

/** Writes whole rows, one by one. */
function rowWriter({ chargeId, at }: Pick<Bookable, 'chargeId' | 'at'>, { firstParts, out }: Pick<Given, 'firstParts' | 'out'>) {
  const charge = uuidBytes(chargeId)
  const receivedAtMs = at.getTime()
  const ids = new Map<Subject, { appId: Buffer; userId: Buffer }>()

  return ({ entry, subject, price }: Fresh, replayed: boolean): void => {
    const known = ids.get(subject)
    const id = known ?? { appId: uuidBytes(subject.appId), userId: uuidBytes(subject.userId) }
    if (!known) ids.set(subject, id)
    out.copy(firstParts, entry.from, entry.to)
    writeOutcome(out, {
      ...id, replayed, receivedAtMs,
      price: price && { rateId: price.rateId, costAttos: String(price.cost), chargeId: charge },
    })
  }
}

function chargeOf({ entry, subject }: Fresh, { cost, rows }: { cost: UsdAttos; rows: Buffer }): TicketCharge {
  const { pipeline, modelId } = entry.feature
  return {
    appId: subject.appId, userId: subject.userId, eventId: eventIdIn(rows, entry.from), pipeline, modelId,
    signedAt: new Date(entry.signedAtMs), cost,
  }
}

/** Tickets whose session had their sequence number before, in the database or in the batch itself. */
function replays({ fresh, sessions }: Bookable, repeated: readonly Repeated[]): ReadonlySet<Entry> {
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
