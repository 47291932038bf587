import { DomainError } from '../../../proto/errors.ts'
import { networkRatio } from '../../lib/money.ts'
import type { Db, Pool } from '../../lib/sql.ts'
import { addSeconds } from '../../lib/time.ts'
import type { SoldRates } from '../../metering/rating/port.ts'
import type { AppId, UserId, UserKey } from '../../shared/ids.ts'
import type { Account } from '../accounts/account.ts'
import type { Accounts } from '../accounts/accounts.ts'
import { type Exposures, boundedRatio, networkCost } from '../exposure/exposure.ts'
import type { Payer } from '../exposure/store.ts'
import type * as limitChecks from '../limits/enforcement.ts'
import { type PriceCeiling, sessionTypes } from '../limits/limits.ts'
import { createLeases } from './leases.ts'
import type { EndSums, Losses } from './losses.ts'
import type { EscrowStore } from './port.ts'
import { type RefusedCall, toProof } from './reports/reporting.ts'
import { reservationSeconds } from './granting/lending.ts'

type LimitChecks = typeof limitChecks

/** The part of the store that lending and holding need. */
export type GrantingStore = Pick<
  EscrowStore,
  | 'lockSidecar'
  | 'saveSidecar'
  | 'ownsSidecar'
  | 'noteReservation'
  | 'findLeases'
  | 'saveLeases'
  | 'findRecalled'
  | 'insertAuthorisations'
  | 'takeEarlyTickets'
  | 'addSessions'
  | 'joinSessions'
  | 'findShared'
  | 'findContacts'
  | 'prove'
  | 'advanceClocks'
> &
  Pick<LimitChecks, 'findLenderLimits' | 'loadTallies' | 'saveTallies' | 'countCalls'>

export interface EscrowDeps {
  readonly store: GrantingStore
  readonly accounts: Pick<Accounts, 'lock' | 'save' | 'nextIncluded'>
  /** Ends calls that turn out to be lost after their release. */
  readonly losses: Pick<Losses, 'end'>
  readonly leaseSeconds: number
  readonly soldRates: FindSoldRates
  /** If absent, no owner pays. */
  readonly exposures: Exposures
}

/** Finds the rates at which the plan versions of locked accounts sell. */
export type FindSoldRates = (
  db: Db,
  accounts: readonly Account[],
) => Promise<ReadonlyMap<UserId, Pick<SoldRates, 'highest' | 'maxPriceWei'>>>

/** The owners who pay for the calls' apps, found before the transaction. */
export type Payers = ReadonlyMap<AppId, Payer>

interface OpenRooms<Call extends UserKey> {
  readonly sold: (call: UserKey) => Sold
  readonly save: () => Promise<void>
  /** What the call would take, at retail. */
  readonly amountOf: (call: Call) => bigint
  readonly payers: Payers
  readonly at: Date
}

interface LockOptions {
  readonly at: Date
  readonly hasLeases?: (account: Account) => boolean
  /** Whether calls of these users may be reserved, perhaps against the next period. */
  readonly isNextNeeded?: boolean
}

interface Sold {
  readonly retailRatio: bigint
  readonly ceilings: readonly PriceCeiling[]
}

export type FindAccount = (user: UserKey) => Account | undefined

