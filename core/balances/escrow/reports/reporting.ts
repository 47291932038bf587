import type { UserKey } from '../../../shared/ids.ts'
import { type UsdAttos, divCeil, usdAttos } from '../../../lib/money.ts'
import type { Account } from '../../accounts/account.ts'
import { type Leases, leaseRemainder } from '../leases.ts'
import { removeNumbers } from './number-ranges.ts'
import type {
  EarlyMatch,
  Lease,
  NewAuthorisation,
  PriorCall,
  Proof,
  SessionChange,
} from '../port.ts'
import { openCalls } from './runs.ts'
import { totals } from '../session-sums.ts'

/** Applies reported and reserved calls. Changes only the account and the leases passed in. */

/** One allowed call that core reserves. */
export interface AuthorisedCall extends Omit<
  NewAuthorisation,
  'sidecarId' | 'authorisedAt' | 'lastAt' | 'run'
> {
  /** The application in the signer's state. */
  readonly app: string
  /** Price in wei for `units` units; null if unknown. */
  readonly price: { readonly wei: bigint; readonly units: bigint } | null
  /** The signer's time, to the nanosecond. */
  readonly signed: SignedAt
}

type SignedAt = Omit<PriorCall, 'sequence'>

/**
 * Allowed calls of one session with successive numbers, as their sidecar reports them; `sequence`
 * is the highest. Core computes their times from their ages, because a sidecar's clock may jump.
 */
export interface ReportedCalls extends Omit<
  NewAuthorisation,
  'sidecarId' | 'authorisedAt' | 'lastAt' | 'signedMicros' | 'run'
> {
  /** Null for calls from an offline budget. */
  readonly leaseId: string | null
  /** Per call: the signer's time in microseconds, and the bound. */
  readonly micros: readonly bigint[]
  readonly bounds: readonly UsdAttos[]
  /** The signer's times of the first and the last call. */
  readonly first: SignedAt
  readonly last: SignedAt
  /** Age of the first and the last decision when the sidecar sent the report, in milliseconds. */
  readonly firstAgeMs: number
  readonly lastAgeMs: number
}

/** Returns the signer's time in microseconds, rounded down. */
export const toMicros = ({ seconds, nanos }: SignedAt): bigint =>
  seconds * 1_000_000n + BigInt(Math.floor(nanos / 1_000))

/** Converts reported calls to an authorisation of their sidecar, with core's times. */
export function toAuthorisation(
  reported: ReportedCalls,
  { sidecarId, network, at }: { sidecarId: string; network: UsdAttos; at: Date },
): NewAuthorisation {
  const { micros, bounds, firstAgeMs, lastAgeMs } = reported
  const agoOf = (ms: number): Date => new Date(at.getTime() - ms)
  const one = {
    appId: reported.appId,
    userId: reported.userId,
    sessionId: reported.sessionId,
    sequence: reported.sequence,
    signedMicros: micros.at(-1) ?? toMicros(reported.last),
    sidecarId,
    keyId: reported.keyId,
    sessionType: reported.sessionType,
    bound: reported.bound,
    network,
    authorisedAt: agoOf(firstAgeMs),
    isApproximate: reported.isApproximate,
    isOffline: reported.isOffline,
  }
  if (micros.length === 1) return one
  const open = [{ from: firstSequence(reported), to: reported.sequence }]
  return { ...one, lastAt: agoOf(lastAgeMs), run: { micros, bounds, open } }
}

/** Returns the part of an authorisation without tickets; null if all tickets have come. */
export function withoutEarly(
  authorisation: NewAuthorisation,
  early: EarlyMatch | null,
): NewAuthorisation | null {
  const { run, bound, network } = authorisation
  if (!early) return authorisation
  const open = run ? removeNumbers(run.open, early.numbers) : []
  if (!run || open.length === 0) return null
  const held = { ...authorisation, run: { ...run, open } }
  const left = usdAttos(openCalls(held).reduce((sum: bigint, call) => sum + call.bound, 0n))
  if (network === undefined) return { ...held, bound: left }
  return { ...held, bound: left, network: usdAttos(divCeil(network * left, bound)) }
}

/** Reported calls, what is held for them, and the tickets that came before. */
export interface Entry {
  readonly call: ReportedCalls
  readonly authorisation: NewAuthorisation
  readonly early: EarlyMatch | null
  /** Null if all tickets have come. */
  readonly held: NewAuthorisation | null
}

/**
 * Returns the instant up to which the tickets of a session's calls have come. The tickets of a run
 * come in any order, so its last call counts only when all have come.
 */
