import type { CreditDebit } from '../../../../core/allowances/chain.ts'
import { type UsdAttos, usdAttos } from '../../../../core/lib/money.ts'
import { clockRange, idleSince, latestPlausible } from '../../../../core/allowances/escrow/due.ts'
import { earlySeconds } from '../../../../core/allowances/escrow/stores/due-store.ts'
import { toEarlyMatch } from '../../../../core/allowances/escrow/stores/early-ticket-store.ts'
import {
  approximateMicros,
  matchEarlyTickets,
} from '../../../../core/allowances/escrow/matching.ts'
import type {
  BegunSession,
  DueSearch,
  EscrowStore,
  Lease,
  MatchSum,
  PriorCall,
  SidecarProcess,
  StoredAuthorisation,
  UserKey,
} from '../../../../core/allowances/escrow/port.ts'
import {
  includesNumber,
  removeNumbers,
} from '../../../../core/allowances/escrow/reports/number-ranges.ts'
import { openCalls } from '../../../../core/allowances/escrow/reports/runs.ts'
import { sumSessions } from '../../../../core/allowances/escrow/session-sums.ts'
import type {
  SessionKey,
  SettlingStep,
  SettlingTickets,
} from '../../../../core/metering/ingest/charges.ts'
import type { MemoryDatabase } from './memory-database.ts'

/**
 * The escrow's tables in memory, each by user. Rows are replaced, never modified, so that a
 * rollback can restore them.
 */
export interface EscrowTables {
  readonly sidecars: Map<string, SidecarRow>
  readonly clocks: Map<string, Date>
  readonly leases: Map<string, readonly Lease[]>
  readonly authorisations: Map<string, readonly StoredAuthorisation[]>
  readonly earlyTickets: Map<string, readonly EarlyTicket[]>
  readonly sessions: Map<string, SessionRow>
}

export interface SidecarRow {
  readonly instance: string
  readonly seenAt: Date
  readonly stopped: boolean
  readonly reportedThrough: bigint
  readonly lastAuthorisedAt: Date | null
  readonly completeAt: Date
  readonly sharedThrough: Date
}

interface EarlyTicket extends TicketRow {
  readonly bookedAt: Date
}

interface TicketRow extends SessionKey {
  readonly sequence: bigint
  readonly signedMicros: bigint
  readonly cost: UsdAttos
}

/** A session without its totals, which no rule reads. */
export interface SessionRow {
  readonly start: PriorCall
  readonly top: PriorCall
  readonly instance: string
  readonly sharedAt: Date | null
}

export interface MemoryEscrowDeps {
  readonly database: MemoryDatabase
  /** Whether a ticket of this call is booked. */
  readonly hasTicket: (user: UserKey, sessionId: string, sequence: bigint) => boolean
}

/**
 * The escrow's storage in memory, for the model checker. The contract test compares it with
 * PostgreSQL.
 */
