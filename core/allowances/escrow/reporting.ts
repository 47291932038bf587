import { type UsdAttos, usdAttos } from '../../lib/money.ts'
import type { Account } from '../account.ts'
import { type Leases, restOf } from './leases.ts'
import { lower } from './lending.ts'
import type {
  EarlyMatch,
  Lease,
  NewAuthorisation,
  PriorCall,
  Proof,
  SessionChange,
  UserKey,
} from './port.ts'
import { totals } from './session-sums.ts'

/** What a reported or reserved call changes: pure but for the account and the leases. */

/** One allowed call, as its sidecar tells it. Core computes its time from the age: a clock of a sidecar may jump. */
export interface AuthorisedCall extends Omit<NewAuthorisation, 'sidecarId' | 'authorisedAt'> {
  /** Null when core reserves it, and for one from an offline budget. */
  readonly leaseId: string | null
  /** The application of the signer's state. */
  readonly app: string
  /** Wei for so many units; null when it is not known. */
  readonly price: { readonly wei: bigint; readonly units: bigint } | null
  /** How long ago it was decided when its sidecar said so, in milliseconds. */
  readonly ageMs: number
  /** The signer's time, to the nanosecond. */
  readonly signed: Omit<PriorCall, 'sequence'>
}

export interface RefusedCall extends UserKey {
  readonly sessionId: string
  readonly sequence: bigint
}

export interface ReturnedLease extends UserKey {
  readonly leaseId: string
  /** All that was debited from it, ever. */
  readonly used: UsdAttos
}

interface Situation {
  readonly account: Account
  readonly leases: Leases
}

/**
 * Moves the bound of a reported call from its lease to what is pending; when its ticket came before, out of both. Returns
 * what the lease covered. Money is held for all of the bound, whatever the lease still has: the call was allowed.
 */
export function moveBound(
  call: AuthorisedCall,
  early: EarlyMatch | null,
  { account, leases }: Situation,
): UsdAttos {
  const lease = leases.of(call.userId).find(({ id }) => id === call.leaseId)
  const part = lease ? lower(account, lease, call.bound) : 0n
  if (lease) leases.put(lease)
  if (!early) account.pending = usdAttos(account.pending + call.bound)
  return usdAttos(part)
}

/** True for a call that is reported after its lease ended, or was released. */
export function isLate({ userId, leaseId }: AuthorisedCall, leases: Leases, at: Date): boolean {
  const lease = leases.of(userId).find(({ id }) => id === leaseId)
  return leaseId !== null && (!lease || isOrphan(lease, at))
}

const isOrphan = ({ endsAt }: Lease, at: Date): boolean => endsAt <= at

/**
 * Closes a lease that its sidecar returns, and frees its rest. When more was debited than was reported, the difference stays
 * lent until the lease's end. Returns what became free.
 */
export function takeBack(returned: ReturnedLease, { account, leases }: Situation): UsdAttos {
  const lease = leases.of(returned.userId).find(({ id }) => id === returned.leaseId)
  if (!lease) return usdAttos(0n)
  const unreported = returned.used - lease.used
  const stays = unreported > 0n ? unreported : 0n
  const rest = restOf(lease)
  const free = usdAttos(rest > stays ? rest - stays : 0n)
  lease.amount = usdAttos(lease.amount - free)
  account.lent = usdAttos(account.lent - free)
  if (restOf(lease) === 0n) leases.close(lease)
  else leases.put(lease)
  return free
}

/** What an allowed call adds to its session, with the ticket that came before it. */
export const sessionChangeOf = (
  call: AuthorisedCall & Pick<NewAuthorisation, 'authorisedAt'> & { readonly instance: string },
  early: EarlyMatch | null = null,
): SessionChange => {
  const cost = early?.cost ?? null
  return {
    instance: call.instance,
    appId: call.appId,
    userId: call.userId,
    sessionId: call.sessionId,
    sessionType: call.sessionType,
    at: call.authorisedAt,
    calls: [{ sequence: call.sequence, ...call.signed }],
    added: totals({
      authorised: { count: 1, amount: call.bound },
      ...(cost === null ? {} : { ticketed: { count: 1, amount: cost } }),
    }),
  }
}

/** A call, allowed or refused, proves that the one with the number before was signed. */
export const proofOf = ({ appId, userId, sessionId, sequence }: RefusedCall): Proof => ({
  appId,
  userId,
  sessionId,
  sequence: sequence - 1n,
})
