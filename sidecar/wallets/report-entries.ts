import type {
  Authorisation,
  SessionCalls,
  UserReport,
} from '../../proto/gen/ts-proto/tollgate/balances/v1/escrow.ts'
import type { Account, Lease } from './accounts.ts'
import type { AllowedCall, CallOwner, CallRun } from './session-calls.ts'
import { toAttos } from './nanos.ts'

/** Something to be reported. */
export type Entry = CallRun | RefusedEntry | ReturnedEntry

interface RefusedEntry {
  readonly kind: 'refused'
  readonly account: Account
  readonly sessionId: string
  readonly sequence: number
}

interface ReturnedEntry {
  readonly kind: 'returned'
  readonly account: Account
  readonly lease: Lease
}

/**
 * Converts entries to the content of a report sent at `at` (milliseconds of the monotonic clock).
 */
export function groupByUser(entries: readonly Entry[], at: number): UserReport[] {
  const users = new Map<CallOwner, UserReport>()
  for (const entry of entries) {
    const user = users.get(entry.account) ?? newUserReport(entry.account)
    users.set(entry.account, user)
    if (entry.kind === 'calls') user.sessions.push(toSessionCalls(entry, at))
    else if (entry.kind === 'refused') user.refused.push(refusedCallOf(entry))
    else user.returned.push({ leaseId: entry.lease.id, usedUsdAttos: toAttos(entry.lease.used) })
  }
  return [...users.values()]
}

const newUserReport = ({ clientId, externalUserId }: CallOwner): UserReport => ({
  clientId,
  externalUserId,
  authorisations: [],
  refused: [],
  returned: [],
  sessions: [],
})

const refusedCallOf = ({ sessionId, sequence }: RefusedEntry) => ({
  sessionId,
  sequence: BigInt(sequence),
})

/** Maximum of the int32 field on the wire. */
const maxAgeMs = 2 ** 31 - 1

const toAgeMillis = (ms: number): number => Math.min(Math.floor(ms), maxAgeMs)

function toSessionCalls(run: CallRun, at: number): SessionCalls {
  const { seconds, nanos } = run
  const last = seconds.length - 1
  return {
    leaseId: run.leaseId,
    sessionId: run.sessionId,
    sequence: BigInt(run.sequence),
    signedMicros: seconds.map((second, index) => toMicros(second, nanos[index] ?? 0)),
    boundUsdNanos: run.bounds.map(BigInt),
    firstSeconds: BigInt(seconds[0] ?? 0),
    firstNanos: nanos[0] ?? 0,
    lastSeconds: BigInt(seconds[last] ?? 0),
    lastNanos: nanos[last] ?? 0,
    type: run.type,
    keyId: run.keyId,
    approximate: run.isApproximate,
    offline: run.isOffline,
    firstAgeMillis: toAgeMillis(at - run.firstAt),
    lastAgeMillis: toAgeMillis(at - run.lastAt),
  }
}

const toMicros = (seconds: number, nanos: number): bigint =>
  BigInt(seconds) * 1_000_000n + BigInt(Math.floor(nanos / 1_000))

/** A call to be reserved by core. */
export function toAuthorisation(call: AllowedCall): Authorisation {
  const { session } = call
  return {
    leaseId: call.leaseId,
    sessionId: session.id,
    sequence: BigInt(session.sequence),
    signedSeconds: BigInt(session.seconds),
    signedNanos: session.nanos,
    type: session.type,
    app: session.app,
    boundUsdAttos: toAttos(call.bound),
    authorisedAt: BigInt(Math.floor(call.at)),
    ageMillis: 0,
    keyId: call.keyId,
    approximate: session.isApproximate,
    offline: call.isOffline,
    priceWei: session.price === null ? '' : String(session.price),
    priceUnits: session.units === null ? '' : String(session.units),
  }
}
