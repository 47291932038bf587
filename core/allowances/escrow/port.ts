import type { UsdAttos } from '../../lib/money.ts'
import type { Db } from '../../lib/sql.ts'
import type {
  SessionKey,
  SettlingStep,
  SettlingTickets,
  Total,
} from '../../metering/ingest/charges.ts'
import type { AppId, UserId } from '../../platform/ids.ts'
import type { Draw } from '../chain.ts'
import type { CountChange } from '../limits/enforcement.ts'
import type { NumberRanges } from './reports/number-ranges.ts'

/**
 * What the escrow keeps (docs/escrow.md), as its rules see it. The rules are in `escrow.ts`, `settlement.ts` and
 * `release.ts`; PostgreSQL is behind `escrowStore` of `store.ts`, and a store in memory behind the model checker of
 * `test/simulation/`. Both pass the same contract test.
 *
 * Every function runs in the caller's transaction. Whoever changes the holds of a user has locked the user's account
 * first (`lockAccounts`), users in the order of their ids; only a report locks its sidecar's row, before all users.
 */
export interface EscrowStore {
  /**
   * Locks the row of a sidecar for a report and makes it if there is none. When another process had the id, and has
   * stopped or been silent since `silentSince`, the id passes to this one, with `reportedThrough` 0. Null when another
   * process is alive.
   */
  lockSidecar(
    db: Db,
    process: SidecarProcess,
    times: { readonly at: Date; readonly silentSince: Date },
  ): Promise<{ readonly reportedThrough: bigint } | null>
  saveSidecar(db: Db, process: SidecarProcess, state: SidecarState): Promise<void>
  /** True when the process holds its sidecar's id. */
  ownsSidecar(db: Db, process: SidecarProcess): Promise<boolean>
  /**
   * As `ownsSidecar`, for calls that core is about to reserve: the sidecar's latest decision counts as made at `at` or later.
   * Runs by itself before the transaction, which would lock the sidecar's row until its end.
   */
  noteReservation(db: Db, process: SidecarProcess, at: Date): Promise<boolean>

  /** All leases of users, orphans too. */
  findLeases(db: Db, users: readonly UserKey[]): Promise<Lease[]>
  saveLeases(db: Db, changes: LeaseChanges): Promise<void>
  /** Ids of users whose lease of this process is recalled. */
  findRecalled(db: Db, instance: string): Promise<UserId[]>

  /** Inserts authorisations as pending. */
  insertAuthorisations(db: Db, authorisations: readonly NewAuthorisation[]): Promise<void>
  /** Removes the early tickets of these calls. One answer for each authorisation: its tickets, or null without any. */
  takeEarlyTickets(
    db: Db,
    authorisations: readonly NewAuthorisation[],
  ): Promise<readonly (EarlyMatch | null)[]>
  /** Adds to the totals and prior calls of sessions. Returns those with calls, and which process began them. */
  addSessions(db: Db, changes: readonly SessionChange[]): Promise<readonly BegunSession[]>
  /** What is known of the session of each query; null for an unknown one. A session that another process began is shared, and one that only tickets tell of. */
  joinSessions(
    db: Db,
    queries: readonly PriorCallQuery[],
    by: { readonly instance: string; readonly at: Date },
  ): Promise<readonly (JoinedSession | null)[]>
  /** Ids of sessions that this process began, and that another one has shared since `since`. */
  findShared(db: Db, instance: string, since: Date): Promise<string[]>
  /** What core knows of processes; absent for one whose sidecar's id another process has. */
  findContacts(db: Db, instances: readonly string[]): Promise<ReadonlyMap<string, Contact>>
  /**
   * Sets one unproven authorisation for each different proof to proven, the earliest: pending, or released. Skips a proof whose
   * call has a booked ticket. Returns those that had been released: they are lost now.
   */
  prove(db: Db, proofs: readonly Proof[]): Promise<StoredAuthorisation[]>

