/** Plans as the metering backend has them (docs/plans.md). */

/** Which values of a dimension count: this one alone, or all but these. */
export type DimensionFilter = { readonly only: string } | { readonly except: readonly string[] }

/** A part of the network's usage. Features of the same key count the same. */
export interface UsageFeature {
  readonly key: string
  readonly name: string
  /** Null counts everything. */
  readonly filters: {
    readonly pipeline: DimensionFilter
    readonly model_id?: DimensionFilter
  } | null
}

export interface UsagePrice {
  readonly feature: UsageFeature
  /** USD for one USD-micro of network cost, as a decimal. */
  readonly unitPrice: string
  /** USD-micros of each period. */
  readonly included: number
}

export interface BackendPlan {
  /** Of all its versions. */
  readonly key: string
  readonly name: string
  readonly currency: string
  /** How long a period is (ISO 8601). */
  readonly cadence: 'P1D' | 'P1W' | 'P1M'
  /** In advance, for each period; null without one. */
  readonly flatFee: string | null
  readonly usage: readonly UsagePrice[]
}

export interface RemoteId {
  /** Of the plan as it was last written; null for one that never was. */
  readonly id: string | null
  /** Saves the id as soon as it is known, and null as soon as the backend does not know it. */
  readonly save: (id: string | null) => Promise<void>
}

/** The plans of a metering backend. */
export interface PlanCatalog {
  /**
   * Makes the backend's plan what `plan` says and returns its id; changes nothing when it is that already. Rejects with
   * METERING_UNREACHABLE, METERING_FAILED, or PLAN_UNSYNCABLE when the backend refuses the plan.
   */
  put(plan: BackendPlan, remote: RemoteId, signal: AbortSignal): Promise<string>
  /** Archives what can be subscribed to of the plan with that key, and deletes its drafts. Rejects as `put`. */
  withdraw(key: string, signal: AbortSignal): Promise<void>
}
