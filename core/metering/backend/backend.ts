import type { Destination } from '../../shared/outbox/types.ts'
import type { BackendName } from './config.ts'
import type { Dimension, MeterName } from './catalog.ts'
import type { PlanCatalog } from './plans.ts'

/** A query of one meter over `[from, to)`; an absent bound is open. */
export interface MeterQuery {
  readonly meter: MeterName
  /** Only this app's usage; null for all apps, which only operators may query. */
  readonly clientId: string | null
  /** Only this user's usage. */
  readonly customerKey?: string
  readonly from?: Date
  readonly to?: Date
  readonly window?: 'hour' | 'day' | 'month'
  readonly groupBy: readonly (Dimension | 'subject')[]
}

/** One sum of the backend. It is a float there, so no balance may depend on it. */
export interface MeterRow {
  readonly value: number
  readonly windowStart: string
  readonly windowEnd: string
  readonly subject: string | null
  readonly groupBy: Readonly<Record<string, string>>
}

export interface Customer {
  /** Also the subject of the customer's events. */
  readonly key: string
  readonly name: string
  readonly clientId: string
}

/** Credit given to a user. */
export interface GrantedCredit {
  readonly customer: Customer
  readonly id: string
  readonly amountMicros: string
  readonly source: string
  readonly featureKey: string | null
}

/** Reports usage in addition to our own ledger (decision 4). Authorisation never queries it. */
export interface MeteringBackend {
  readonly name: BackendName
  /**
   * Destinations for the outbox's events, customers, credits and subscriptions; empty if the
   * backend receives nothing.
   */
  readonly destinations: readonly Destination[]
  /** Null for a backend without plans. */
  readonly plans: PlanCatalog | null
  /** Prepares meters and features in the background, with retries until it succeeds. */
  start(): void
  stop(): Promise<void>
  /**
   * Rejects with METERING_NOT_CONFIGURED or METERING_UNREACHABLE if the backend does not answer
   * now.
   */
  requireAnswers(): Promise<void>
  /**
   * Returns the sums of a meter; null if our own tables serve the query instead. Rejects like
   * `requireAnswers`.
   */
  query(query: MeterQuery, signal?: AbortSignal): Promise<MeterRow[] | null>
  /** The backend's part of /readyz; empty without an external system. */
  ready(): Readonly<Record<string, boolean>>
}
