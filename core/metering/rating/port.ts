import type { Db } from '../../lib/sql.ts'
import type { AppId, UserId } from '../../shared/ids.ts'

/** Ports of rating to the ledger, plans and billing. */

interface User {
  readonly appId: AppId
  readonly userId: UserId
}

/** The periods that a user's account entered, in order. */
export interface UserPeriods {
  readonly userId: UserId
  readonly periods: readonly {
    readonly startMs: number
    readonly endMs: number
    /** The plan version that applies in this period. */
    readonly termsId: bigint
  }[]
  /** Whether the list starts with the user's first period. */
  readonly isWhole: boolean
}

export interface Periods {
  /** Returns the latest periods of users, at most `limit` each; all if null. */
  readonly readPeriods: (
    db: Db,
    users: readonly User[],
    limit: number | null,
  ) => Promise<UserPeriods[]>
  /**
   * Locks the users' accounts until the transaction ends, in order of their ids, and enters the
   * periods that run at `at`.
   */
  readonly enterPeriods: (db: Db, users: readonly User[], at: Date) => Promise<void>
}

export interface FeatureName {
  readonly pipeline: string
  readonly modelId: string
}

/** Prices of a plan version: ratios to the network's price, scaled by 10^18. */
export interface SoldRates {
  readonly ratioOf: (feature: FeatureName) => bigint
  /** The highest ratio of any feature: a call's feature is unknown until its ticket arrives. */
  readonly highest: bigint
  /**
   * The highest unit price, in wei, that its bundles allow; null if any bundle allows any price.
   */
  readonly maxPriceWei: bigint | null
}

/** Reads prices by version id. A version's terms never change. */
export type ReadRates = (
  db: Db,
  termsIds: readonly bigint[],
) => Promise<ReadonlyMap<bigint, SoldRates>>

/**
 * Returns an app's cut of the network cost at an instant, in hundredths of a percent; null without
 * a cut.
 */
export type CutAt = (app: AppId, instant: Date) => bigint | null

/** Loads the cuts of apps for all instants up to `until`. */
export type LoadCuts = (apps: readonly AppId[], until: Date) => Promise<CutAt>

export interface RatingPorts {
  readonly ledger: Periods
  readonly plans: { readonly readRates: ReadRates }
  readonly cuts: { readonly load: LoadCuts }
}
