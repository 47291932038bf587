import type { Db } from '../../../lib/sql.ts'
import { addSeconds } from '../../../lib/time.ts'
import type { UserKey } from '../../../shared/ids.ts'
import { latestPlausible } from '../due.ts'
import type { Leases } from '../leases.ts'
import type { JoinedSession, Lease, SidecarProcess } from '../port.ts'
import { knownUntil } from '../reports/contact.ts'
import { type LendCall, graceSeconds, lendTo } from './lending.ts'
import { type EscrowDeps, type Locking, type Payers, notOwner, listUsers } from '../locking.ts'

export interface LendRequest {
  readonly process: SidecarProcess
  readonly calls: readonly LendCall[]
  readonly payers: Payers
}

/**
 * A report or heartbeat arrives at most this long after it was sent; the sidecar then gives up on
 * it.
 */
const transitSeconds = 2
/** The longest time that a call of an unknown session is assumed to bill. */
const longestGapSeconds = 900
/** A sidecar reports a call within this time. */
const reportSeconds = 10

/** Lends money to sidecars. */
export function createLend({ store, leaseSeconds, lock, openRooms }: EscrowDeps & Locking) {
  /** Opens and renews leases. Throws CONFLICT if another process has the sidecar's id. */
  async function lend(db: Db, { process, calls, payers }: LendRequest, at: Date) {
    if (!(await store.ownsSidecar(db, process))) throw notOwner()
    const locking = await lock(db, calls, { at, isNextNeeded: true })
    const { find, leases, nextIncluded, ...locked } = locking
    const sessions = await joinSessions(db, { process, calls }, at)
    const unheard = await findUnheard(db, { process, calls }, leases)
    const limits = await store.findLenderLimits(db, listUsers(calls))
    const opening = { ...locked, amountOf: usefulSlice, payers, at }
    const { sold, save } = await openRooms(db, calls, opening)
    const answers = calls.map((call) => {
      const account = find(call)
      if (!account) return null
      const isLimited = limits.isLimited(call.userId)
      const { retailRatio, ceilings: ofPlan, room } = sold(call)
      const terms = { retailRatio, room, nextIncluded: nextIncluded(call) }
      const situation = { process, account, leases, leaseSeconds, isLimited, ...terms, at }
      const answer = lendTo(call, situation)
      const ceilings = [...limits.ceilings(call.userId), ...ofPlan]
      const session = sessions.get(call) ?? null
      const unheardMs = call.session ? unheard.unheardMs(call, session, at) : 0
      return { ...answer, ceilings, retailRatio, session, unheardMs }
    })
    await save()
    return { answers, recalled: leases.recalledAt(at) }
  }

  async function joinSessions(
    db: Db,
    { process: { instance }, calls }: Omit<LendRequest, 'payers'>,
    at: Date,
  ): Promise<Map<LendCall, JoinedSession | null>> {
    const withSession = calls.flatMap((call) =>
      call.session ? [{ call, sessionId: call.session.id, sequence: call.session.sequence }] : [],
    )
    const known = await store.joinSessions(
      db,
      withSession.map(({ call: { appId, userId }, ...query }) => ({ appId, userId, ...query })),
      { instance, at },
    )
    return new Map(withSession.map(({ call }, index) => [call, known[index] ?? null]))
  }

  /**
   * Computes how long the other processes with a lease of a call's user may have allowed calls of
   * the session that core does not know: since their last contact or, if a process may not know
   * that the session is shared, since its oldest unreported call.
   */
  async function findUnheard(
    db: Db,
    { process, calls }: Omit<LendRequest, 'payers'>,
    leases: Leases,
  ) {
    const othersOf = ({ userId }: UserKey) =>
      leases.list(userId).filter(({ instance }) => instance !== process.instance)
    const others = calls.filter(({ session }) => session).flatMap(othersOf)
    const contacts = await store.findContacts(db, [
      ...new Set(others.map(({ instance }) => instance)),
    ])
    function lastKnown({ instance, endsAt }: Lease, sharedAt: Date | null): Date {
      const contact = contacts.get(instance)
      if (!contact) return addSeconds(endsAt, -leaseSeconds - graceSeconds - reportSeconds)
      return knownUntil(contact, sharedAt)
    }
    const unheardSince = (instant: Date, at: Date): number =>
      instant > latestPlausible(at)
        ? longestGapSeconds * 1000
        : Math.min(
            longestGapSeconds * 1000,
            at.getTime() - instant.getTime() + transitSeconds * 1000,
          )
    const unheardMs = (call: UserKey, session: JoinedSession | null, at: Date): number =>
      Math.max(
        0,
        ...othersOf(call).map((lease) =>
          unheardSince(lastKnown(lease, session?.sharedAt ?? null), at),
        ),
      )
    return { unheardMs }
  }

  /** What a lease for the call would hold if money were plentiful. */
  const usefulSlice = ({ bound, spending }: LendCall): bigint => {
    const [calls, time] = [bound * 4n, spending * BigInt(leaseSeconds)]
    return calls > time ? calls : time
  }

  return { lend }
}
