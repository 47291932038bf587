import type { Db } from '../../lib/sql.ts'
import type { AppId, UserId } from '../../platform/ids.ts'

/** What rating asks of the ledger, of plans and of billing. */

interface User {
  readonly appId: AppId
  readonly userId: UserId
}

/** The periods that a user's account has entered, in their order. */
export interface UserPeriods {
  readonly userId: UserId
  readonly periods: readonly {
    readonly startMs: number
    readonly endMs: number
    /** The version of the plan that holds in it. */
    readonly termsId: bigint
  }[]
  /** The first of them is the first of all. */
  readonly isWhole: boolean
}

export interface Periods {
  /** The latest periods of users, as many as `limit` of each; all without one. */
  readonly readPeriods: (
    db: Db,
    users: readonly User[],
    limit: number | null,
  ) => Promise<UserPeriods[]>
  /** Locks the accounts of users until the transaction ends, in the order of their ids, and enters the periods that run at `at`. */
  readonly enterPeriods: (db: Db, users: readonly User[], at: Date) => Promise<void>
}

export interface FeatureName {
  readonly pipeline: string
  readonly modelId: string
}

/** What a version sells at: ratios to the network's price, scaled by 10^18. */
export interface SoldRates {
  readonly ratioOf: (feature: FeatureName) => bigint
  /** The highest for any feature: which one a call is for is known only when its ticket comes. */
  readonly highest: bigint
  /** The highest price for one unit, in wei, that any of its bundles allows; null where one allows any. */
  readonly maxPriceWei: bigint | null
}

/** By the ids of versions, whose terms never change. */
export type ReadRates = (
  db: Db,
  termsIds: readonly bigint[],
) => Promise<ReadonlyMap<bigint, SoldRates>>

/** An app's cut of the network cost at an instant, in hundredths of a percent; null takes none. */
export type CutAt = (app: AppId, instant: Date) => bigint | null

/** The cuts of apps at every instant up to `until`. */
export type LoadCuts = (apps: readonly AppId[], until: Date) => Promise<CutAt>

export interface RatingPorts {
  readonly ledger: Periods
  readonly plans: { readonly readRates: ReadRates }
  readonly cuts: { readonly load: LoadCuts }
}
