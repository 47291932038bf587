import type { Destination } from '../../platform/outbox/types.ts'
import type { BackendName } from './config.ts'
import type { Dimension, MeterName } from './catalog.ts'
import type { PlanCatalog } from './plans.ts'

/** A query of one meter. Instants `[from, to)`; an open side is absent. */
export interface MeterQuery {
  readonly meter: MeterName
  /** Only this app's usage; null, for all apps, is for operators only. */
  readonly clientId: string | null
  /** Only this user's. */
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
  /** Also the subject that the customer's events carry. */
  readonly key: string
  readonly name: string
  readonly clientId: string
}

/** Credit that a user was given. */
export interface GrantedCredit {
  readonly customer: Customer
  readonly id: string
  readonly amountMicros: string
  readonly source: string
  readonly featureKey: string | null
}

/** What reports usage beside our own ledger (decision 4). Authorisation never asks it. */
export interface MeteringBackend {
  readonly name: BackendName
  /** Where the outbox delivers events, customers, credits and subscriptions; empty for a backend that is sent nothing. */
  readonly destinations: readonly Destination[]
  /** Null for a backend without plans. */
  readonly plans: PlanCatalog | null
  /** Prepares meters and features in the background until it has succeeded. */
  start(): void
  stop(): Promise<void>
  /** Rejects with METERING_NOT_CONFIGURED or METERING_UNREACHABLE when the backend cannot answer now. */
  requireAnswers(): Promise<void>
  /** The sums of a meter; null when our own tables answer instead. Rejects as `requireAnswers` does. */
  query(query: MeterQuery, signal?: AbortSignal): Promise<MeterRow[] | null>
  /** The backend's part of /readyz; empty when there is no outside system. */
  ready(): Readonly<Record<string, boolean>>
}
