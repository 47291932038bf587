import type {
  LendRequest,
  LendResponse,
  ReportRequest,
  ReportResponse,
  ReserveRequest,
  ReserveResponse,
} from '../../proto/gen/ts-proto/tollgate/allowances/v1/escrow.ts'

/** Core's escrow as a sidecar calls it. A call that fails throws a DomainError. */
export interface EscrowCore {
  lend(request: LendRequest): Promise<LendResponse>
  reserve(request: ReserveRequest): Promise<ReserveResponse>
  report(request: ReportRequest): Promise<ReportResponse>
  /** Waits for what core is asked for as long as a decision may. Throws UNAVAILABLE then; the work goes on. */
  within<T>(work: Promise<T>): Promise<T>
  /** True while core is away (`core-presence.ts`). */
  isAway(): boolean
}

/** The clocks and pauses of the accounts; a simulation gives its own. */
export interface Clocks {
  /** Milliseconds of a clock that never jumps: ends of leases. Takes what `wall` has just shown, where that is known. */
  readonly mono: (wall?: number) => number
  /** Unix milliseconds: what reports contain as the time of a call, and whether `mono` has stood still. */
  readonly wall: () => number
  readonly sleep: (ms: number) => Promise<unknown>
}
