import type { UserKey } from '../../shared/ids.ts'

/** The ledger entries of a user that an invoice covers: after `fromSeq`, through `throughSeq`. */
export interface EntryRange extends UserKey {
  readonly fromSeq: bigint
  readonly throughSeq: bigint
  /** Tickets signed before belong to earlier, invoiced periods. Null on a user's first invoice. */
  readonly lateBefore: Date | null
}

/** Columns of ranges, for `unnest`. */
export const rangeColumns = (ranges: readonly EntryRange[]) => ({
  apps: ranges.map(({ appId }) => appId),
  users: ranges.map(({ userId }) => userId),
  from: ranges.map(({ fromSeq }) => fromSeq),
  through: ranges.map(({ throughSeq }) => throughSeq),
  late: ranges.map(({ lateBefore }) => lateBefore),
})
