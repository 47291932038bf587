import type { UserKey } from '../../../../core/shared/ids.ts'
import type { CreditDebit } from '../../../../core/balances/accounts/chain.ts'
import { usdAttos } from '../../../../core/lib/money.ts'
import { idleSince } from '../../../../core/balances/escrow/due.ts'
import { earlySeconds } from '../../../../core/balances/escrow/stores/due-store.ts'
import { toEarlyMatch } from '../../../../core/balances/escrow/stores/early-ticket-store.ts'
import { matchEarlyTickets } from '../../../../core/balances/escrow/matching.ts'
import type {
  DueSearch,
  EscrowStore,
  Lease,
  MatchSum,
  StoredAuthorisation,
} from '../../../../core/balances/escrow/port.ts'
import { includesNumber } from '../../../../core/balances/escrow/reports/number-ranges.ts'
import { openCalls } from '../../../../core/balances/escrow/reports/runs.ts'
import type { SettlingStep, SettlingTickets } from '../../../../core/metering/ingest/charges.ts'
import type { MemoryDatabase } from './memory-database.ts'
import {
  type EarlyTicket,
  type TicketRow,
  counts,
  latest,
  after,
  compare,
  callsBefore,
  type StoredRun,
  settleNumber,
  isSameMoment,
  distance,
  isNear,
  ticketAt,
  toSum,
} from './memory-rows.ts'
import { type EscrowTables, createMemorySidecars } from './memory-sidecars.ts'

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
  const sidecars = createMemorySidecars(tables, database)
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
    ...sidecars,
    findLeases,
    saveLeases,
    findRecalled,
    insertAuthorisations,
    takeEarlyTickets,
    prove,
    matchTickets,
    splitRuns,
    insertTicketed,
    insertEarlyTickets,
    takeOldEarlyTickets,
    // The tests of limits check the counts.
    correctCounts: async () => {},
    findDueUsers,
    findDueAuthorisations,
    findReleasable,
    endAuthorisations,
    forgetOld,
  }
  return { store, tables }
}
