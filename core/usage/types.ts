import type { UserId } from '../ids.ts'
import type { UsdAttos, UsdMicros, Wei } from '../lib/money.ts'

/** Instants `[start, end)`; an open side is null. */
export interface Range {
  readonly start: Date | null
  readonly end: Date | null
}

export const groupings = ['none', 'user', 'pipeline_model'] as const
export type Grouping = (typeof groupings)[number]

/** Sums over tickets, exact. `cost` leaves out what waits for a rate; `unpriced` says how many that are. */
export interface Sums {
  readonly requests: bigint
  readonly unpriced: bigint
  readonly fee: Wei
  readonly cost: UsdAttos
}

export interface UserSums extends Sums {
  readonly userId: UserId | null
  readonly externalUserId: string | null
}

export interface PipelineModelSums extends Sums {
  readonly pipeline: string
  readonly modelId: string
}

/** Sums as they are shown: micros that add up to the total's. */
export type Shown<Row extends Sums> = Row & { readonly micros: UsdMicros }

export interface UsageReport {
  readonly totals: Shown<Sums>
  readonly byUser: readonly Shown<UserSums>[]
  readonly byPipelineModel: readonly Shown<PipelineModelSums>[]
}
