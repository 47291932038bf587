import { DomainError } from '../../../proto/errors.ts'
import { type UsdAttos, networkRatio, usdAttos } from '../../lib/money.ts'
import type { Db } from '../../lib/sql.ts'
import { addSeconds } from '../../lib/time.ts'
import type { SoldRates } from '../../metering/rating/port.ts'
import type { AppId, UserId } from '../../platform/ids.ts'
import { type Account, freeAt, toAppTime, unheldAt } from '../account.ts'
import {
  type Exposures,
  type Room,
  boundedRatio,
  networkCost,
  unbounded,
} from '../exposure/exposure.ts'
import type { Ledger } from '../ledger.ts'
import type * as limitChecks from '../limits/enforcement.ts'
import { type Breach, type PriceCeiling, sessionTypes } from '../limits/limits.ts'
import type { Tallies } from '../limits/tally.ts'
import { type Progress, knownUntil, toContact } from './reports/contact.ts'
import { latestPlausible } from './due.ts'
import { type Leases, createLeases } from './leases.ts'
import {
  type LendAnswer,
  type LendCall,
  graceSeconds,
  lendTo,
  reservationSeconds,
} from './lending.ts'
import type { EndSums, Losses } from './losses.ts'
import type {
  EscrowStore,
  JoinedSession,
  Lease,
  NewAuthorisation,
  SidecarProcess,
  UserKey,
} from './port.ts'
import {
  type AuthorisedCall,
  type Entry,
  type RefusedCall,
  type ReportedCalls,
  type ReturnedLease,
  toAuthorisation,
  bookedThrough,
  isLate,
  firstSequence,
  moveBound,
  toProof,
  toReportedChange,
  toSessionChange,
  takeBack,
  withoutEarly,
} from './reports/reporting.ts'

type LimitChecks = typeof limitChecks

/** The part of the store that lending and holding need. */
export type GrantingStore = Pick<
  EscrowStore,
  | 'lockSidecar'
  | 'saveSidecar'
  | 'ownsSidecar'
  | 'noteReservation'
  | 'findLeases'
  | 'saveLeases'
  | 'findRecalled'
  | 'insertAuthorisations'
  | 'takeEarlyTickets'
  | 'addSessions'
  | 'joinSessions'
  | 'findShared'
  | 'findContacts'
  | 'prove'
  | 'advanceClocks'
> &
  Pick<LimitChecks, 'findLenderLimits' | 'loadTallies' | 'saveTallies' | 'countCalls'>

export interface EscrowDeps {
  readonly store: GrantingStore
  readonly accounts: Pick<Ledger, 'lock' | 'save'>
  /** Ends calls that turn out to be lost after their release. */
  readonly losses: Pick<Losses, 'end'>
  readonly leaseSeconds: number
  readonly soldRates: FindSoldRates
  /** If absent, no app is bounded. */
  readonly exposures?: Exposures
}

/** Finds the rates at which the plan versions of locked accounts sell. */
export type FindSoldRates = (
  db: Db,
  accounts: readonly Account[],
) => Promise<ReadonlyMap<UserId, Pick<SoldRates, 'highest' | 'maxPriceWei'>>>

export interface LendRequest {
  readonly process: SidecarProcess
  readonly calls: readonly LendCall[]
}

export type { AuthorisedCall, RefusedCall, ReportedCalls, ReturnedLease }

export interface ReserveCall extends AuthorisedCall {
  readonly process: SidecarProcess
  readonly isActive: boolean
  /**
   * Ratio by which the bound at network price was multiplied, scaled by 10^18; null if not sent.
   */
  readonly soldAt: bigint | null
}

export interface ReserveAnswer {
  /**
   * Null if the call is allowed. `price_changed`: its ticket may sell for more than its bound.
   * `not_owner`: another process has the sidecar's id. `owner_debt_ceiling_reached`: the owner's
   * apps have reached their cost limit (exposure.ts).
   */
  readonly refusal:
    | 'insufficient_balance'
    | 'user_inactive'
    | 'limit_exceeded'
    | 'price_changed'
    | 'owner_debt_ceiling_reached'
    | 'not_owner'
    | null
  /** The limit that the call would break. */
  readonly breach: Breach | null
  /** Price ceilings of the call's user, key and plan. */
  readonly ceilings: readonly PriceCeiling[]
  /** The money is lent elsewhere and was recalled, so a retry may succeed. */
  readonly isRecalled: boolean
  readonly remaining: UsdAttos
  /** Ratio by which to multiply a bound at network price, scaled by 10^18. */
  readonly retailRatio: bigint
}

