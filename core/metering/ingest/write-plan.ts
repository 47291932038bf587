import { setImmediate as nextTurn } from 'node:timers/promises'
import type { TicketCharge, UserCharge } from '../../allowances/charge.ts'
import type { UserId } from '../../platform/ids.ts'
import type { RowBuffer } from '../../lib/copy-sql.ts'
import { uuidV7 } from '../../lib/crypto.ts'
import { usdAttos } from '../../lib/money.ts'
import type { Db, Statement } from '../../lib/sql.ts'
import type { EmitPriced } from '../backend/emit.ts'
import type { TicketKey } from '../backend/store.ts'
import type { Batch, Session } from '../batch/batch.ts'
import { featureOf, fromOf, microsOf, msOf, sequenceOf, sessionOf, toOf } from '../batch/columns.ts'
import { microsText } from '../events/fields.ts'
import { rangesOf } from './sequences.ts'
import { type Repeated, addSessions, addingSessions, closeHoles } from './session-store.ts'
import * as hourStore from './hour-store.ts'
import * as store from './store.ts'
import { type SessionSums, createSums } from '../batch/sums.ts'
import { eventIdIn, outcomeWriter } from '../batch/ticket-row.ts'
import type { Charge, Priced, Subject } from '../types.ts'

/** New tickets of known users. */
export interface Fresh {
  readonly batch: Batch
  readonly places: Uint32Array
  /** In the same order. */
  readonly prices: readonly (Priced | null)[]
}

/** New tickets with all that is written of them. */
export interface Bookable extends Fresh {
  readonly chargeId: string
  readonly at: Date
  readonly sessions: readonly SessionSums[]
  readonly addingSessions: Statement
  readonly addingHours: Statement
  /** As if no sequence number had come before. */
  readonly rows: Buffer
  readonly unpriced: number
}

export interface Given {
  /** The first parts of the tickets' rows. */
  readonly firstParts: Buffer
  /** For the whole rows. */
  readonly out: RowBuffer
  readonly at: Date
}

const breath = 100

