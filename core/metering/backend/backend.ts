import type { Destination } from '../../platform/outbox/types.ts'
import type { BackendName } from './config.ts'
import type { Dimension, MeterName } from './catalog.ts'

/** A question for one meter. Instants `[from, to)`; an open side is absent. */
export interface MeterQuery {
  readonly meter: MeterName
  /** Only this app's usage; a question about all of them is an operator's. */
  readonly clientId: string | null
  /** Only this user's. */
  readonly customerKey?: string
  readonly from?: Date
  readonly to?: Date
  readonly window?: 'hour' | 'day' | 'month'
  readonly groupBy: readonly (Dimension | 'subject')[]
}

/** One sum of the backend: a float there, so no figure that money is taken by. */
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

/** What reports usage beside our own ledger (decision 4). The gate never asks it. */
export interface MeteringBackend {
  readonly name: BackendName
  /** Where the outbox brings events and customers; none where there is nothing to send. */
  readonly destinations: readonly Destination[]
  /** Prepares meters and features in the background until it has succeeded. */
  start(): void
  stop(): Promise<void>
  /** METERING_NOT_CONFIGURED or METERING_UNREACHABLE when an answer that rests on the backend cannot be given now. */
  requireAnswers(): Promise<void>
  /** The sums of a meter; null where our own tables are what answers. Throws as `requireAnswers` does. */
  query(query: MeterQuery, signal?: AbortSignal): Promise<MeterRow[] | null>
  /** For /readyz; nothing where there is nothing outside. */
  ready(): Readonly<Record<string, boolean>>
}
