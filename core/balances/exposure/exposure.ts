import { type UsdAttos, divCeil, networkRatio, usdAttos } from '../../lib/money.ts'
import { type Db, type Pool, tx } from '../../lib/sql.ts'
import { addSeconds } from '../../lib/time.ts'
import type { AppId, UserId, UserKey } from '../../shared/ids.ts'
import { type Account, toAppTime } from '../accounts/account.ts'
import type { Accounts } from '../accounts/accounts.ts'
import { uncommittedAt } from '../accounts/credits.ts'
import { type AccountRefusal, type Spending, explainRefusal } from '../accounts/spending.ts'
import type * as exposureStore from './store.ts'
import { type OwnerHolds, type Payer, leastRatio } from './store.ts'

/**
 * The second account of a call: the account of the app's owner, which pays the owner charge
 * (docs/escrow-credit.md, "The owner's account"). What all apps of an owner may still cost must fit
 * in its balance and credit line.
 */

/** The storage of exposures, in PostgreSQL or, for the model checker, in memory. */
export type ExposureStore = Pick<
  typeof exposureStore,
  'findPayers' | 'lockHolds' | 'readHolds' | 'findExceeded' | 'countHeld' | 'saveHolds'
>

/**
 * Returns the account users of the apps' owners, created at first need. Omits apps that no owner
 * pays for.
 */
export type FindPayingOwners = (
  db: Db,
  apps: readonly AppId[],
) => Promise<ReadonlyMap<AppId, UserKey>>

export interface ExposuresDeps {
  readonly store: ExposureStore
  readonly accounts: Pick<Accounts, 'readStored' | 'nextIncluded'>
  readonly findPayingOwners: FindPayingOwners
  /** From a decision until its ticket is booked, at the latest. */
  readonly horizonSeconds: number
}

/** What an owner's account can still pay for. Shared by all apps of the owner in a transaction. */
export interface OwnerRoom {
  readonly owner: UserKey
  /** Balance and credit line that last until the tickets are booked. */
  readonly money: bigint
  /** An upper bound of what is lent and pending for its apps, as owner charge. */
  held: bigint
  /** Whether `held` was counted in this transaction. */
  readonly isCounted: boolean
  /** Why the account cannot pay more, once nothing is left. */
  readonly refusal: AccountRefusal
}

/** The room of one app's owner, with the app's cut. */
export interface Room {
  readonly owner: OwnerRoom
  readonly cut: bigint
}

/** Null for an app that no owner pays for. */
type FindRoom = (app: AppId) => Room | null

/** The rooms of the apps in a transaction. */
export interface Rooms {
  readonly find: FindRoom
  /** Saves what was taken from the rooms. */
  readonly save: (db: Db) => Promise<void>
}

const wholeCut = 10_000n
const reservedShare = 4n
/**
 * A bound still includes what has ended until it is counted again: after this time, or sooner if
 * little is left.
 */
const countEveryMs = 10_000
const recountEveryMs = 250

/** Returns the ratio to use for bounds, from which core derives their network cost. */
export const boundedRatio = (ratio: bigint): bigint => (ratio > leastRatio ? ratio : leastRatio)

/**
 * Returns what a retail bound may cost the operator: the bound divided by the ratio it was
 * multiplied with.
 */
export const networkCost = (bound: bigint, ratio: bigint): UsdAttos =>
  usdAttos(divCeil(bound * networkRatio, boundedRatio(ratio)))

/** Returns the most that the owner is charged for a network cost: with the platform's cut. */
export const ownerCost = (network: bigint, cut: bigint): bigint =>
  divCeil(network * (wholeCut + cut), wholeCut)

export const leftIn = ({ owner: { money, held } }: Room): bigint => money - held

/** Returns what a user may spend if the app's owner also has to pay. */
export const spendingWith = (room: Room | null, own: Spending): Spending =>
  own.canSpend && room !== null && leftIn(room) <= 0n
    ? { canSpend: false, refusal: 'owner_debt_ceiling_reached' }
    : own

/** True while less than a quarter of the money is left. */
const isScarce = ({ money, held }: OwnerRoom): boolean =>
  held >= money || (money - held) * reservedShare < money

/**
 * Returns how much may be lent at that ratio. A scarce room lends nothing, so that idle leases do
 * not take it from calls in use.
 */
export function lendable(room: Room, ratio: bigint): bigint {
  if (isScarce(room.owner)) return 0n
  const network = (leftIn(room) * wholeCut) / (wholeCut + room.cut)
  return (network * boundedRatio(ratio)) / networkRatio
}

/** Takes a network cost from the room, if it is left. Returns whether it was taken. */
export function takeFrom(room: Room, network: bigint): boolean {
  const cost = ownerCost(network, room.cut)
  if (cost > leftIn(room)) return false
  room.owner.held += cost
  return true
}

const noRooms: Rooms = { find: () => null, save: async () => {} }
const noPayers: ReadonlyMap<AppId, Payer> = new Map()

