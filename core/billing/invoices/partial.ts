import type { Credit, CreditKey } from '../../balances/accounts/credits.ts'
import type { Ledger } from '../../balances/ledger/ledger.ts'
import type { TicketCharge } from '../../metering/ingest/charges.ts'
import { usdAttos } from '../../lib/money.ts'
import type { Db } from '../../lib/sql.ts'
import type { EntryRange } from './ranges.ts'
import type { UserId } from '../../shared/ids.ts'
import * as store from './ticket-store.ts'
import type { PartialCharge, UsageSum } from './ticket-store.ts'

/** The part of the ledger that repeats the draws of a charge. */
export type Draws = Pick<Ledger, 'shareCharge' | 'readCredits'>

const chargesAtOnce = 50
const ticketsAtOnce = 20_000

/**
 * Returns the overage of charges that credits paid for in part, by user, pipeline and model. Repeats
 * the draws of each charge, so the sums are exact. Omits the overage of a charge whose tickets are
 * not all there. Names each user once. One statement serves many users.
 */
export async function sumPartialCharges(
  db: Db,
  ranges: readonly EntryRange[],
  ledger: Draws,
): Promise<UsageSum[]> {
  const sums = new Map<string, UsageSum>()
  const rangeOf = new Map(ranges.map((range) => [range.userId, range]))
  function requireRange(user: UserId): EntryRange {
    const range = rangeOf.get(user)
    if (!range) throw new Error('a charge of another user was read')
    return range
  }
  for (let left = ranges; left.length > 0;) {
    const charges = await store.firstPartialCharges(db, left, chargesAtOnce)
    for (const some of splitByTickets(charges)) {
      const tickets = await findTickets(db, some)
      const credits = await ledger.readCredits(db, creditKeys(some))
      for (const charge of some) {
        const range = requireRange(charge.userId)
        const own = tickets.get(store.chargeKey(charge)) ?? []
        const drawn = credits.get(charge.userId) ?? []
        addCharge(sums, { charge, tickets: own, credits: drawn, range }, ledger)
      }
    }
    left = withoutRead(left, charges)
  }
  return [...sums.values()]
}

/** Returns the rest of the ranges that may have more charges. */
function withoutRead(
  ranges: readonly EntryRange[],
  charges: readonly PartialCharge[],
): EntryRange[] {
  const read = Map.groupBy(charges, ({ userId }) => userId)
  return ranges.flatMap((range) => {
    const own = read.get(range.userId) ?? []
    const last = own.at(-1)
    return last && own.length === chargesAtOnce ? [{ ...range, fromSeq: last.seq }] : []
  })
}

function addCharge(
  sums: Map<string, UsageSum>,
  {
    charge,
    tickets,
    credits,
    range,
  }: {
    readonly charge: PartialCharge
    readonly tickets: readonly TicketCharge[]
    readonly credits: readonly Credit[]
    readonly range: EntryRange
  },
  ledger: Draws,
): void {
  const { draws, overage } = charge
  const ids = new Set(draws.map(({ creditId }) => creditId))
  const drawn = credits.filter(({ id }) => ids.has(id))
  const shares =
    ledger.shareCharge({ owner: charge, draws, overage, credits: drawn, tickets }) ?? []
  const overages = new Map(shares.map((share) => [share.eventId, share.overage]))
  for (const ticket of tickets) add(sums, { ticket, overage: overages.get(ticket.eventId), range })
}

/** The credits that charges drew from, each once. */
function creditKeys(charges: readonly PartialCharge[]): CreditKey[] {
  const keys = charges.flatMap(({ appId, userId, draws }) =>
    draws.map(({ creditId }) => ({ appId, userId, creditId })),
  )
  return [...new Map(keys.map((key) => [`${key.userId} ${key.creditId}`, key])).values()]
}

/** Splits charges into groups with a bounded number of tickets, or with one charge. */
function splitByTickets(charges: readonly PartialCharge[]): PartialCharge[][] {
  const groups: PartialCharge[][] = []
  let [group, count]: [PartialCharge[], number] = [[], 0]
  for (const charge of charges) {
    if (group.length > 0 && count + charge.tickets > ticketsAtOnce) {
      groups.push(group)
      group = []
      count = 0
    }
    group.push(charge)
    count += charge.tickets
  }
  return group.length > 0 ? [...groups, group] : groups
}

const daysBack = 86_400_000

/** Returns the earliest signing time at which tickets of a charge are looked for first. */
export const searchSince = (bookedAt: Date): Date => new Date(bookedAt.getTime() - daysBack)

/**
 * Looks for the tickets near the booking, then everywhere for charges of which some were signed long
 * before.
 */
async function findTickets(
  db: Db,
  charges: readonly PartialCharge[],
): Promise<ReadonlyMap<string, TicketCharge[]>> {
  const near = await store.ticketsOfCharges(
    db,
    charges.map((charge) => ({ ...charge, signedSince: searchSince(charge.bookedAt) })),
  )
  const incomplete = charges.filter(
    (charge) => near.get(store.chargeKey(charge))?.length !== charge.tickets,
  )
  if (incomplete.length === 0) return near
  const all = await store.ticketsOfCharges(
    db,
    incomplete.map((charge) => ({ ...charge, signedSince: null })),
  )
  return new Map([...near, ...all])
}

function add(
  sums: Map<string, UsageSum>,
  {
    ticket,
    overage = 0n,
    range,
  }: {
    readonly ticket: TicketCharge
    readonly overage: bigint | undefined
    readonly range: EntryRange
  },
): void {
  if (overage === 0n) return
  const { userId, pipeline, modelId, signedAt } = ticket
  const isLate = range.lateBefore !== null && signedAt < range.lateBefore
  const key = [userId, pipeline, modelId, isLate].join('\n')
  const { amount, tickets, first, last } = sums.get(key) ?? {
    amount: 0n,
    tickets: 0n,
    first: signedAt,
    last: signedAt,
  }
  sums.set(key, {
    userId,
    pipeline,
    modelId,
    isLate,
    amount: usdAttos(amount + overage),
    tickets: tickets + 1n,
    first: signedAt < first ? signedAt : first,
    last: signedAt > last ? signedAt : last,
  })
}