export function createMemoryEscrowStore({ database, hasTicket }: MemoryEscrowDeps) {
  const tables: EscrowTables = {
    sidecars: new Map(),
    clocks: new Map(),
    leases: new Map(),
    authorisations: new Map(),
    earlyTickets: new Map(),
    sessions: new Map(),
  }
  const { set } = database
  let lastId = 0n

  const authorisationsOf = (user: UserKey): readonly StoredAuthorisation[] =>
    tables.authorisations.get(user.userId) ?? []
  const leasesOf = (user: UserKey): readonly Lease[] => tables.leases.get(user.userId) ?? []
  const earlyOf = (user: UserKey): readonly EarlyTicket[] =>
    tables.earlyTickets.get(user.userId) ?? []

  function replace(
    user: UserKey,
    change: (row: StoredAuthorisation) => StoredAuthorisation | null,
  ) {
    const rows = authorisationsOf(user).flatMap((row) => change(row) ?? [])
    set(tables.authorisations, user.userId, rows)
  }

  const replaceOne = (old: StoredAuthorisation, row: StoredAuthorisation | null): void =>
    replace(old, (candidate) => (candidate.id === old.id ? row : candidate))

  const lockSidecar: EscrowStore['lockSidecar'] = async (_db, process, { at, silentSince }) => {
    const row = tables.sidecars.get(process.id)
    if (row?.instance === process.instance) return { reportedThrough: row.reportedThrough }
    const isAlive = row && row.seenAt >= silentSince && row.seenAt <= latestPlausible(at)
    if (isAlive && !row.stopped) return null
    set(tables.sidecars, process.id, {
      instance: process.instance,
      seenAt: at,
      stopped: false,
      reportedThrough: 0n,
      lastAuthorisedAt: row?.lastAuthorisedAt ?? null,
      completeAt: at,
      sharedThrough: at,
    })
    return { reportedThrough: 0n }
  }

  const saveSidecar: EscrowStore['saveSidecar'] = async (_db, { id, instance }, state) => {
    const lastAuthorisedAt = latest(
      tables.sidecars.get(id)?.lastAuthorisedAt ?? null,
      state.lastAuthorisedAt,
    )
    set(tables.sidecars, id, { ...state, instance, lastAuthorisedAt })
  }

  const ownsSidecar: EscrowStore['ownsSidecar'] = async (_db, process: SidecarProcess) =>
    tables.sidecars.get(process.id)?.instance === process.instance

  // Runs between transactions, so that the rollback of another one does not undo it.
  const noteReservation: EscrowStore['noteReservation'] = async (_db, { id, instance }, at) => {
    const turn = await database.pool.connect()
    const row = tables.sidecars.get(id)
    const isOwner = row?.instance === instance
    if (isOwner)
      set(tables.sidecars, id, { ...row, lastAuthorisedAt: latest(row.lastAuthorisedAt, at) })
    turn.release()
    return isOwner
  }

  const findLeases: EscrowStore['findLeases'] = async (_db, users) =>
    users.flatMap((user) => leasesOf(user).map((lease) => ({ ...lease })))

  const saveLeases: EscrowStore['saveLeases'] = async (_db, { opened, changed, closed }) => {
    for (const lease of opened) set(tables.leases, lease.userId, [...leasesOf(lease), { ...lease }])
    for (const lease of changed)
      set(
        tables.leases,
        lease.userId,
        leasesOf(lease).map((row) => (row.id === lease.id ? { ...lease } : row)),
      )
    for (const lease of closed)
      set(
        tables.leases,
        lease.userId,
        leasesOf(lease).filter(({ id }) => id !== lease.id),
      )
  }

  const findRecalled: EscrowStore['findRecalled'] = async (_db, instance) =>
    [...tables.leases.values()]
      .flat()
      .filter((lease) => lease.instance === instance && lease.recalledAt !== null)
      .map(({ userId }) => userId)
      .toSorted()

  const insertAuthorisations: EscrowStore['insertAuthorisations'] = async (_db, rows) => {
    for (const row of rows) {
      const stored = {
        ...row,
        id: ++lastId,
        state: 'pending',
        isProven: row.run !== undefined && !includesNumber(row.run.open, row.sequence),
        isTicketed: false,
      } as const
      set(tables.authorisations, row.userId, [...authorisationsOf(row), stored])
    }
  }

  const takeEarlyTickets: EscrowStore['takeEarlyTickets'] = async (_db, authorisations) => {
    const users = [...new Map(authorisations.map((row) => [row.userId, row])).values()]
    const matches = matchEarlyTickets(authorisations, users.flatMap(earlyOf))
    for (const user of users)
      set(
        tables.earlyTickets,
        user.userId,
        earlyOf(user).filter((ticket) => !matches.flat().includes(ticket)),
      )
    return matches.map(toEarlyMatch)
  }

  const addSessions: EscrowStore['addSessions'] = async (_db, changes) => {
    const begun: BegunSession[] = []
    for (const { userId, sessionId, start, top, instance, isShared, at } of sumSessions(changes)) {
      const key = `${userId} ${sessionId}`
      const row = tables.sessions.get(key)
      if (!start || !top || instance === null) continue
      const joins = isShared || (row !== undefined && row.instance !== instance)
      set(tables.sessions, key, {
        start: row && comesFirst(row.start, start) ? row.start : start,
        top: row && comesLast(row.top, top) ? row.top : top,
        instance: row?.instance ?? instance,
        sharedAt: row?.sharedAt ?? (joins ? at : null),
      })
      begun.push({ sessionId, instance: row?.instance ?? instance })
    }
    return begun
  }

  const joinSessions: EscrowStore['joinSessions'] = async (_db, queries, { instance, at }) =>
    queries.map(({ userId, sessionId, sequence }) => {
      const key = `${userId} ${sessionId}`
      const row = tables.sessions.get(key)
      if (!row) return null
      const isOther = row.instance !== instance
      if (isOther && !row.sharedAt) set(tables.sessions, key, { ...row, sharedAt: at })
      const prior = [row.top, row.start].find((call) => call.sequence < sequence) ?? null
      const sharedAt = row.sharedAt ?? (isOther ? at : null)
      return { prior, isShared: sharedAt !== null, sharedAt }
    })

  const findShared: EscrowStore['findShared'] = async (_db, instance, since) =>
    [...tables.sessions].flatMap(([key, row]) =>
      row.instance === instance && row.sharedAt && row.sharedAt > since
        ? [key.slice(key.indexOf(' ') + 1)]
        : [],
    )

  const findContacts: EscrowStore['findContacts'] = async (_db, instances) =>
    new Map(
      [...tables.sidecars.values()].flatMap((row) =>
        instances.includes(row.instance) ? [[row.instance, row] as const] : [],
      ),
    )

  const prove: EscrowStore['prove'] = async (_db, proofs) => {
    const different = new Map(
      proofs.map((proof) => [`${proof.userId} ${proof.sessionId} ${proof.sequence}`, proof]),
    )
    return [...different.values()].flatMap((proof): StoredAuthorisation[] => {
      if (hasTicket(proof, proof.sessionId, proof.sequence)) return []
      const row = authorisationsOf(proof).find(
        ({ sessionId, sequence, state, isProven, isTicketed }) =>
          sessionId === proof.sessionId &&
          sequence === proof.sequence &&
          (state === 'pending' || state === 'released') &&
          !isProven &&
          !isTicketed,
      )
      if (!row) return []
      const isLost = row.state === 'released'
      const proven = { ...row, isProven: true, state: isLost ? ('lost' as const) : row.state }
      replaceOne(row, proven)
      return isLost ? [proven] : []
    })
  }

  const drawnBy = new Map<bigint, readonly CreditDebit[]>()

  const matchTickets: EscrowStore['matchTickets'] = async (_db, tickets, step) => {
    const positions = [...tickets.session.keys()]
    if (step === 'unpriced') {
      const runs = positions.flatMap((position) => runOf(ticketAt(tickets, position)) ?? [])
      await splitRuns(_db, [...new Set(runs)])
    }
    const exact = matchBy(tickets, { positions, step, isMatch: isSameMoment })
    const open = positions.filter((position) => !exact.has(position))
    const ofRuns = step === 'booked' ? matchRuns(tickets, open) : new Map<number, MatchSum>()
    const near = matchBy(tickets, {
      positions: open.filter((position) => !ofRuns.has(position)),
      step,
      isMatch: isNear,
    })
    return {
      sums: [
        ...[...exact, ...near].map(([position, row]) =>
          toSum(tickets, position, { ...row, drawn: drawnBy.get(row.id) ?? null }),
        ),
        ...ofRuns.values(),
      ],
      unmatched: open.filter((position) => !ofRuns.has(position) && !near.has(position)),
    }
  }

  /** Returns the run that contains the ticket's call. */
  const runOf = (ticket: TicketRow): StoredRun | undefined =>
    authorisationsOf(ticket)
      .filter((row): row is StoredRun => row.run !== undefined)
      .filter(
        (row) =>
          row.sessionId === ticket.sessionId &&
          openCalls(row).some(
            ({ sequence, signedMicros }) =>
              sequence === ticket.sequence && signedMicros === ticket.signedMicros,
          ),
      )
      .toSorted((a, b) => compare(a.sequence, b.sequence) || compare(a.id, b.id))[0]

  // Each ticket looks up its run among those stored before, so two tickets with one number do not
  // match two runs.
  function matchRuns(tickets: SettlingTickets, positions: readonly number[]) {
    const found = positions.flatMap((position) => {
      const ticket = ticketAt(tickets, position)
      const row = runOf(ticket)
      return row ? [{ position, ticket, row }] : []
    })
    const sums = new Map<number, MatchSum>()
    const rests = new Map<bigint, StoredRun | null>()
    for (const { position, ticket, row } of found) {
      const rest = rests.get(row.id) === undefined ? row : rests.get(row.id)
      if (!rest || !includesNumber(rest.run.open, ticket.sequence)) continue
      const next = settleNumber(rest, ticket.sequence)
      rests.set(row.id, next)
      replaceOne(row, next)
      sums.set(position, {
        ...toSum(tickets, position, { ...row, drawn: null }),
        bound: usdAttos(rest.bound - (next?.bound ?? 0n)),
        bookedThrough: next ? row.authorisedAt : (row.lastAt ?? row.authorisedAt),
      })
    }
    return sums
  }

  const splitRuns: EscrowStore['splitRuns'] = async (_db, runs) => {
    const calls = runs.flatMap((row) => {
      const { run: _, ...rest } = row
      return openCalls(row).map((call): StoredAuthorisation => ({
        ...rest,
        ...call,
        isProven: row.isProven || call.sequence < row.sequence,
        id: ++lastId,
      }))
    })
    for (const row of runs) replaceOne(row, null)
    for (const call of calls)
      set(tables.authorisations, call.userId, [...authorisationsOf(call), call])
    return calls
  }

  interface Matching {
    readonly positions: readonly number[]
    readonly step: SettlingStep
    readonly isMatch: (row: StoredAuthorisation, micros: bigint) => boolean
  }

  /** Matches the nearest pairs first. */
  function matchBy(tickets: SettlingTickets, { positions, step, isMatch }: Matching) {
    const pairs = positions.flatMap((position) => {
      const ticket = ticketAt(tickets, position)
      return authorisationsOf(ticket)
        .filter(
          (row) =>
            !row.run &&
            row.sessionId === ticket.sessionId &&
            row.sequence === ticket.sequence &&
            row.isTicketed === (step === 'priced') &&
            isMatch(row, ticket.signedMicros),
        )
        .map((row) => ({ position, row, distance: distance(row, ticket.signedMicros) }))
    })
    const matches = new Map<number, StoredAuthorisation>()
    const ids = new Set<bigint>()
    for (const { position, row } of pairs.toSorted(
      (a, b) =>
        compare(a.distance, b.distance) || a.position - b.position || compare(a.row.id, b.row.id),
    )) {
      if (matches.has(position) || ids.has(row.id)) continue
      matches.set(position, row)
      ids.add(row.id)
      const state = row.state === 'charged' ? row.state : ('pending' as const)
      replaceOne(row, step === 'unpriced' ? { ...row, state, isTicketed: true } : null)
    }
    return matches
  }

  const insertTicketed: EscrowStore['insertTicketed'] = async (_db, tickets, at) => {
    for (const position of tickets.session.keys()) {
      const { cost, ...ticket } = ticketAt(tickets, position)
      const row: StoredAuthorisation = {
        ...ticket,
        bound: cost,
        id: ++lastId,
        sidecarId: '',
        keyId: null,
        sessionType: '',
        authorisedAt: at,
        state: 'pending',
        isApproximate: false,
        isOffline: false,
        isProven: false,
        isTicketed: true,
      }
      set(tables.authorisations, row.userId, [...authorisationsOf(row), row])
    }
  }

  const insertEarlyTickets: EscrowStore['insertEarlyTickets'] = async (_db, tickets, bookedAt) => {
    for (const position of tickets.session.keys()) {
      const ticket = { ...ticketAt(tickets, position), bookedAt }
      set(tables.earlyTickets, ticket.userId, [...earlyOf(ticket), ticket])
    }
  }

  const takeOldEarlyTickets: EscrowStore['takeOldEarlyTickets'] = async (
    _db,
    users,
    { before, limit },
  ) => {
    const old = users
      .flatMap(earlyOf)
      .filter(({ bookedAt }) => bookedAt < before)
      .toSorted((a, b) => a.bookedAt.getTime() - b.bookedAt.getTime())
      .slice(0, limit)
    for (const user of users)
      set(
        tables.earlyTickets,
        user.userId,
        earlyOf(user).filter((ticket) => !old.includes(ticket)),
      )
    return old
  }

  const advanceClocks: EscrowStore['advanceClocks'] = async (_db, clocks) => {
    for (const [sidecarId, at] of clocks)
      set(tables.clocks, sidecarId, latest(tables.clocks.get(sidecarId) ?? null, at) ?? at)
  }

  const forgetClocksAfter: EscrowStore['forgetClocksAfter'] = async (_db, late) => {
    for (const [sidecarId, at] of tables.clocks)
      if (at > late) set(tables.clocks, sidecarId, undefined)
  }

  const isWaiting = ({ state, isTicketed }: StoredAuthorisation): boolean =>
    state === 'pending' && !isTicketed

  function isDue(row: StoredAuthorisation, due: DueSearch): boolean {
    if (!isWaiting(row)) return false
    const { sidecarId } = row
    const lastAt = row.lastAt ?? row.authorisedAt
    const clock = tables.clocks.get(sidecarId)
    if (clock && counts(clock, due) && after(lastAt, due.lagSeconds) <= clock) return true
    const last = tables.sidecars.get(sidecarId)?.lastAuthorisedAt ?? null
    return last !== null && lastAt <= last && last <= idleSince(due)
  }

  function* waiting(): Generator<StoredAuthorisation> {
    for (const rows of tables.authorisations.values())
      for (const row of rows) if (isWaiting(row)) yield row
  }

  const findDueUsers: EscrowStore['findDueUsers'] = async (_db, due) => {
    const users = new Map<string, UserKey>()
    for (const row of waiting()) if (isDue(row, due)) users.set(row.userId, row)
    const isReleasable = releasable(due)
    const before = after(due.at, -earlySeconds)
    for (const lease of [...tables.leases.values()].flat()) {
      const hasOld = earlyOf(lease).some(({ bookedAt }) => bookedAt < before)
      if (lease.endsAt <= due.at && (hasOld || isReleasable(lease))) users.set(lease.userId, lease)
    }
    return [...users.values()]
      .toSorted((a, b) => compare(a.userId, b.userId))
      .slice(0, due.limit)
      .map(({ appId, userId }) => ({ appId, userId }))
  }

  const findDueAuthorisations: EscrowStore['findDueAuthorisations'] = async (_db, users, due) =>
    users
      .flatMap(authorisationsOf)
      .filter((row) => isDue(row, due))
      .toSorted(
        (a, b) => a.authorisedAt.getTime() - b.authorisedAt.getTime() || compare(a.id, b.id),
      )
      .filter((_, index, rows) => callsBefore(rows, index) < due.limit)

  function releasable(due: DueSearch) {
    const { at, lagSeconds } = due
    const rows = [...waiting()]
    const isStill = rows.some(({ authorisedAt }) => after(authorisedAt, lagSeconds) <= at)
    const through = [...tables.clocks.values()]
      .filter((clock) => counts(clock, due))
      .reduce<Date | null>(latest, null)
    return ({ endsAt, sidecarId }: Lease): boolean => {
      const dueAt = after(endsAt, lagSeconds)
      return (
        dueAt <= at &&
        (!isStill || (through !== null && through >= dueAt) || endsAt <= idleSince(due)) &&
        !rows.some((row) => row.sidecarId === sidecarId && row.authorisedAt <= endsAt)
      )
    }
  }

  const findReleasable: EscrowStore['findReleasable'] = async (_db, leases, due) =>
    new Set(leases.filter(releasable(due)).map(({ id }) => id))

  const endAuthorisations: EscrowStore['endAuthorisations'] = async (_db, ended) => {
    for (const { authorisation, state, drawn } of ended) {
      replace(authorisation, (row) => (row.id === authorisation.id ? { ...row, state } : row))
      if (drawn) drawnBy.set(authorisation.id, drawn)
    }
  }

  const forgetOld: EscrowStore['forgetOld'] = async () => {}

  const store: EscrowStore = {
    lockSidecar,
    saveSidecar,
    ownsSidecar,
    noteReservation,
    findLeases,
    saveLeases,
    findRecalled,
    insertAuthorisations,
    takeEarlyTickets,
    addSessions,
    joinSessions,
    findShared,
    findContacts,
    prove,
    matchTickets,
    splitRuns,
    insertTicketed,
    insertEarlyTickets,
    takeOldEarlyTickets,
    // The tests of limits check the counts.
    correctCounts: async () => {},
    advanceClocks,
    forgetClocksAfter,
    findDueUsers,
    findDueAuthorisations,
    findReleasable,
    endAuthorisations,
    forgetOld,
  }
  return { store, tables }
}