  /**
   * Matches tickets of locked users with authorisations, at most one for each ticket and the other way round: by session,
   * number and microsecond; approximate ones by session and number, the nearest within 5 s. In a run each number matches once,
   * and the last match ends it. The step says what becomes of a
   * match: with `booked` it is deleted, whatever its state. With `unpriced` it becomes `ticketed`, and pending again where it had
   * been lost or released. Tickets that are `priced` match only `ticketed` ones, the others only those that are not, and
   * delete them.
   */
  matchTickets(db: Db, tickets: SettlingTickets, step: SettlingStep): Promise<TicketMatches>
  /** Inserts ticketed authorisations: of tickets that wait for their price, and that matched none. */
  insertTicketed(db: Db, tickets: SettlingTickets, at: Date): Promise<void>
  /** Inserts tickets whose call may yet be reported. */
  insertEarlyTickets(db: Db, tickets: SettlingTickets, at: Date): Promise<void>
  /** Removes the early tickets of users that were booked before `before`, up to `limit`; returns their costs. */
  takeOldEarlyTickets(
    db: Db,
    users: readonly UserKey[],
    old: { readonly before: Date; readonly limit: number },
  ): Promise<readonly (UserKey & { readonly cost: UsdAttos })[]>
  /** Corrects what limits have counted. */
  correctCounts(db: Db, changes: readonly CountChange[]): Promise<void>
  /** Moves the stream clocks of sidecars forward, never back. */
  advanceClocks(db: Db, clocks: ReadonlyMap<string, Date>): Promise<void>
  /** Forgets stream clocks that are later than `after`. */
  forgetClocksAfter(db: Db, after: Date): Promise<void>

  /**
   * Users with authorisations that are due, or with orphans that may be released or have old early tickets; in the order of
   * ids. Takes no lock.
   */
  findDueUsers(db: Db, due: DueSearch): Promise<UserKey[]>
  /**
   * Pending authorisations of locked users that are due, the oldest first: the stream clock of their sidecar counts
   * (`clockRange`) and is `lagSeconds` past them, or their sidecar has allowed nothing for `holdMaxSeconds`. Never a ticketed one.
   * As many as have `limit` calls, the last one whole.
   */
  findDueAuthorisations(
    db: Db,
    users: readonly UserKey[],
    due: DueSearch,
  ): Promise<StoredAuthorisation[]>
  /**
   * Of these leases, all past their end, the ids of those that may be released: `lagSeconds` after their end, when no
   * authorisation of their sidecar from before it is pending, and the stream is not known to stand still. It is while some
   * authorisation is pending for longer than `lagSeconds`, and no stream clock that counts is that far past the lease's end;
   * but for `holdMaxSeconds` at most.
   */
  findReleasable(db: Db, leases: readonly Lease[], due: DueSearch): Promise<ReadonlySet<string>>
  /** Replaces runs by an authorisation for each of their calls. Returns these. */
  splitRuns(db: Db, runs: readonly StoredAuthorisation[]): Promise<StoredAuthorisation[]>
  endAuthorisations(db: Db, ended: readonly EndedAuthorisation[], at: Date): Promise<void>
  /**
   * Forgets up to `limit` authorisations that ended before `endedBefore`, without those that are ticketed, and as many
   * early tickets that were booked before `bookedBefore`.
   */
  forgetOld(
    db: Db,
    old: { readonly endedBefore: Date; readonly bookedBefore: Date; readonly limit: number },
  ): Promise<void>
}

export interface UserKey {
  readonly appId: AppId
  readonly userId: UserId
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
  /** When core took a batch with calls; null for one without. */
  readonly lastAuthorisedAt: Date | null
  /** Core knows all calls that the process allowed before. */
  readonly completeAt: Date
  /** The process knows all sessions that were joined until then. */
  readonly sharedThrough: Date
  readonly stopped: boolean
}

export type Contact = Pick<SidecarState, 'seenAt' | 'completeAt' | 'sharedThrough'>

