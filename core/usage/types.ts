import type { AppId, UserId } from '../shared/ids.ts'
import { type UsdAttos, type UsdMicros, type Wei, usdAttos, wei } from '../lib/money.ts'

/** Instants `[start, end)`; an open bound is null. */
export interface Range {
  readonly start: Date | null
  readonly end: Date | null
}

export const groupings = [
  'none',
  'user',
  'pipeline_model',
  'daily_pipeline',
  'manifest',
  'session',
  'day',
  'hour',
  'daily_top_models',
  'hourly_top_models',
] as const
export type Grouping = (typeof groupings)[number]

/** A part of an app's usage. */
export interface Selection {
  readonly appId: AppId
  readonly userId: UserId | null
  readonly range: Range
  /** Selects only tickets of this gateway request. */
  readonly requestId: string | null
  /** Selects only tickets of this pipeline. */
  readonly pipeline?: string | undefined
  readonly modelId?: string | undefined
}

/** Exact sums over tickets. `cost` excludes tickets without a rate; `unpriced` is their number. */
export interface Sums {
  readonly requests: bigint
  readonly unpriced: bigint
  readonly fee: Wei
  readonly cost: UsdAttos
  /** Amount charged to end users. */
  readonly retail: UsdAttos
  /** The platform's cut. */
  readonly platformFee: UsdAttos
  readonly platformWei: Wei
}

/** Adds two sums. */
export const addSums = (a: Sums, b: Sums): Sums => ({
  requests: a.requests + b.requests,
  unpriced: a.unpriced + b.unpriced,
  fee: wei(a.fee + b.fee),
  cost: usdAttos(a.cost + b.cost),
  retail: usdAttos(a.retail + b.retail),
  platformFee: usdAttos(a.platformFee + b.platformFee),
  platformWei: wei(a.platformWei + b.platformWei),
})

/**
 * Sums of a group of tickets. A member that is not part of the grouping is null; in `rest`, the row
 * for all groups beyond the limit, all are null.
 */
export interface UsageRow extends Sums {
  readonly rest: boolean
  readonly userId: UserId | null
  readonly externalUserId: string | null
  readonly pipeline: string | null
  readonly modelId: string | null
  readonly manifestId: string | null
  readonly sessionId: string | null
  /** `YYYY-MM-DD` in UTC. */
  readonly day: string | null
  /** The start of a UTC hour, ISO 8601. */
  readonly hour: string | null
  /** Decimal seconds. */
  readonly billableSecs: string
  readonly firstAt: Date | null
  readonly lastAt: Date | null
}

/** Charges that follow from the network fee. */
export interface Charges {
  readonly micros: UsdMicros
  /** Network fee and platform cut. */
  readonly ownerMicros: UsdMicros
  /** `ownerMicros` minus `micros`. */
  readonly platformMicros: UsdMicros
  /** Amount billed to end users; null unless the query includes it. */
  readonly billableMicros: UsdMicros | null
}

/** A row with its charges. Micros of rows add up to those of the totals. */
export type ChargedRow = UsageRow & Charges & { readonly retailRateUsd: string | null }

export interface Totals extends Sums, Charges {
  readonly ownerWei: Wei
  /** The app's current cut; null without one. Each ticket has the cut of its time. */
  readonly cutBasisPoints: bigint | null
}

export interface UsageReport {
  readonly grouping: Grouping
  readonly totals: Totals
  readonly rows: readonly ChargedRow[]
  /** The tickets of the query's gateway request. */
  readonly events: readonly RequestItem[]
}

/** One ticket. */
export interface RequestItem {
  /** UTC with microseconds, as in the ticket's primary key. */
  readonly signedAt: string
  readonly eventId: string
  readonly requestId: string
  readonly userId: UserId
  readonly externalUserId: string | null
  readonly appName: string
  readonly pipeline: string
  readonly modelId: string
  readonly manifestId: string
  readonly sessionId: string
  readonly sequenceNumber: bigint
  readonly fee: Wei
  /** These are null while the ticket waits for a rate. */
  readonly cost: UsdAttos | null
  readonly retail: UsdAttos | null
  readonly platformFee: UsdAttos | null
  readonly platformWei: Wei | null
  /** Also null if the prices were fixed elsewhere. */
  readonly termsId: bigint | null
  readonly usdAttosPerEth: bigint | null
  readonly billableSecs: string
  readonly pixels: string
}

/** The current state of one signer session. */
export interface SessionItem extends Sums {
  /** UTC with microseconds. */
  readonly startedAt: string
  readonly lastAt: Date
  readonly sessionId: string
  readonly manifestId: string
  readonly userId: UserId
  readonly externalUserId: string | null
  readonly appName: string
  readonly pipeline: string
  readonly modelId: string
  readonly billableSecs: string
  readonly pixels: string
}

export interface SessionEntry extends SessionItem {
  /** Null while the session is open. */
  readonly endedAt: Date | null
}