export const bookedThrough = ({
  authorisation: { authorisedAt, lastAt },
  held,
}: Pick<Entry, 'authorisation' | 'held'>): Date => (held === null && lastAt ? lastAt : authorisedAt)

export interface RefusedCall extends UserKey {
  readonly sessionId: string
  readonly sequence: bigint
}

export interface ReturnedLease extends UserKey {
  readonly leaseId: string
  /** Total debited from it. */
  readonly used: UsdAttos
}

interface Situation {
  readonly account: Account
  readonly leases: Leases
}

/**
 * Moves the bounds of reported calls from their lease to pending, except what tickets have already
 * settled. Holds the whole bound even if the lease has less, because the calls were allowed.
 * Returns what the lease covered.
 */
export function moveBound(
  { userId, leaseId, bound }: Pick<ReportedCalls, 'userId' | 'leaseId' | 'bound'>,
  held: UsdAttos,
  { account, leases }: Situation,
): UsdAttos {
  const lease = leases.list(userId).find(({ id }) => id === leaseId)
  const part = lease ? lower(account, lease, bound) : 0n
  if (lease) leases.put(lease)
  account.pending = usdAttos(account.pending + held)
  return usdAttos(part)
}

/** True for calls that are reported after their lease ended or was released. */
export function isLate({ userId, leaseId }: ReportedCalls, leases: Leases, at: Date): boolean {
  const lease = leases.list(userId).find(({ id }) => id === leaseId)
  return leaseId !== null && (!lease || isOrphan(lease, at))
}

const isOrphan = ({ endsAt }: Lease, at: Date): boolean => endsAt <= at

/**
 * Closes a lease that its sidecar returns, and frees its remaining amount. If more was debited than
 * reported, the difference stays lent until the lease's end. Returns the freed amount.
 */
export function takeBack(returned: ReturnedLease, { account, leases }: Situation): UsdAttos {
  const lease = leases.list(returned.userId).find(({ id }) => id === returned.leaseId)
  if (!lease) return usdAttos(0n)
  const unreported = returned.used - lease.used
  const stays = unreported > 0n ? unreported : 0n
  const rest = leaseRemainder(lease)
  const free = usdAttos(rest > stays ? rest - stays : 0n)
  lease.amount = usdAttos(lease.amount - free)
  account.lent = usdAttos(account.lent - free)
  if (leaseRemainder(lease) === 0n) leases.close(lease)
  else leases.put(lease)
  return free
}

/** Returns what a reserved call adds to its session. */
export const toSessionChange = (
  call: AuthorisedCall & Pick<NewAuthorisation, 'authorisedAt'> & { readonly instance: string },
): SessionChange => ({
  instance: call.instance,
  appId: call.appId,
  userId: call.userId,
  sessionId: call.sessionId,
  sessionType: call.sessionType,
  at: call.authorisedAt,
  calls: [{ sequence: call.sequence, ...call.signed }],
  added: totals({ authorised: { count: 1, amount: call.bound } }),
})

/** Returns what reported calls add to their session, with the tickets that came before them. */
export const toReportedChange = (
  reported: ReportedCalls,
  early: EarlyMatch | null,
  { instance, at }: { readonly instance: string; readonly at: Date },
): SessionChange => ({
  instance,
  appId: reported.appId,
  userId: reported.userId,
  sessionId: reported.sessionId,
  sessionType: reported.sessionType,
  at: new Date(at.getTime() - reported.lastAgeMs),
  calls: [
    { sequence: firstSequence(reported), ...reported.first },
    { sequence: reported.sequence, ...reported.last },
  ],
  added: totals({
    authorised: { count: reported.micros.length, amount: reported.bound },
    ...(early && early.cost !== null && { ticketed: { count: early.priced, amount: early.cost } }),
  }),
})

/** Returns the lowest number of reported calls. */
export const firstSequence = ({ sequence, micros }: ReportedCalls): bigint =>
  sequence - BigInt(micros.length) + 1n

/** A call, allowed or refused, proves that the call with the previous number was signed. */
export const toProof = ({ appId, userId, sessionId, sequence }: RefusedCall): Proof => ({
  appId,
  userId,
  sessionId,
  sequence: sequence - 1n,
})

/**
 * Debits up to `amount` from a lease and from `account.lent`. Returns the part that the lease had
 * left.
 */
function lower(account: Account, lease: Lease, amount: UsdAttos): UsdAttos {
  const rest = leaseRemainder(lease)
  const part = usdAttos(amount < rest ? amount : rest)
  lease.used = usdAttos(lease.used + part)
  account.lent = usdAttos(account.lent - part)
  return part
}
