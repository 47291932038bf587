import type { UsdAttos } from '../../lib/money.ts'
import type { Db } from '../../lib/sql.ts'
import type {
  SessionKey,
  SettlingStep,
  SettlingTickets,
  Total,
} from '../../metering/ingest/charges.ts'
import type { UserId, UserKey } from '../../shared/ids.ts'
import type { CreditDebit } from '../accounts/chain.ts'
import type { CountChange } from '../limits/enforcement.ts'
import type { NumberRanges } from './reports/number-ranges.ts'

/**
 * The storage that the escrow needs (docs/escrow.md). The rules are in `escrow.ts`, `settlement.ts`
 * and `release.ts`. `escrowStore` of `store.ts` implements it in PostgreSQL, the model checker of
 * `test/simulation/` in memory. Both pass the same contract test.
 *
 * Every function runs in the caller's transaction. A caller that changes a user's holds must have
 * locked the user's account first (`lockAccounts`), in user id order. Only a report locks its
 * sidecar's row, before all users.
 */
export interface EscrowStore {
  /**
   * Locks a sidecar's row for a report, and inserts it if missing. If another process held the id
   * and has stopped, or was silent since `silentSince`, the id passes to this process with
   * `reportedThrough` 0. Returns null if the other process is alive.
   */
  lockSidecar(
    db: Db,
    process: SidecarProcess,
    times: { readonly at: Date; readonly silentSince: Date },
  ): Promise<{ readonly reportedThrough: bigint } | null>
  saveSidecar(db: Db, process: SidecarProcess, state: SidecarState): Promise<void>
  /** Whether the process holds its sidecar's id. */
  ownsSidecar(db: Db, process: SidecarProcess): Promise<boolean>
  /**
   * Like `ownsSidecar`, for calls that core is about to reserve. Records the sidecar's latest
   * decision as made at `at` or later. Runs before the transaction, which would otherwise lock the
   * sidecar's row until its end.
   */
  noteReservation(db: Db, process: SidecarProcess, at: Date): Promise<boolean>

  /** Returns all leases of users, including orphans. */
  findLeases(db: Db, users: readonly UserKey[]): Promise<Lease[]>
  saveLeases(db: Db, changes: LeaseChanges): Promise<void>
  /** Returns the users with a recalled lease at this process. */
  findRecalled(db: Db, instance: string): Promise<UserId[]>

  /** Inserts authorisations as pending. */
  insertAuthorisations(db: Db, authorisations: readonly NewAuthorisation[]): Promise<void>
  /**
   * Removes the early tickets of these calls. Returns for each authorisation its early tickets, or
   * null if it has no early ticket.
   */
  takeEarlyTickets(
    db: Db,
    authorisations: readonly NewAuthorisation[],
  ): Promise<readonly (EarlyMatch | null)[]>
  /**
   * Adds to the totals and prior calls of sessions. Returns the sessions with calls, each with the
   * process that began it.
   */
  addSessions(db: Db, changes: readonly SessionChange[]): Promise<readonly BegunSession[]>
  /**
   * Returns the session of each query; null if unknown. Marks a session as shared if another
   * process began it. Also returns a session as shared if only its tickets are known.
   */
  joinSessions(
    db: Db,
    queries: readonly PriorCallQuery[],
    by: { readonly instance: string; readonly at: Date },
  ): Promise<readonly (JoinedSession | null)[]>
  /** Returns the sessions that this process began and that became shared after `since`. */
  findShared(db: Db, instance: string, since: Date): Promise<string[]>
  /**
   * Returns the last contact of each process with core. Omits a process if another one has its
   * sidecar's id.
   */
  findContacts(db: Db, instances: readonly string[]): Promise<ReadonlyMap<string, Contact>>
  /**
   * For each different proof, sets the earliest unproven authorisation (pending or released) to
   * proven. Skips proofs of calls with a booked ticket. Returns those that had been released; they
   * are lost now.
   */
  prove(db: Db, proofs: readonly Proof[]): Promise<StoredAuthorisation[]>

