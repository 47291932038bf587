/** Plans in the metering backend's form (docs/openmeter.md). */

/** The counted values of a dimension: only this one, or all except these. */
export type DimensionFilter = { readonly only: string } | { readonly except: readonly string[] }

/** A part of the network's usage. Features with the same key count the same usage. */
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
  /** USD for one USD micro of network cost, as a decimal. */
  readonly unitPrice: string
  /** USD micros per period. */
  readonly included: number
}

export interface BackendPlan {
  /** Shared by all versions of the plan. */
  readonly key: string
  readonly name: string
  readonly currency: string
  /** Length of a period (ISO 8601). */
  readonly cadence: 'P1D' | 'P1W' | 'P1M'
  /** Fee in advance for each period; null without one. */
  readonly flatFee: string | null
  readonly usage: readonly UsagePrice[]
}

export interface RemoteId {
  /** Id of the plan version last written; null if it was never written. */
  readonly id: string | null
  /** Saves the id as soon as it is known, or null as soon as the backend no longer has it. */
  readonly save: (id: string | null) => Promise<void>
}

/** The plans of a metering backend. */
export interface PlanCatalog {
  /**
   * Updates the backend's plan to match `plan` and returns its id; changes nothing if it matches
   * already. Rejects with METERING_UNREACHABLE, METERING_FAILED, or, if the backend rejects the
   * plan, PLAN_UNSYNCABLE.
   */
  put(plan: BackendPlan, remote: RemoteId, signal: AbortSignal): Promise<string>
  /**
   * Archives the active version of the plan with that key, and deletes its drafts. Rejects like
   * `put`.
   */
  withdraw(key: string, signal: AbortSignal): Promise<void>
}
