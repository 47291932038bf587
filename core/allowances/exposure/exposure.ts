import {
  type UsdAttos,
  type UsdMicros,
  divCeil,
  microsToAttos,
  networkRatio,
  usdAttos,
} from '../../lib/money.ts'
import type { Db } from '../../lib/sql.ts'
import { addSeconds } from '../../lib/time.ts'
import type { AppId } from '../../platform/ids.ts'
import * as store from './store.ts'

/**
 * The cost that an owner's apps may still cause the operator, in atto-dollars. Lending and
 * reserving lower it.
 */
export interface Room {
  readonly max: bigint
  left: bigint
}

/** The rooms of the apps in a transaction. */
export interface Rooms {
  /** Null for an app without a bound. */
  readonly find: (app: AppId) => Room | null
  /** Saves what was taken from the rooms. */
  readonly save: (db: Db) => Promise<void>
}

export interface Exposures {
  /**
   * Locks the owners of these apps, after all accounts and in id order, until the transaction ends.
   * `needs` is what the transaction would take. Counts an exposure again if less than its need, or
   * less than a quarter of its maximum, is left.
   */
  readonly open: (db: Db, needs: ReadonlyMap<AppId, bigint>, at: Date) => Promise<Rooms>
}

const windowDays = 30
const daySeconds = 86_400
/**
 * A bound still includes what has ended until it is counted again: after this time, or sooner if
 * little is left.
 */
const countEveryMs = 10_000
const recountEveryMs = 1_000

/** Network cost counts from the day of this instant on. */
export const windowStart = (at: Date): Date => addSeconds(at, -windowDays * daySeconds)

/**
 * Returns the ratio to use for bounds of bounded apps, from which core derives their network cost.
 */
export const boundedRatio = (ratio: bigint): bigint =>
  ratio > store.leastRatio ? ratio : store.leastRatio

/**
 * Returns what a retail bound may cost the operator: the bound divided by the ratio it was
 * multiplied with.
 */
export const networkCost = (bound: bigint, ratio: bigint): UsdAttos =>
  usdAttos(divCeil(bound * networkRatio, boundedRatio(ratio)))

const reservedShare = 4n

/** True while less than a quarter of the maximum is left. */
const isScarce = ({ left, max }: Room): boolean => left <= 0n || left * reservedShare < max

/**
 * Returns how much may be lent at that ratio. A scarce room lends nothing, so that idle leases do
 * not take it from calls in use.
 */
export const lendable = (room: Room, ratio: bigint): bigint =>
  isScarce(room) ? 0n : (room.left * boundedRatio(ratio)) / networkRatio

const unboundedRooms: Rooms = { find: () => null, save: async () => {} }

/** Applies no bound. */
export const unbounded: Exposures = { open: async () => unboundedRooms }

/**
 * Bounds what apps may cost the operator before payment (docs/billing.md, "Unpaid network cost"):
 * booked network cost of 30 days, plus lent and pending money, over all apps of an owner.
 */
export function createExposures({ defaultMax }: { readonly defaultMax: UsdMicros }): Exposures {
  const fallback = microsToAttos(defaultMax)

  async function open(db: Db, needs: ReadonlyMap<AppId, bigint>, at: Date): Promise<Rooms> {
    const owners = await store.findOwners(db, [...needs.keys()])
    if (owners.size === 0) return unboundedRooms
    const ids = [...new Set(owners.values())]
    const needOf = (owner: store.OwnerId): bigint =>
      [...owners].reduce(
        (sum, [app, own]) => (own === owner ? sum + (needs.get(app) ?? 0n) : sum),
        0n,
      )
    const opened = new Map<store.OwnerId, OpenedRoom>()
    for (const exposure of await store.lockExposures(db, ids)) {
      const max = exposure.max ?? fallback
      const isCounted = isDue(exposure, {
        room: { max, left: max - exposure.bound },
        need: needOf(exposure.owner),
        at,
      })
      const bound = isCounted
        ? await store.countExposure(db, exposure.owner, windowStart(at))
        : exposure.bound
      const countedAt = isCounted ? at : exposure.countedAt
      opened.set(exposure.owner, {
        max,
        stored: exposure.bound,
        countedAt,
        isCounted,
        left: max - bound,
      })
    }
    return {
      find: (app) => opened.get(owners.get(app) ?? '') ?? null,
      save: (of) => store.saveBounds(of, changesOf(opened)),
    }
  }

  return { open }
}

interface OpenedRoom extends Room {
  readonly stored: bigint
  readonly countedAt: Date | null
  readonly isCounted: boolean
}

function isDue(
  { countedAt }: store.Exposure,
  { room, need, at }: { room: Room; need: bigint; at: Date },
): boolean {
  if (countedAt === null) return true
  const age = at.getTime() - countedAt.getTime()
  // A clock that was ahead must not delay the count.
  if (age < -recountEveryMs || age >= countEveryMs) return true
  return (need > room.left || isScarce(room)) && Math.abs(age) >= recountEveryMs
}

const changesOf = (opened: ReadonlyMap<store.OwnerId, OpenedRoom>) =>
  [...opened].flatMap(([owner, { max, left, stored, countedAt, isCounted }]) =>
    isCounted || max - left !== stored ? [{ owner, bound: max - left, countedAt }] : [],
  )
