import type {
  Authorisation,
  UserReport,
} from '../../proto/gen/ts-proto/tollgate/allowances/v1/escrow.ts'
import type { Account, Lease } from './accounts.ts'
import type { AllowedCall, CallEntry } from './call-pool.ts'
import { attosOf } from './nanos.ts'

/** What waits to be reported. */
export type Entry = CallEntry | RefusedEntry | ReturnedEntry

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

/** What waits as a report carries it, `at` milliseconds of the monotonic clock. */
export function usersOf(entries: readonly Entry[], at: number): UserReport[] {
  const users = new Map<Account, UserReport>()
  for (const entry of entries) {
    const user = users.get(entry.account) ?? newUserReport(entry.account)
    users.set(entry.account, user)
    if (entry.kind === 'call') user.authorisations.push(authorisationOf(entry, at - entry.mono))
    else if (entry.kind === 'refused') user.refused.push(refusedCallOf(entry))
    else user.returned.push({ leaseId: entry.lease.id, usedUsdAttos: attosOf(entry.lease.used) })
  }
  return [...users.values()]
}

const newUserReport = ({ clientId, externalUserId }: Account): UserReport => ({
  clientId,
  externalUserId,
  authorisations: [],
  refused: [],
  returned: [],
})

const refusedCallOf = ({ sessionId, sequence }: RefusedEntry) => ({
  sessionId,
  sequence: BigInt(sequence),
})

/** What the wire holds. */
const maxAgeMs = 2 ** 31 - 1

/** An allowed call as core keeps it; `ageMs` is how long ago that was. */
export function authorisationOf(call: AllowedCall, ageMs: number): Authorisation {
  const { session } = call
  return {
    leaseId: call.leaseId,
    sessionId: session.id,
    sequence: BigInt(session.sequence),
    signedSeconds: BigInt(session.seconds),
    signedNanos: session.nanos,
    type: session.type,
    app: session.app,
    boundUsdAttos: attosOf(call.bound),
    authorisedAt: BigInt(Math.floor(call.at)),
    ageMillis: Math.min(Math.floor(ageMs), maxAgeMs),
    keyId: call.keyId,
    approximate: session.isApproximate,
    offline: call.isOffline,
    priceWei: session.price === null ? '' : String(session.price),
    priceUnits: session.units === null ? '' : String(session.units),
  }
}
