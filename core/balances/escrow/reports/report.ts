import { type UsdAttos, usdAttos } from '../../../lib/money.ts'
import type { Db } from '../../../lib/sql.ts'
import { addSeconds } from '../../../lib/time.ts'
import { networkCost } from '../../exposure/exposure.ts'
import { type EscrowDeps, type FindAccount, type Locking, notOwner } from '../locking.ts'
import type { Leases } from '../leases.ts'
import type { SidecarProcess } from '../port.ts'
import { type Progress, toContact } from './contact.ts'
import {
  type Entry,
  type RefusedCall,
  type ReportedCalls,
  type ReturnedLease,
  toAuthorisation,
  bookedThrough,
  isLate,
  firstSequence,
  moveBound,
  toReportedChange,
  takeBack,
  withoutEarly,
} from './reporting.ts'

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
 * Longer than a transaction that joins a session. After this time, the list of shared sessions
 * includes it.
 */
const joiningSeconds = 15
/** A process that has not learnt for this long that a session is shared has no lease any more. */
const sharedSeconds = 600

/** Takes the reports of sidecars. */
export function createReports({ store, lock, prove }: EscrowDeps & Locking) {
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
      leases.list(userId).find(({ id }) => id === leaseId)?.retailRatio
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

  return { report }
}

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
