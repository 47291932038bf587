import { unary } from '../../core/lib/grpc.ts'
import {
  type EscrowServiceClient,
  type LendRequest,
  type LendResponse,
  type ReportRequest,
  type ReportResponse,
  type ReserveRequest,
  type ReserveResponse,
} from '../../proto/gen/ts-proto/tollgate/balances/v1/escrow.ts'
import type { Presence } from './presence.ts'

/** Core's escrow API for a sidecar. Failed calls throw a DomainError. */
export interface EscrowCore {
  lend(request: LendRequest): Promise<LendResponse>
  reserve(request: ReserveRequest): Promise<ReserveResponse>
  report(request: ReportRequest): Promise<ReportResponse>
  /** Waits for `work` as long as a decision may wait, then throws UNAVAILABLE. `work` continues. */
  within<T>(work: Promise<T>): Promise<T>
  /** Whether core is unavailable (`presence.ts`). */
  isAway(): boolean
}

// Two calls in a row take less than two seconds, which the signer is promised.
export const lookupMs = 800
const reportMs = 1_500
/** Longer than a decision waits: a lease that arrives late still pays for the following calls. */
const lendMs = 3_000

export function createEscrowCore(
  client: EscrowServiceClient,
  { watched, whilePresent, within, isAway }: Presence,
  headers: () => Readonly<Record<string, string>>,
): EscrowCore {
  const lend = whilePresent(unary(client.lend.bind(client)), lookupMs)
  const reserve = whilePresent(unary(client.reserve.bind(client)))
  const report = watched(unary(client.report.bind(client)))
  return {
    lend: (request) => lend(request, { deadlineMs: lendMs, headers: headers() }),
    reserve: (request) => reserve(request, { deadlineMs: lookupMs, headers: headers() }),
    // A heartbeat has the same deadline as calls that decisions wait for; storing a batch may take
    // longer.
    report: (request) => {
      const isHeartbeat = request.number === 0n && !request.stopped
      return report(request, { deadlineMs: isHeartbeat ? lookupMs : reportMs, headers: headers() })
    },
    within: (work) => within(work, lookupMs),
    isAway,
  }
}