  /**
   * Matches tickets of locked users with authorisations, one to one: by session, number and
   * microsecond; approximate authorisations by session and number, the nearest within 5 s. In a run
   * each number matches once, and the last match ends the run. The effect depends on the step:
   * - `booked` deletes the authorisation, whatever its state.
   * - `unpriced` sets it to `ticketed`, and to pending again if it was lost or released.
   * - `priced` matches only `ticketed` authorisations and deletes them. The other steps match only
   *   those that are not `ticketed`.
   */
  matchTickets(db: Db, tickets: SettlingTickets, step: SettlingStep): Promise<TicketMatches>
  /** Inserts ticketed authorisations for unmatched tickets that wait for their price. */
  insertTicketed(db: Db, tickets: SettlingTickets, at: Date): Promise<void>
  /** Inserts tickets whose call may still be reported. */
  insertEarlyTickets(db: Db, tickets: SettlingTickets, at: Date): Promise<void>
  /**
   * Removes up to `limit` early tickets of users that were booked before `before`. Returns their
   * costs.
   */
  takeOldEarlyTickets(
    db: Db,
    users: readonly UserKey[],
    old: { readonly before: Date; readonly limit: number },
  ): Promise<readonly (UserKey & { readonly cost: UsdAttos })[]>
  /** Corrects the counts of limits. */
  correctCounts(db: Db, changes: readonly CountChange[]): Promise<void>
  /** Moves the stream clocks of sidecars forward, never back. */
  advanceClocks(db: Db, clocks: ReadonlyMap<string, Date>): Promise<void>
  /** Deletes stream clocks that are later than `after`. */
  forgetClocksAfter(db: Db, after: Date): Promise<void>

  /**
   * Returns users with due authorisations, with orphans that may be released, or with orphans and
   * old early tickets; in id order. Takes no lock.
   */
  findDueUsers(db: Db, due: DueSearch): Promise<UserKey[]>
  /**
   * Returns due pending authorisations of locked users, the oldest first. An authorisation is due
   * if its sidecar's stream clock counts (`clockRange`) and is `lagSeconds` past it, or if its
   * sidecar has allowed nothing for `holdMaxSeconds`. Ticketed ones are never due. Stops after
   * `limit` calls, but returns the last authorisation whole.
   */
  findDueAuthorisations(
    db: Db,
    users: readonly UserKey[],
    due: DueSearch,
  ): Promise<StoredAuthorisation[]>
  /**
   * Returns the ids of those leases, all past their end, that may be released. A lease may be
   * released `lagSeconds` after its end, if no authorisation of its sidecar from before its end is
   * pending, and the stream is not known to be stalled. The stream is stalled while an
   * authorisation has been pending for longer than `lagSeconds` and no stream clock that counts is
   * that far past the lease's end. After `holdMaxSeconds`, a stalled stream no longer matters.
   */
  findReleasable(db: Db, leases: readonly Lease[], due: DueSearch): Promise<ReadonlySet<string>>
  /** Replaces each run by one authorisation per call, and returns these. */
  splitRuns(db: Db, runs: readonly StoredAuthorisation[]): Promise<StoredAuthorisation[]>
  endAuthorisations(db: Db, ended: readonly EndedAuthorisation[], at: Date): Promise<void>
  /**
   * Deletes up to `limit` authorisations that ended before `endedBefore`, except ticketed ones, and
   * up to `limit` early tickets booked before `bookedBefore`.
   */
  forgetOld(
    db: Db,
    old: { readonly endedBefore: Date; readonly bookedBefore: Date; readonly limit: number },
  ): Promise<void>
}

/** One process of a sidecar. */
export interface SidecarProcess {
  readonly id: string
  /** A UUID. */
  readonly instance: string
}

export interface SidecarState {
  readonly seenAt: Date
  readonly reportedThrough: bigint
  /** When core took the batch, if it had calls; null otherwise. */
  readonly lastAuthorisedAt: Date | null
  /** Core knows all calls that the process allowed before this instant. */
  readonly completeAt: Date
  /** The process knows all sessions that were joined up to this instant. */
  readonly sharedThrough: Date
  readonly stopped: boolean
}

export type Contact = Pick<SidecarState, 'seenAt' | 'completeAt' | 'sharedThrough'>

/** A slice of a user's money that one process of a sidecar may spend until it ends. */
export interface Lease extends UserKey {
  readonly id: string
  readonly sidecarId: string
  readonly instance: string
  /** Total lent under the lease. */
  amount: UsdAttos
  /** Sum of the bounds of its reported calls. */
  used: UsdAttos
  readonly createdAt: Date
  /** By core's clock, including the margin. From this instant, the lease is an orphan. */
  endsAt: Date
  recalledAt: Date | null
  /** The lowest ratio of retail to network price at which it was lent, scaled by 10^18. */
  retailRatio: bigint
}

export interface LeaseChanges {
  readonly opened: readonly Lease[]
  readonly changed: readonly Lease[]
  readonly closed: readonly Lease[]
}