/** What a transaction would take, at network price, by app. */
type Needs = ReadonlyMap<AppId, bigint>

/** Bounds what the apps of each owner may cost. */
export function createExposures(deps: ExposuresDeps) {
  const { store, findPayingOwners } = deps
  const counts = createCounts(deps)
  const { countAgain, roomsOf } = counts

  /**
   * Finds the owners who pay for these apps, and creates their account users at first need. Call it
   * before the transaction that opens their rooms, because creating a user takes locks.
   */
  async function findPayers(
    pool: Pool,
    apps: readonly AppId[],
    at: Date,
  ): Promise<ReadonlyMap<AppId, Payer>> {
    const payers = await store.findPayers(pool, apps, at)
    const missing = payers.flatMap(({ appId, owner }) => (owner === null ? [appId] : []))
    const created =
      missing.length === 0 ? null : await tx(pool, (db) => findPayingOwners(db, missing))
    return new Map(
      payers.flatMap(({ appId, owner, cut }) => {
        const payingOwner = owner ?? created?.get(appId)
        return payingOwner ? [[appId, { appId, owner: payingOwner, cut }] as const] : []
      }),
    )
  }

  /**
   * Locks the holds of these owners, after all accounts and in id order, until the transaction
   * ends. An owner's account itself is only read, because a batch that charges it locks it before
   * other accounts. Holds are read before the account: a ticket that is booked between the two then
   * counts twice, never zero times. Counts holds again if less than the need, or less than a
   * quarter of the money, is left.
   */
  async function open(
    db: Db,
    { payers, needs, at }: { payers: ReadonlyMap<AppId, Payer>; needs: Needs; at: Date },
  ): Promise<Rooms> {
    const paying = [...payers.values()].filter(({ appId }) => needs.has(appId))
    if (paying.length === 0) return noRooms
    const owners = distinctOwners(paying.map(({ owner }) => owner))
    const stored = await store.lockHolds(db, owners)
    const aged = await countAgain(db, stored, { at, isDue: (holds) => isOld(holds, at) })
    const first = await roomsOf(db, aged, at)
    const scarce = await countAgain(db, aged, {
      at,
      isDue: (holds) => {
        const room = first.get(holds.owner.userId)
        return room !== undefined && isWorthCounting(holds, { room, need: needOf(holds), at })
      },
    })
    const isSame = scarce.every((holds, index) => holds === aged[index])
    const rooms = isSame ? first : await roomsOf(db, scarce, at)
    const latest = new Map(scarce.map((holds) => [holds.owner.userId, holds]))

    function needOf({ owner }: OwnerHolds): bigint {
      return paying.reduce(
        (sum, payer) =>
          payer.owner.userId === owner.userId
            ? sum + ownerCost(needs.get(payer.appId) ?? 0n, payer.cut)
            : sum,
        0n,
      )
    }

    function find(app: AppId): Room | null {
      const payer = payers.get(app)
      const owner = payer && rooms.get(payer.owner.userId)
      return owner ? { owner, cut: payer.cut } : null
    }

    async function save(transaction: Db): Promise<void> {
      const changed = stored.flatMap(({ owner, held: before }) => {
        const [room, holds] = [rooms.get(owner.userId), latest.get(owner.userId)]
        if (!room || !holds || (!holds.isCounted && room.held === before)) return []
        return [{ owner, held: room.held, countedAt: holds.countedAt }]
      })
      await store.saveHolds(transaction, changed)
    }

    return { find, save }
  }

  /**
   * Returns what the owners of apps can still pay for, without locks. The room of an app is null if
   * no owner pays, or if the owner was never charged. Counts holds if their bound leaves nothing, or
   * if `isExact`.
   */
  async function read(
    db: Db,
    apps: readonly AppId[],
    { at, isExact = false }: { at: Date; isExact?: boolean },
  ): Promise<FindRoom> {
    const all = await store.findPayers(db, [...new Set(apps)], at)
    const owners = distinctOwners(all.flatMap(({ owner }) => owner ?? []))
    if (owners.length === 0) return () => null
    const stored = new Map(
      (await store.readHolds(db, owners)).map((hold) => [hold.owner.userId, hold]),
    )
    const bounds = owners.map((owner) => stored.get(owner.userId) ?? neverHeld(owner))
    const first = await roomsOf(db, bounds, at)
    const spent = await countAgain(db, bounds, {
      at,
      isDue: ({ owner }) => {
        const room = first.get(owner.userId)
        return room !== undefined && (isExact || room.money <= room.held)
      },
    })
    const exact = spent.filter(({ isCounted }) => isCounted)
    const rooms = new Map([...first, ...(exact.length > 0 ? await roomsOf(db, exact, at) : [])])
    const byApp = new Map(all.map((payer) => [payer.appId, payer]))
    return (app) => {
      const payer = byApp.get(app)
      const owner = payer?.owner && rooms.get(payer.owner.userId)
      return owner ? { owner, cut: payer.cut } : null
    }
  }

  return { findPayers, open, read, findOverdrawn: createFindOverdrawn(deps, counts) }
}