function counts(clock: Date, due: DueSearch): boolean {
  const { from, to } = clockRange(due)
  return clock >= from && clock <= to
}

const latest = (a: Date | null, b: Date | null): Date | null =>
  a && b ? (a > b ? a : b) : (a ?? b)

const after = (instant: Date, seconds: number): Date =>
  new Date(instant.getTime() + seconds * 1_000)

const compare = (a: bigint | string, b: bigint | string): number => (a < b ? -1 : a > b ? 1 : 0)

const isEarlier = (a: PriorCall, b: PriorCall): boolean =>
  a.seconds < b.seconds || (a.seconds === b.seconds && a.nanos < b.nanos)
const comesFirst = (a: PriorCall, b: PriorCall): boolean =>
  a.sequence < b.sequence || (a.sequence === b.sequence && isEarlier(a, b))
const comesLast = (a: PriorCall, b: PriorCall): boolean =>
  a.sequence > b.sequence || (a.sequence === b.sequence && isEarlier(a, b))

const callsBefore = (rows: readonly StoredAuthorisation[], index: number): number =>
  rows.slice(0, index).reduce((sum, row) => sum + openCalls(row).length, 0)

type StoredRun = StoredAuthorisation & Required<Pick<StoredAuthorisation, 'run'>>

/** Returns a run without one of its numbers; null if that was the last. */
function settleNumber(row: StoredRun, number: bigint): StoredRun | null {
  const settled = { ...row, run: { ...row.run, open: removeNumbers(row.run.open, [number]) } }
  const calls = openCalls(settled)
  if (calls.length === 0) return null
  const bound = usdAttos(calls.reduce((sum: bigint, call) => sum + call.bound, 0n))
  return { ...settled, bound, isProven: row.isProven || number === row.sequence }
}