/** A slice of a user's money that one process of a sidecar may spend until it ends. */
export interface Lease extends UserKey {
  readonly id: string
  readonly sidecarId: string
  readonly instance: string
  /** All that was ever lent under it. */
  amount: UsdAttos
  /** Bounds of the calls that it has covered, as far as they are reported. */
  used: UsdAttos
  readonly createdAt: Date
  /** By core's clock, its margin included: from here on the lease is an orphan. */
  endsAt: Date
  recalledAt: Date | null
  /** The lowest ratio of retail to network price under which it was lent, scaled by 10^18. */
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
  /** Of a run the highest. */
  readonly sequence: bigint
  /** The signer's LastUpdate, in microseconds since 1970, rounded down; of a run that of the last call. */
  readonly signedMicros: bigint
  /** Absent for one call. */
  readonly run?: Run
  readonly sidecarId: string
  readonly keyId: string | null
  readonly sessionType: string
  readonly bound: UsdAttos
  /** The bound at network price. */
  readonly network?: UsdAttos
  /** Core's time of the decision; of a run that of the first call. */
  readonly authorisedAt: Date
  /** Of a run, or of a call that was part of one: core's time of the run's last decision. */
  readonly lastAt?: Date
  readonly isApproximate: boolean
  readonly isOffline: boolean
}

/** By call in the order of numbers, which end with the authorisation's `sequence`. */
export interface Run {
  readonly micros: readonly bigint[]
  readonly bounds: readonly UsdAttos[]
  /** The numbers whose ticket has not come. */
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
  /** What its estimate drew from credits, as positive amounts; null unless it is charged. */
  readonly drawn: readonly Draw[] | null
}

export interface TicketMatches {
  /** By session, sidecar, type, key, state, and the UTC day of their authorisation. */
  readonly sums: readonly MatchSum[]
  /** Positions of tickets that match nothing. */
  readonly unmatched: readonly number[]
}

/** Authorisations that tickets matched. */
export interface MatchSum extends SessionKey {
  readonly sessionType: string
  /** Empty for what `insertTicketed` wrote. */
  readonly sidecarId: string
  readonly keyId: string | null
  readonly state: 'pending' | EndState
  readonly count: number
  /** Of the authorisations. */
  readonly bound: UsdAttos
  /** What the estimates of charged ones drew. */
  readonly drawn: readonly Draw[]
  /** The bounds of charged ones of which that is not known. */
  readonly undrawn: UsdAttos
  /** Of their tickets. */
  readonly cost: UsdAttos
  readonly latestAt: Date
  /** Up to when the tickets of the session's calls have come, as far as they tell. */
  readonly bookedThrough: Date
}

/** The early tickets of an authorisation. The caller adds them to their session's `ticketed`. */
export interface EarlyMatch {
  readonly numbers: readonly bigint[]
  /** How many of them have a price, and their cost; null for none. */
  readonly priced: number
  readonly cost: UsdAttos | null
}

/** What a batch adds to a session; the times are the signer's. */
export interface SessionChange extends UserKey {
  readonly sessionId: string
  readonly sessionType: string
  readonly at: Date
  /** Calls that were allowed, for prior calls; empty in a settlement. */
  readonly calls: readonly PriorCall[]
  /** The process that allowed them; null without calls. */
  readonly instance: string | null
  readonly added: SessionTotals
}

export interface BegunSession {
  readonly sessionId: string
  readonly instance: string
}

/** Changes of totals, also negative ones. */
export interface SessionTotals {
  readonly authorised: Total
  readonly ticketed: Total
  readonly lost: Total
  readonly charged: Total
  readonly released: Total
  readonly late: Total
}

/** When the first call with a number was, by the signer's clock. */
export interface PriorCall {
  readonly sequence: bigint
  readonly seconds: bigint
  readonly nanos: number
}

/** A session as a process finds it that has not seen it. */
export interface JoinedSession {
  /** Null when no number below is known. */
  readonly prior: PriorCall | null
  /** True when another process serves it, too: each call is then to be asked for. */
  readonly isShared: boolean
  /** When a second process joined it; null where that is not known. */
  readonly sharedAt: Date | null
}

export interface PriorCallQuery extends UserKey {
  readonly sessionId: string
  /** Of the call at hand: the prior call is that of the highest known number below. */
  readonly sequence: bigint
}

/** A call with `sequence + 1` was made, so the call with `sequence` was signed. */
export interface Proof extends UserKey {
  readonly sessionId: string
  readonly sequence: bigint
}

export interface DueSearch {
  readonly at: Date
  readonly lagSeconds: number
  readonly holdMaxSeconds: number
  /** When the database's clock last jumped: what is older is not compared with the present (`due.ts`). */
  readonly jumpedAt: Date
  readonly limit: number
}