/** Locks what lending, reserving and reports change, and proves calls. */
export function createLocking({ store, accounts, losses, soldRates, exposures }: EscrowDeps) {
  /**
   * Locks the users of calls, then reads their leases, so that leases are as new as the accounts.
   */
  async function lock(
    db: Db,
    calls: readonly UserKey[],
    { at, hasLeases = () => true, isNextNeeded = false }: LockOptions,
  ) {
    const locked = await accounts.lock(db, listUsers(calls), at)
    const byUser = new Map(locked.map((account) => [account.userId, account]))
    const before = new Map(locked.map((account) => [account, holdsOf(account)]))
    const leases = createLeases(await store.findLeases(db, locked.filter(hasLeases)))

    async function save(): Promise<void> {
      await store.saveLeases(db, leases.changes())
      const changed = locked.filter(
        (account) => isTouched(account) || before.get(account) !== holdsOf(account),
      )
      if (changed.length > 0) await accounts.save(db, changed, at)
    }

    const until = addSeconds(at, reservationSeconds)
    const next = isNextNeeded ? await accounts.nextIncluded(db, locked, until) : null
    const rates = await soldRates(db, locked)
    const sold = ({ userId }: UserKey) => {
      const userRates = rates.get(userId)
      return {
        retailRatio: userRates?.highest ?? networkRatio,
        ceilings: ceilingsOf(userRates?.maxPriceWei),
      }
    }
    const find = ({ userId }: UserKey) => byUser.get(userId)
    const nextIncluded = ({ userId }: UserKey): bigint => next?.get(userId) ?? 0n
    return { find, leases, nextIncluded, sold, save }
  }

  /**
   * Opens the rooms of the calls' owners. Must come after other reads, because all users of an
   * owner wait for its row. If an owner pays, a plan with almost no price uses a ratio from which
   * core can derive the network cost of its bounds. Returns the locked data with the rooms.
   */
  async function openRooms<Call extends UserKey>(
    db: Db,
    calls: readonly Call[],
    { sold, save, amountOf, payers, at }: OpenRooms<Call>,
  ) {
    const needs = new Map<AppId, bigint>()
    for (const call of calls) {
      const need = networkCost(amountOf(call), sold(call).retailRatio)
      needs.set(call.appId, (needs.get(call.appId) ?? 0n) + need)
    }
    const rooms = await exposures.open(db, { payers, needs, at })
    return {
      sold: (call: Call) => {
        const { retailRatio, ceilings } = sold(call)
        const room = rooms.find(call.appId)
        return { ceilings, room, retailRatio: room ? boundedRatio(retailRatio) : retailRatio }
      },
      save: async (): Promise<void> => {
        await save()
        await rooms.save(db)
      },
    }
  }

  /** Finds the owners who pay for the calls' apps. Call it before the transaction. */
  const findPayers = (
    pool: Pool,
    calls: readonly Pick<UserKey, 'appId'>[],
    at: Date,
  ): Promise<Payers> =>
    exposures.findPayers(pool, [...new Set(calls.map(({ appId }) => appId))], at)

  /** Proves the preceding calls. Returns the sums of released calls that are lost now, or null. */
  async function prove(
    db: Db,
    { calls, find }: { calls: readonly RefusedCall[]; find: FindAccount },
    at: Date,
  ): Promise<EndSums | null> {
    const authorisations = await store.prove(db, calls.map(toProof))
    return authorisations.length > 0 ? losses.end(db, { authorisations, find }, at) : null
  }

  return { lock, findPayers, openRooms, prove }
}

export type Locking = ReturnType<typeof createLocking>

export const listUsers = (calls: readonly UserKey[]): UserKey[] => [
  ...new Map(calls.map((call) => [call.userId, call])).values(),
]

export const notOwner = (): DomainError =>
  new DomainError('CONFLICT', "another process uses this sidecar's id")

/** A plan's price ceiling per unit, whatever the session's unit. */
const ceilingsOf = (maxWei: bigint | null | undefined): readonly PriceCeiling[] =>
  maxWei === null || maxWei === undefined
    ? noCeilings
    : sessionTypes.map((type) => ({ type, app: '', maxWei }))

const noCeilings: readonly PriceCeiling[] = []

const holdsOf = ({ lent, pending, lendAfter, lateUntil }: Account): string =>
  `${lent} ${pending} ${lendAfter?.getTime()} ${lateUntil?.getTime()}`

// True if a period was entered or a credit expired.
const isTouched = ({ entries, credits }: Account): boolean =>
  entries.length > 0 || credits.some(({ state }) => state !== 'stored')