const isSameMoment = ({ signedMicros }: StoredAuthorisation, micros: bigint): boolean =>
  signedMicros === micros
const distance = ({ signedMicros }: StoredAuthorisation, micros: bigint): bigint =>
  signedMicros > micros ? signedMicros - micros : micros - signedMicros
const isNear = (row: StoredAuthorisation, micros: bigint): boolean =>
  row.isApproximate && distance(row, micros) <= approximateMicros

function ticketAt(tickets: SettlingTickets, position: number): TicketRow {
  const session = tickets.sessions[tickets.session[position] ?? -1]
  const cost = tickets.cost[position]
  if (!session || cost === undefined) throw new Error(`no ticket at ${position}`)
  return {
    ...session,
    sequence: BigInt(tickets.sequence[position] ?? 0),
    signedMicros: BigInt(tickets.signedMicros[position] ?? 0),
    cost,
  }
}

// Returns a sum for each ticket, which is a valid grouping, too.
function toSum(
  tickets: SettlingTickets,
  position: number,
  row: StoredAuthorisation & { readonly drawn: readonly CreditDebit[] | null },
): MatchSum {
  const { appId, userId, keyId, sessionId, sessionType, sidecarId, state, bound, authorisedAt } =
    row
  const { cost } = ticketAt(tickets, position)
  return {
    drawn: row.drawn ?? [],
    undrawn: usdAttos(state === 'charged' && row.drawn === null ? bound : 0n),
    appId,
    userId,
    keyId,
    sessionId,
    sessionType,
    sidecarId,
    state,
    count: 1,
    bound,
    cost,
    latestAt: authorisedAt,
    bookedThrough: authorisedAt,
  }
}
