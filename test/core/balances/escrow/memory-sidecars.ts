import { latestPlausible } from '../../../../core/balances/escrow/due.ts'
import type {
  BegunSession,
  EscrowStore,
  Lease,
  SidecarProcess,
  StoredAuthorisation,
} from '../../../../core/balances/escrow/port.ts'
import { sumSessions } from '../../../../core/balances/escrow/session-sums.ts'
import type { MemoryDatabase } from './memory-database.ts'
import {
  type SidecarRow,
  type EarlyTicket,
  type SessionRow,
  latest,
  comesFirst,
  comesLast,
} from './memory-rows.ts'

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

/** Sidecars and sessions in memory. */
export function createMemorySidecars(tables: EscrowTables, database: MemoryDatabase) {
  const { set } = database

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

  const findContacts: EscrowStore['findContacts'] = async (_db, instances) =>
    new Map(
      [...tables.sidecars.values()].flatMap((row) =>
        instances.includes(row.instance) ? [[row.instance, row] as const] : [],
      ),
    )

  const advanceClocks: EscrowStore['advanceClocks'] = async (_db, clocks) => {
    for (const [sidecarId, at] of clocks)
      set(tables.clocks, sidecarId, latest(tables.clocks.get(sidecarId) ?? null, at) ?? at)
  }

  const forgetClocksAfter: EscrowStore['forgetClocksAfter'] = async (_db, late) => {
    for (const [sidecarId, at] of tables.clocks)
      if (at > late) set(tables.clocks, sidecarId, undefined)
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

  return {
    lockSidecar,
    saveSidecar,
    ownsSidecar,
    noteReservation,
    findContacts,
    advanceClocks,
    forgetClocksAfter,
    addSessions,
    joinSessions,
    findShared,
  }
}