const overdrawnMax = 100

/**
 * Returns a function that finds owners whose apps hold more than the account can pay for, and have
 * leases that were not recalled; at most 100. Counts their holds, one owner at a time.
 */
function createFindOverdrawn(
  { store, horizonSeconds }: ExposuresDeps,
  { countAgain, roomsOf }: ReturnType<typeof createCounts>,
) {
  async function isOverdrawn(db: Db, owner: UserKey, at: Date): Promise<boolean> {
    const stored = await store.lockHolds(db, [owner])
    const counted = await countAgain(db, stored, { at, isDue: () => true })
    const room = (await roomsOf(db, counted, at)).get(owner.userId)
    await store.saveHolds(db, counted)
    return room !== undefined && room.held > room.money
  }

  return async (pool: Pool, at: Date): Promise<UserKey[]> => {
    const until = addSeconds(at, horizonSeconds)
    const overdrawn: UserKey[] = []
    for (const owner of await store.findExceeded(pool, { at, until, limit: overdrawnMax }))
      if (await tx(pool, (db) => isOverdrawn(db, owner, at))) overdrawn.push(owner)
    return overdrawn
  }
}

/** Counts what is held for owners, and reads what they can still pay for. */
function createCounts({ store, accounts, horizonSeconds }: ExposuresDeps) {
  async function countAgain(
    db: Db,
    all: readonly CountedHolds[],
    { at, isDue }: { at: Date; isDue: (holds: CountedHolds) => boolean },
  ): Promise<readonly CountedHolds[]> {
    const counted: CountedHolds[] = []
    for (const holds of all)
      counted.push(
        !holds.isCounted && isDue(holds)
          ? {
              ...holds,
              held: await store.countHeld(db, holds.owner, at),
              countedAt: at,
              isCounted: true,
            }
          : holds,
      )
    return counted
  }

  /** Reads the accounts of owners, and returns what they can still pay for. */
  async function roomsOf(
    db: Db,
    holds: readonly CountedHolds[],
    at: Date,
  ): Promise<ReadonlyMap<UserId, OwnerRoom>> {
    const until = addSeconds(at, horizonSeconds)
    const read = await accounts.readStored(
      db,
      holds.map(({ owner }) => owner),
    )
    const next = await accounts.nextIncluded(db, read, until)
    const byOwner = new Map(holds.map((hold) => [hold.owner.userId, hold]))
    return new Map(
      read.flatMap((account): [UserId, OwnerRoom][] => {
        const ownerHold = byOwner.get(account.userId)
        if (!ownerHold) return []
        const money = moneyOf(account, { at, until, next: next.get(account.userId) ?? 0n })
        const { owner, held, isCounted = false } = ownerHold
        return [[owner.userId, { owner, money, held, isCounted, refusal: explainRefusal(account) }]]
      }),
    )
  }

  return { countAgain, roomsOf }
}

export type Exposures = ReturnType<typeof createExposures>

/** Applies no bound. */
export const unbounded: Exposures = {
  findPayers: async () => noPayers,
  open: async () => noRooms,
  read: async () => () => null,
  findOverdrawn: async () => [],
}

const distinctOwners = (owners: readonly UserKey[]): UserKey[] => [
  ...new Map(owners.map((owner) => [owner.userId, owner])).values(),
]

const neverHeld = (owner: UserKey): CountedHolds => ({ owner, held: 0n, countedAt: null })

interface CountedHolds extends OwnerHolds {
  readonly isCounted?: boolean
}

interface MoneyTimes {
  readonly at: Date
  readonly until: Date
  /** What the account's next period includes, if it begins by `until`. */
  readonly next: bigint
}

/**
 * Returns the money of an owner's account, without its own holds. A charge burns credit at its
 * booking time, so credit that ends earlier does not count; of the included usage of a period that
 * ends earlier, the smaller one of this period and the next counts.
 */
function moneyOf(account: Account, { at, until, next }: MoneyTimes): bigint {
  const own = toAppTime(account, at)
  const times = { at: own, until: toAppTime(account, until), nextIncluded: next }
  const money = uncommittedAt(account, times)
  return account.periodEnd <= own ? money + next : money
}

function isOld({ countedAt }: CountedHolds, at: Date): boolean {
  if (countedAt === null) return true
  const age = at.getTime() - countedAt.getTime()
  // A clock that was ahead must not delay the count.
  return age < -recountEveryMs || age >= countEveryMs
}

const isWorthCounting = (
  { countedAt }: CountedHolds,
  { room, need, at }: { room: OwnerRoom; need: bigint; at: Date },
): boolean =>
  (need > room.money - room.held || isScarce(room)) &&
  (countedAt === null || Math.abs(at.getTime() - countedAt.getTime()) >= recountEveryMs)