/** An allowed call, or a run of calls with successive numbers. */
export interface NewAuthorisation extends UserKey {
  readonly sessionId: string
  /** For a run, the highest number. */
  readonly sequence: bigint
  /**
   * The signer's LastUpdate in microseconds since 1970, rounded down; for a run, that of the last
   * call.
   */
  readonly signedMicros: bigint
  /** Absent for a single call. */
  readonly run?: Run
  readonly sidecarId: string
  readonly keyId: string | null
  readonly sessionType: string
  readonly bound: UsdAttos
  /** The bound at network price. */
  readonly network?: UsdAttos
  /** Core's time of the decision; for a run, that of the first call. */
  readonly authorisedAt: Date
  /** Core's time of the run's last decision. Set for a run, and for a call split from one. */
  readonly lastAt?: Date
  readonly isApproximate: boolean
  readonly isOffline: boolean
}

/** Values per call, in number order. The last number is the authorisation's `sequence`. */
export interface Run {
  readonly micros: readonly bigint[]
  readonly bounds: readonly UsdAttos[]
  /** Numbers without a ticket so far. */
  readonly open: NumberRanges
}

export type EndState = 'released' | 'lost' | 'charged'

export interface StoredAuthorisation extends NewAuthorisation {
  readonly id: bigint
  readonly state: 'pending' | EndState
  readonly isProven: boolean
  readonly isTicketed: boolean
}

export interface EndedAuthorisation {
  readonly authorisation: StoredAuthorisation
  readonly state: EndState
  /**
   * The amounts that its estimate drew from credits, as positive numbers; null unless it is
   * charged.
   */
  readonly drawn: readonly CreditDebit[] | null
}

export interface TicketMatches {
  /** Grouped by session, sidecar, type, key, state, and UTC day of the authorisation. */
  readonly sums: readonly MatchSum[]
  /** Positions of the unmatched tickets. */
  readonly unmatched: readonly number[]
}

/** Sums over authorisations that tickets matched. */
export interface MatchSum extends SessionKey {
  readonly sessionType: string
  /** Empty for authorisations from `insertTicketed`. */
  readonly sidecarId: string
  readonly keyId: string | null
  readonly state: 'pending' | EndState
  readonly count: number
  /** Sum of the authorisations' bounds. */
  readonly bound: UsdAttos
  /** The amounts that charged estimates drew. */
  readonly drawn: readonly CreditDebit[]
  /** Sum of the bounds of charged authorisations without recorded draws. */
  readonly undrawn: UsdAttos
  /** Cost of the tickets. */
  readonly cost: UsdAttos
  readonly latestAt: Date
  /**
   * The tickets of the session's calls have come up to this instant, as far as the matches show.
   */
  readonly bookedThrough: Date
}

/** The early tickets of an authorisation. The caller adds them to their session's `ticketed`. */
export interface EarlyMatch {
  readonly numbers: readonly bigint[]
  /** Number of tickets with a price. `cost` is the sum of the prices, or null without one. */
  readonly priced: number
  readonly cost: UsdAttos | null
}

/** The additions of a batch to a session. */
export interface SessionChange extends UserKey {
  readonly sessionId: string
  readonly sessionType: string
  readonly at: Date
  /** Allowed calls, to find prior calls, with the signer's times. Empty in a settlement. */
  readonly calls: readonly PriorCall[]
  /** The process that allowed the calls; null without calls. */
  readonly instance: string | null
  readonly added: SessionTotals
}

export interface BegunSession {
  readonly sessionId: string
  readonly instance: string
}

/** Changes of totals; may be negative. */
export interface SessionTotals {
  readonly authorised: Total
  readonly ticketed: Total
  readonly lost: Total
  readonly charged: Total
  readonly released: Total
  readonly late: Total
}

/** The time of the first call with a number, by the signer's clock. */
export interface PriorCall {
  readonly sequence: bigint
  readonly seconds: bigint
  readonly nanos: number
}

/** A session, for a process that has not seen it before. */
export interface JoinedSession {
  /** Null if no lower number is known. */
  readonly prior: PriorCall | null
  /** True if another process also serves it. Each call must then be requested from core. */
  readonly isShared: boolean
  /** When a second process joined it; null if unknown. */
  readonly sharedAt: Date | null
}

export interface PriorCallQuery extends UserKey {
  readonly sessionId: string
  /** Number of the current call. The prior call is the one with the highest known lower number. */
  readonly sequence: bigint
}

/**
 * Proves that the call with `sequence` was signed, because the call with `sequence + 1` was made.
 */
export interface Proof extends UserKey {
  readonly sessionId: string
  readonly sequence: bigint
}

export interface DueSearch {
  readonly at: Date
  readonly lagSeconds: number
  readonly holdMaxSeconds: number
  /**
   * When the database's clock last jumped. Older instants are not compared with the present
   * (`due.ts`).
   */
  readonly jumpedAt: Date
  readonly limit: number
}
