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

/** What an owner's apps may still cost the operator, in atto-dollars. Lending and reserving lower it. */
export interface Room {
  readonly max: bigint
  left: bigint
}

/** The rooms of a transaction's apps. */
export interface Rooms {
  /** Null for an app that is not bounded. */
  readonly find: (app: AppId) => Room | null
  /** Writes what was taken from them. */
  readonly save: (db: Db) => Promise<void>
}

export interface Exposures {
  /**
   * Locks the owners of these apps, after all accounts and in the order of ids, until the transaction ends. `needs` are
   * what the transaction would take: where a bound leaves less, or less than a quarter, it is counted anew.
   */
  readonly open: (db: Db, needs: ReadonlyMap<AppId, bigint>, at: Date) => Promise<Rooms>
}

const windowDays = 30
const daySeconds = 86_400
/** A bound forgets nothing that has ended until it is counted anew: after this time, or sooner where it is reached. */
const countEveryMs = 10_000
const recountEveryMs = 1_000

/** The instant since whose day network cost counts. */
export const windowStart = (at: Date): Date => addSeconds(at, -windowDays * daySeconds)

/** Returns the ratio by which bounds are made for bounded apps: core derives their network cost from them. */
export const boundedRatio = (ratio: bigint): bigint =>
  ratio > store.leastRatio ? ratio : store.leastRatio

/** Returns what a bound at retail may cost the operator: the price without the ratio that it was multiplied by. */
export const networkCost = (bound: bigint, ratio: bigint): UsdAttos =>
  usdAttos(divCeil(bound * networkRatio, boundedRatio(ratio)))

const reservedShare = 4n

/** True while less than a quarter of the maximum is left. */
const isScarce = ({ left, max }: Room): boolean => left <= 0n || left * reservedShare < max

/** Returns how much may be lent at that ratio: nothing of a scarce room, so that idle leases leave it to calls in use. */
export const lendable = (room: Room, ratio: bigint): bigint =>
  isScarce(room) ? 0n : (room.left * boundedRatio(ratio)) / networkRatio

const unboundedRooms: Rooms = { find: () => null, save: async () => {} }

/** Bounds nothing. */
export const unbounded: Exposures = { open: async () => unboundedRooms }

/**
 * Bounds what apps may cost the operator before anybody pays (docs/billing.md, "Unpaid network cost"): booked network cost of
 * 30 days, what is lent and what is pending, over all apps of an owner.
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
  // A clock that was ahead must not put the count off.
  if (age < -recountEveryMs || age >= countEveryMs) return true
  return (need > room.left || isScarce(room)) && Math.abs(age) >= recountEveryMs
}

const changesOf = (opened: ReadonlyMap<store.OwnerId, OpenedRoom>) =>
  [...opened].flatMap(([owner, { max, left, stored, countedAt, isCounted }]) =>
    isCounted || max - left !== stored ? [{ owner, bound: max - left, countedAt }] : [],
  )
