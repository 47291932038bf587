import { getOrInsert } from '../../lib/maps.ts'
import { type Db, savepoint } from '../../lib/sql.ts'
import type { AppId, UserId } from '../../shared/ids.ts'
import { isPoison } from '../quarantine/poison.ts'

/**
 * Books tickets that the database rejects as a whole: halves them, between apps before users before
 * tickets, until the rejected ones are isolated. All parts share the caller's transaction, so that
 * the batch stays all or nothing.
 *
 * Each app may have `refusalsPerApp` rejected parts in the search for its faulty tickets. After
 * that, a rejected part is no longer halved: 1,200 faulty tickets would otherwise cost 2,400
 * rollbacks while other apps' tickets wait for the commit. A case of 300 faulty tickets in
 * test/core/metering/collector/collector.test.ts bounds the attempts.
 */
export interface PartTicket {
  readonly place: number
  readonly appId: AppId
  readonly userId: UserId
}

/** Tickets of one app that the database rejected together, usually one. */
export interface RefusedPart {
  readonly places: readonly number[]
  readonly error: unknown
}

export interface BookedParts<T> {
  readonly booked: readonly T[]
  readonly refused: readonly RefusedPart[]
}

/** Enough to find two faulty tickets in a thousand. */
const refusalsPerApp = 24

/**
 * Books `tickets`, grouped by app and user, with `book`. Rethrows errors not caused by the tickets.
 */
export async function bookInParts<T>(
  db: Db,
  tickets: readonly PartTicket[],
  book: (places: Uint32Array) => Promise<T>,
): Promise<BookedParts<T>> {
  const booked: T[] = []
  const refused: RefusedPart[] = []
  const refusals = new Map<AppId, { count: number }>()

  async function bookPart(part: readonly PartTicket[]): Promise<void> {
    const places = part.map(({ place }) => place)
    try {
      booked.push(await savepoint(db, () => book(Uint32Array.from(places))))
    } catch (error) {
      if (!isPoison(error)) throw error
      if (isDivisible(part)) await bookHalves(part)
      else refused.push({ places, error })
    }
  }

  async function bookHalves(part: readonly PartTicket[]): Promise<void> {
    const middle = middleOf(part)
    await bookPart(part.slice(0, middle))
    await bookPart(part.slice(middle))
  }

  function isDivisible(part: readonly PartTicket[]): boolean {
    const [first, last] = [part[0], part.at(-1)]
    if (!first || !last || part.length === 1) return false
    if (first.appId !== last.appId) return true
    const ofApp = getOrInsert(refusals, first.appId, () => ({ count: 0 }))
    ofApp.count += 1
    return ofApp.count <= refusalsPerApp
  }

  await (tickets.length > 1 ? bookHalves(tickets) : bookPart(tickets))
  return { booked, refused }
}

/**
 * Returns the position to split at: the boundary between apps that is nearest to the middle, else
 * between users, else the middle.
 */
function middleOf(part: readonly PartTicket[]): number {
  const key = part[0]?.appId === part.at(-1)?.appId ? 'userId' : 'appId'
  const half = part.length >> 1
  for (let distance = 0; distance < part.length; distance++) {
    for (const at of [half - distance, half + distance]) {
      const [before, after] = [part[at - 1], part[at]]
      if (before && after && before[key] !== after[key]) return at
    }
  }
  return half
}