/** All that can be worked out of new tickets without the database. Lets others have their turn: one may be writing. */
export async function bookable(fresh: Fresh, given: Given): Promise<Bookable> {
  const { batch, places, prices } = fresh
  const { out, at } = given
  const chargeId = uuidV7(at.getTime())
  const sums = createSums(batch, at)
  const start = out.end()
  const write = rowWriter({ batch, chargeId, at }, given)
  let unpriced = 0
  for (let i = 0; i < places.length; i++) {
    const [place = 0, price = null] = [places[i], prices[i]]
    write(place, price, false)
    sums.take(place, price)
    if (price === null) unpriced += 1
    if (i % breath === breath - 1) await nextTurn()
  }
  const rows = out.slice(start, out.end())
  const { sessions, hours } = sums.read()
  await nextTurn()
  const addingHours = hourStore.addingHours(hours)
  await nextTurn()
  const adding = addingSessions(sessions)
  await nextTurn()
  return { ...fresh, chargeId, at, sessions, addingSessions: adding, addingHours, rows, unpriced }
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
export interface Booked {
  readonly exhausted: readonly UserId[]
  readonly irregular: Irregular
}

export interface Told {
  readonly charge: Charge
  /** Sends priced tickets on, where they are to be sent. */
  readonly emit?: EmitPriced | undefined
}

interface Booking extends Given, Told {
  /** The rows are in, as if no sequence number had come before: `book` rejects when one has. */
  readonly copied?: boolean
}

/** Writes tickets with their sums and charges. */
export async function book(db: Db, tickets: Bookable, given: Booking): Promise<Booked> {
  const { chargeId, at, sessions } = tickets
  const { repeated, overgrown } = await addSessions(db, tickets.addingSessions)
  const lost = overgrown.length === 0 ? 0n : await closeHoles(db, overgrown)
  const replayed = replays(tickets, repeated)
  if (!given.copied)
    await store.copyTickets(
      db,
      replayed.size === 0 ? tickets.rows : rowsWith(replayed, tickets, given),
    )
  else if (replayed.size > 0) throw new Error('sequence numbers had come before')
  await hourStore.addHours(db, tickets.addingHours)
  await given.emit?.(db, keysOf(tickets, given.firstParts), at)
  const charges = chargesOf(tickets, given.firstParts)
  const exhausted =
    charges.length === 0 ? [] : await given.charge(db, charges, { id: chargeId, at })
  return {
    exhausted,
    irregular: { forked: replayed.size, late: sumOf(sessions, ({ late }) => late), lost },
  }
}

const sumOf = (sessions: readonly SessionSums[], of: (session: SessionSums) => number): number =>
  sessions.reduce((sum, session) => sum + of(session), 0)

/** Writes whole rows, one by one. */
function rowWriter(
  { batch, ...charge }: Pick<Bookable, 'batch' | 'chargeId' | 'at'>,
  { firstParts, out }: Given,
) {
  const writeOutcome = outcomeWriter(out, charge)

  return (place: number, price: Priced | null, replayed: boolean): void => {
    out.copy(firstParts, fromOf(batch.tickets, place), toOf(batch.tickets, place))
    writeOutcome({ subject: subjectOf(batch, place), price, replayed })
  }
}

function rowsWith(
  replayed: ReadonlySet<number>,
  { places, prices, ...charge }: Bookable,
  given: Given,
): Buffer {
  const start = given.out.end()
  const write = rowWriter(charge, given)
  places.forEach((place, i) => write(place, prices[i] ?? null, replayed.has(place)))
  return given.out.slice(start, given.out.end())
}

function subjectOf({ tickets, sessions }: Batch, place: number): Subject {
  const subject = sessions[sessionOf(tickets, place)]?.payer.subject
  if (!subject) throw new Error('a ticket of nobody cannot be booked')
  return subject
}

function keysOf({ batch, places, prices }: Fresh, rows: Buffer): TicketKey[] {
  return priced({ places, prices }, (place) => ({
    ...subjectOf(batch, place),
    signedAt: microsText(microsOf(batch.tickets, place)),
    eventId: eventIdIn(rows, fromOf(batch.tickets, place)),
  }))
}

/** What each user's tickets take: the sums of the sessions, and the tickets themselves only when the ledger needs them. */
function chargesOf(tickets: Bookable, rows: Buffer): UserCharge[] {
  let each: Map<UserId, TicketCharge[]> | null = null
  const ofUser = (user: UserId): readonly TicketCharge[] =>
    (each ??= Map.groupBy(ticketCharges(tickets, rows), ({ userId }) => userId)).get(user) ?? []
  const byUser = Map.groupBy(tickets.sessions, ({ subject }) => subject.userId)
  return [...byUser].flatMap(([userId, sessions]): UserCharge[] => {
    const charged = sumOf(sessions, (session) => session.tickets - session.unpriced)
    const [first] = sessions
    if (!first || charged === 0) return []
    return [
      {
        appId: first.subject.appId,
        userId,
        tickets: charged,
        each: () => ofUser(userId),
        cost: usdAttos(sessions.reduce((sum, { cost }) => sum + cost, 0n)),
        from: new Date(
          Math.floor(Math.min(...sessions.map(({ firstMicros }) => firstMicros)) / 1000),
        ),
        to: new Date(Math.floor(Math.max(...sessions.map(({ lastMicros }) => lastMicros)) / 1000)),
      },
    ]
  })
}

function ticketCharges({ batch, places, prices }: Fresh, rows: Buffer): TicketCharge[] {
  const { tickets, features } = batch
  return priced({ places, prices }, (place, { cost }) => {
    const { appId, userId } = subjectOf(batch, place)
    const { pipeline, modelId } = features[featureOf(tickets, place)] ?? {
      pipeline: '',
      modelId: '',
    }
    const eventId = eventIdIn(rows, fromOf(tickets, place))
    return {
      appId,
      userId,
      eventId,
      pipeline,
      modelId,
      signedAt: new Date(msOf(tickets, place)),
      cost,
    }
  })
}

function priced<T>(
  { places, prices }: Pick<Fresh, 'places' | 'prices'>,
  of: (place: number, price: Priced) => T,
): T[] {
  const found: T[] = []
  for (let i = 0; i < places.length; i++) {
    const price = prices[i]
    if (price) found.push(of(places[i] ?? 0, price))
  }
  return found
}

/** Places of tickets whose session had their sequence number before, in the database or in the batch itself. */
function replays(
  { batch, places, sessions }: Bookable,
  repeated: readonly Repeated[],
): ReadonlySet<number> {
  const suspects = new Map<Session | undefined, { ranges: [bigint, bigint][]; seen: Set<bigint> }>()
  for (const { session, sequences } of sessions) {
    if (new Set(sequences).size < sequences.length)
      suspects.set(session, { ranges: [], seen: new Set() })
  }
  for (const { position, ranges } of repeated) {
    const session = sessions[position]?.session
    if (session) suspects.set(session, { ranges: rangesOf(ranges), seen: new Set() })
  }
  const found = new Set<number>()
  if (suspects.size === 0) return found
  // In the order of arrival: of two of one number the later is the replay.
  for (const place of places.toSorted()) {
    const suspect = suspects.get(batch.sessions[sessionOf(batch.tickets, place)])
    if (!suspect) continue
    const { ranges, seen } = suspect
    const sequence = sequenceOf(batch.tickets, place)
    const before = ranges.some(([from, to]) => sequence >= from && sequence < to)
    if (before || seen.has(sequence)) found.add(place)
    seen.add(sequence)
  }
  return found
}