export interface Report extends Progress {
  readonly process: SidecarProcess
  /** 0 for a heartbeat without content. */
  readonly number: bigint
  readonly calls: readonly ReportedCalls[]
  readonly refused: readonly RefusedCall[]
  readonly returned: readonly ReturnedLease[]
  readonly stopped: boolean
}

/** A process that was silent for this long may be replaced. */
const silentSeconds = 3
/**
 * A report or heartbeat arrives at most this long after it was sent; the sidecar then gives up on
 * it.
 */
const transitSeconds = 2
/** The longest time that a call of an unknown session is assumed to bill. */
const longestGapSeconds = 900
/** A sidecar reports a call within this time. */
const reportSeconds = 10
/**
 * Longer than a transaction that joins a session. After this time, the list of shared sessions
 * includes it.
 */
const joiningSeconds = 15
/** A process that has not learnt for this long that a session is shared has no lease any more. */
const sharedSeconds = 600

/**
 * Lends, reserves and takes reports (docs/escrow.md). Every function runs inside the caller's
 * transaction, locks users in id order, and takes the time from `at` instead of a clock. Invariant:
 * `lent` and `pending` of an account are the sums over its leases and its pending authorisations.
 * Only calls that a sidecar already allowed can raise them beyond what is free.
 */
export function createEscrow(deps: EscrowDeps) {
  const { store, accounts, losses, leaseSeconds, soldRates, exposures = unbounded } = deps

  /** Opens and renews leases. Throws CONFLICT if another process has the sidecar's id. */
  async function lend(db: Db, { process, calls }: LendRequest, at: Date) {
    if (!(await store.ownsSidecar(db, process))) throw notOwner()
    const { find, leases, ...locked } = await lock(db, calls, { at })
    const sessions = await joinSessions(db, { process, calls }, at)
    const unheard = await findUnheard(db, { process, calls }, leases)
    const limits = await store.findLenderLimits(db, usersOf(calls))
    const { sold, save } = await openRooms(db, calls, { ...locked, amountOf: usefulSlice, at })
    const answers = calls.map((call) => {
      const account = find(call)
      if (!account) return null
      const isLimited = limits.isLimited(call.userId)
      const { retailRatio, ceilings: ofPlan, room } = sold(call)
      const situation = { process, account, leases, leaseSeconds, isLimited, retailRatio, room, at }
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
    { process: { instance }, calls }: LendRequest,
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
  async function findUnheard(db: Db, { process, calls }: LendRequest, leases: Leases) {
    const othersOf = ({ userId }: UserKey) =>
      leases.of(userId).filter(({ instance }) => instance !== process.instance)
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

  /**
   * Holds the bounds of single calls from any sidecars, in order, as far as they fit into what is
   * free. `owners` is the result of `noteReservations`.
   */
  async function reserve(
    db: Db,
    { calls, owners }: { calls: readonly ReserveCall[]; owners: ReadonlySet<string> },
    at: Date,
  ) {
    const { find, leases, ...locked } = await lock(db, calls, {
      at,
      hasLeases: ({ lent }) => lent > 0n,
    })
    const amountOf = ({ bound }: ReserveCall): bigint => bound
    const tallies = await store.loadTallies(
      db,
      calls.filter(find).map((call) => toLimited(call)),
      at,
    )
    const { sold, save } = await openRooms(db, calls, { ...locked, amountOf, at })
    const allowed: StampedCall[] = []
    const answers = calls.map((call): ReserveAnswer | null => {
      const account = find(call)
      if (!account) return null
      const { retailRatio, ceilings: ofPlan, room } = sold(call)
      const network = networkCost(call.bound, call.soldAt ?? retailRatio)
      const answer = owners.has(processKey(call.process))
        ? hold(call, { account, leases, tallies, retailRatio, room, network, at })
        : refuse('not_owner')
      if (answer.refusal === null) allowed.push({ ...stamp(call, call.process, at), network })
      const ceilings = [...(tallies?.ceilings(toLimited(call)) ?? []), ...ofPlan]
      return {
        ...answer,
        ceilings,
        retailRatio,
        remaining: unheldAt(account, toAppTime(account, at)),
      }
    })
    if (tallies) await store.saveTallies(db, tallies)
    await store.insertAuthorisations(db, allowed)
    await store.addSessions(
      db,
      allowed.map((call) => toSessionChange(call)),
    )
    const ended = await prove(db, { calls: calls.filter(find), find }, at)
    await save()
    return { answers, recalled: leases.recalledAt(at), ended }
  }

  /**
   * Records, before the transaction of `reserve`, that sidecars are about to decide with core's
   * help. Returns the processes that hold their sidecars' ids.
   */
  async function noteReservations(
    db: Db,
    calls: readonly Pick<ReserveCall, 'process'>[],
    at: Date,
  ): Promise<Set<string>> {
    const processes = new Map(calls.map(({ process }) => [processKey(process), process]))
    const owners = new Set<string>()
    for (const [key, process] of processes)
      if (await store.noteReservation(db, process, at)) owners.add(key)
    return owners
  }

  /**
   * Applies the batch that follows the process's last one, and no other. Every batch counts as a
   * heartbeat. Throws CONFLICT if another process has the sidecar's id.
   */
  async function report(db: Db, batch: Report, at: Date) {
    const { process, number } = batch
    const silentSince = addSeconds(at, -silentSeconds)
    const sidecar = await store.lockSidecar(db, process, { at, silentSince })
    if (!sidecar) throw notOwner()
    const isNext = number === sidecar.reportedThrough + 1n
    const figures = isNext ? await apply(db, batch, at) : null
    const through = isNext ? number : sidecar.reportedThrough
    await store.saveSidecar(db, process, {
      ...toContact(batch, at),
      reportedThrough: through,
      lastAuthorisedAt: isNext && batch.calls.length > 0 ? at : null,
      stopped: batch.stopped && (isNext || number === 0n || number === through),
    })
    const begunHere = await store.findShared(db, process.instance, addSeconds(at, -sharedSeconds))
    const shared = [...new Set([...begunHere, ...(figures?.begunByOthers ?? [])])]
    const recalled = await store.findRecalled(db, process.instance)
    const sharedThrough = addSeconds(at, -joiningSeconds)
    return { through, recalled, shared, sharedThrough, figures }
  }

  async function apply(db: Db, batch: Report, at: Date) {
    const { find, leases, sold, save } = await lock(
      db,
      [...batch.calls, ...batch.refused, ...batch.returned],
      { at },
    )
    const ratioOf = ({ userId, leaseId }: ReportedCalls): bigint | undefined =>
      leases.of(userId).find(({ id }) => id === leaseId)?.retailRatio
    const entries = await takeEntries(db, batch, {
      find,
      at,
      networkOf: (call) => networkCost(call.bound, ratioOf(call) ?? sold(call).retailRatio),
    })
    const figures = moveBounds(entries, { find, leases, at })
    const { instance } = batch.process
    const begunByOthers = await insertEntries(db, entries, { instance, at })
    const calls = entries.map(({ call }) => ({ ...call, sequence: firstSequence(call) }))
    const ended = await prove(db, { calls: [...calls, ...batch.refused.filter(find)], find }, at)
    for (const lease of batch.returned) {
      const account = find(lease)
      if (account) figures.returned += takeBack(lease, { account, leases })
    }
    await save()
    // The row of the clock is the last that a transaction locks, as in ingest.
    const booked = entries.flatMap((entry) => (entry.early ? bookedThrough(entry) : []))
    if (booked.length > 0)
      await store.advanceClocks(db, new Map([[batch.process.id, latestOf(booked)]]))
    return { ...figures, ended, begunByOthers }
  }

  /** Takes the entries of a report, with the tickets that came before it. */
  async function takeEntries(
    db: Db,
    { process, calls: reported }: Report,
    { find, networkOf, at }: EntryContext,
  ): Promise<Entry[]> {
    const calls = reported.filter(find)
    const authorisations = calls.map((call) =>
      toAuthorisation(call, { sidecarId: process.id, network: networkOf(call), at }),
    )
    const early = await store.takeEarlyTickets(db, authorisations)
    return authorisations.flatMap((authorisation, index) => {
      const [call, tickets] = [calls[index], early[index] ?? null]
      const held = withoutEarly(authorisation, tickets)
      return call ? [{ call, authorisation, early: tickets, held }] : []
    })
  }

  /** Inserts entries. Returns the ids of those sessions that another process began. */
  async function insertEntries(
    db: Db,
    entries: readonly Entry[],
    { instance, at }: { readonly instance: string; readonly at: Date },
  ): Promise<string[]> {
    await store.insertAuthorisations(
      db,
      entries.flatMap(({ held }) => held ?? []),
    )
    const sessions = await store.addSessions(
      db,
      entries.map(({ call, early }) => toReportedChange(call, early, { instance, at })),
    )
    await store.countCalls(db, entries.map(toCounted), at)
    return sessions.flatMap((session) => (session.instance === instance ? [] : session.sessionId))
  }

  /** Locks a user's account and recalls its leases. */
  async function recall(db: Db, user: UserKey, at: Date): Promise<void> {
    const { find, leases, save } = await lock(db, [user], { at })
    const account = find(user)
    if (account) leases.recall(account, { missing: 0n, at })
    await save()
  }

  /** Proves the preceding calls. Returns the sums of released calls that are lost now, or null. */
  async function prove(
    db: Db,
    { calls, find }: { calls: readonly RefusedCall[]; find: FindAccount },
    at: Date,
  ): Promise<EndSums | null> {
    const authorisations = await store.prove(db, calls.map(toProof))
    return authorisations.length > 0 ? losses.end(db, { authorisations, find }, at) : null
  }

  /**
   * Locks the users of calls, then reads their leases, so that leases are as new as the accounts.
   */
  async function lock(
    db: Db,
    calls: readonly UserKey[],
    { at, hasLeases = () => true }: { at: Date; hasLeases?: (account: Account) => boolean },
  ) {
    const locked = await accounts.lock(db, usersOf(calls), at)
    const byUser = new Map(locked.map((account) => [account.userId, account]))
    const before = new Map(locked.map((account) => [account, holdsOf(account)]))
    const leases = createLeases(await store.findLeases(db, locked.filter(hasLeases)))

    async function save(): Promise<void> {
      await store.saveLeases(db, leases.changes())
      const changed = locked.filter(
        (account) => isTouched(account) || before.get(account) !== holdsOf(account),
      )
      if (changed.length > 0) await accounts.save(db, changed, at)
    }

    const rates = await soldRates(db, locked)
    const sold = ({ userId }: UserKey) => {
      const of = rates.get(userId)
      return { retailRatio: of?.highest ?? networkRatio, ceilings: ceilingsOf(of?.maxPriceWei) }
    }
    return { find: ({ userId }: UserKey) => byUser.get(userId), leases, sold, save }
  }

  /**
   * Opens the rooms of the calls' apps. Must come after other reads, because all users of an owner
   * wait for its row. In a bounded app, a plan with almost no price uses a ratio from which core
   * can derive the network cost of its bounds. Returns the locked data with the rooms.
   */
  async function openRooms<Call extends UserKey>(
    db: Db,
    calls: readonly Call[],
    { sold, save, amountOf, at }: OpenRooms<Call>,
  ) {
    const needs = new Map<AppId, bigint>()
    for (const call of calls) {
      const need = networkCost(amountOf(call), sold(call).retailRatio)
      needs.set(call.appId, (needs.get(call.appId) ?? 0n) + need)
    }
    const rooms = await exposures.open(db, needs, at)
    return {
      sold: (call: Call) => {
        const { retailRatio, ceilings } = sold(call)
        const room = rooms.find(call.appId)
        return { ceilings, room, retailRatio: room ? boundedRatio(retailRatio) : retailRatio }
      },
      save: async (): Promise<void> => {
        await save()
        await rooms.save(db)
      },
    }
  }

  /** What a lease for the call would hold if money were plentiful. */
  const usefulSlice = ({ bound, spending }: LendCall): bigint => {
    const [calls, time] = [bound * 4n, spending * BigInt(leaseSeconds)]
    return calls > time ? calls : time
  }

  return { lend, noteReservations, reserve, report, recall }
}

export type Escrow = ReturnType<typeof createEscrow>
export type { LendAnswer, LendCall }

interface OpenRooms<Call extends UserKey> {
  readonly sold: (call: UserKey) => Sold
  readonly save: () => Promise<void>
  /** What the call would take, at retail. */
  readonly amountOf: (call: Call) => bigint
  readonly at: Date
}

interface Sold {
  readonly retailRatio: bigint
  readonly ceilings: readonly PriceCeiling[]
}

type FindAccount = (user: UserKey) => Account | undefined

const usersOf = (calls: readonly UserKey[]): UserKey[] => [
  ...new Map(calls.map((call) => [call.userId, call])).values(),
]

const notOwner = (): DomainError =>
  new DomainError('CONFLICT', "another process uses this sidecar's id")

/** A plan's price ceiling per unit, whatever the session's unit. */
const ceilingsOf = (maxWei: bigint | null | undefined): readonly PriceCeiling[] =>
  maxWei === null || maxWei === undefined
    ? noCeilings
    : sessionTypes.map((type) => ({ type, app: '', maxWei }))

const noCeilings: readonly PriceCeiling[] = []

type HoldAnswer = Omit<ReserveAnswer, 'remaining' | 'ceilings' | 'retailRatio'>

const refuse = (refusal: ReserveAnswer['refusal'], more: Partial<HoldAnswer> = {}): HoldAnswer => ({
  refusal,
  breach: null,
  isRecalled: false,
  ...more,
})

function hold(
  call: ReserveCall,
  { account, leases, tallies, retailRatio, room, network, at }: Holding,
): HoldAnswer {
  if (!call.isActive) return refuse('user_inactive')
  if (call.soldAt !== null && call.soldAt < retailRatio) return refuse('price_changed')
  const limited = toLimited(call)
  const breach = tallies?.breach(limited, at)
  if (breach) return refuse('limit_exceeded', { breach })
  const own = toAppTime(account, at)
  const free = freeAt(account, { at: own, until: addSeconds(own, reservationSeconds) })
  if (call.bound > free) {
    const isRecalled = leases.recall(account, { missing: call.bound - free, at })
    return refuse('insufficient_balance', { isRecalled })
  }
  if (room && network > room.left) return refuse('owner_debt_ceiling_reached')
  if (room) room.left -= network
  tallies?.count(limited, at)
  account.pending = usdAttos(account.pending + call.bound)
  return refuse(null)
}

interface Holding {
  readonly account: Account
  readonly leases: Leases
  readonly tallies: Tallies | null
  readonly retailRatio: bigint
  readonly room: Room | null
  /** The bound at network price. */
  readonly network: UsdAttos
  readonly at: Date
}

const toLimited = (call: AuthorisedCall) => ({ ...call, amount: call.bound })

/**
 * Calls whose tickets came first count by their cost. Price ceilings are not checked, because the
 * calls were already allowed.
 */
const toCounted = ({ call, early, held }: Entry) => ({
  ...call,
  app: '',
  price: null,
  calls: call.micros.length,
  amount: usdAttos((early?.cost ?? 0n) + (held?.bound ?? 0n)),
})

/** Moves the bounds of entries from leases to pending. Returns sums for metrics. */
function moveBounds(
  entries: readonly Entry[],
  { find, leases, at }: { find: FindAccount; leases: Leases; at: Date },
) {
  const figures = { calls: 0, used: 0n, returned: 0n, late: { count: 0, amount: 0n } }
  for (const { call, held } of entries) {
    const account = find(call)
    if (!account) continue
    figures.calls += call.micros.length
    if (isLate(call, leases, at)) {
      figures.late.count += call.micros.length
      figures.late.amount += call.bound
    }
    figures.used += moveBound(call, held?.bound ?? usdAttos(0n), { account, leases })
  }
  return figures
}

interface EntryContext {
  readonly find: FindAccount
  /** Returns the bound at network price. */
  readonly networkOf: (call: ReportedCalls) => UsdAttos
  readonly at: Date
}

const latestOf = (instants: readonly Date[]): Date =>
  new Date(Math.max(...instants.map((instant) => instant.getTime())))

type StampedCall = AuthorisedCall & NewAuthorisation & { readonly instance: string }

const stamp = (call: AuthorisedCall, { id, instance }: SidecarProcess, at: Date): StampedCall => ({
  ...call,
  sidecarId: id,
  instance,
  authorisedAt: at,
})

const processKey = ({ id, instance }: SidecarProcess): string => `${instance} ${id}`

const holdsOf = ({ lent, pending, lendAfter, lateUntil }: Account): string =>
  `${lent} ${pending} ${lendAfter?.getTime()} ${lateUntil?.getTime()}`

// True if a period was entered or a credit expired.
const isTouched = ({ entries, credits }: Account): boolean =>
  entries.length > 0 || credits.some(({ state }) => state !== 'stored')
