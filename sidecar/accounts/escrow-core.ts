import type {
  LendRequest,
  LendResponse,
  ReportRequest,
  ReportResponse,
  ReserveRequest,
  ReserveResponse,
} from '../../proto/gen/ts-proto/tollgate/allowances/v1/escrow.ts'

/** Core's escrow API for a sidecar. Failed calls throw a DomainError. */
export interface EscrowCore {
  lend(request: LendRequest): Promise<LendResponse>
  reserve(request: ReserveRequest): Promise<ReserveResponse>
  report(request: ReportRequest): Promise<ReportResponse>
  /** Waits for `work` as long as a decision may wait, then throws UNAVAILABLE. `work` continues. */
  within<T>(work: Promise<T>): Promise<T>
  /** Whether core is unavailable (`core-presence.ts`). */
  isAway(): boolean
}

/** Clocks and pauses of the accounts; a simulation provides its own. */
export interface Clocks {
  /**
   * Milliseconds of a clock that never jumps, for ends of leases. Takes a reading of `wall`, if the
   * caller has one.
   */
  readonly mono: (wall?: number) => number
  /**
   * Unix milliseconds. Used for the times of reported calls, and to detect that `mono` stood still.
   */
  readonly wall: () => number
  readonly sleep: (ms: number) => Promise<unknown>
}
