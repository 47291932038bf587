import type { Log } from '../../core/lib/log.ts'
import type { SidecarProcess } from '../../proto/gen/ts-proto/tollgate/balances/v1/escrow.ts'
import { type Gather, gatherInFlight, gatherUntilQuiet } from '../core/batcher.ts'
import type { Versions } from '../cache/cached-state.ts'
import { createAccounts } from './accounts.ts'
import { createBounds, noRate } from './bounds.ts'
import type { EscrowCore } from '../core/escrow.ts'
import { type Leases, createLeases } from './leases.ts'
import { type Clocks, createLeaseClock } from './open-leases.ts'
import { type OfflineBudget, createOfflineBudget } from './offline.ts'
import { type Reports, createReports } from './reports.ts'
import { createReservations } from './reservations.ts'
import { type SessionMemory, createSessionMemory } from './session-calls.ts'

/** Money is in nano-dollars. */
export interface EscrowSettings {
  readonly ttlSeconds: number
  /** Assumed cost of a call without a type or price; null to refuse it. */
  readonly untyped: number | null
  /** Budgets while core is unavailable: per user, and in total. */
  readonly offlineUserBudget: number
  readonly offlineBudget: number
  readonly maxEntries: number
}

export interface EscrowOptions {
  readonly core: EscrowCore
  readonly process: SidecarProcess
  readonly versions: Versions
  readonly settings: EscrowSettings
  readonly clocks: Clocks
  readonly log: Log
  /** How Lend and Reserve batch the calls of many users; a simulation provides its own. */
  readonly gather?: { readonly lend: Gather; readonly reserve: Gather }
}

/**
 * The sidecar's side of the escrow (docs/escrow.md): it spends only money that core has lent. It
 * has no timers: its owner must call `reports.flush`, `reports.heartbeat`, `leases.renewDue` and
 * `leases.returnIdle` periodically.
 */
export function createEscrow(options: EscrowOptions) {
  const { core, process, versions, settings, clocks, log } = options
  const mono = createLeaseClock(clocks)
  const { sleep } = clocks
  const gather = options.gather ?? { lend: gatherUntilQuiet, reserve: gatherInFlight }
  const rate = noRate()
  const max = settings.maxEntries
  const accounts = createAccounts({ versions, ttlSeconds: settings.ttlSeconds, max, mono })
  const reports = createReports({ core, process, mono, ageMono: clocks.mono, log })
  const shared = { core, process, accounts, versions, reports, mono }
  const refreshMs = settings.ttlSeconds * 750
  const leases = createLeases({ ...shared, rate, refreshMs, gather: gather.lend })
  const reservations = createReservations({ ...shared, sleep, gather: gather.reserve })
  const memory = createSessionMemory({ max })
  const bounds = createBounds({
    memory,
    rate,
    untyped: settings.untyped,
    msSinceLastContact: reports.msSinceLastContact,
  })
  const offline = createOfflineBudget({
    userBudget: settings.offlineUserBudget,
    budget: settings.offlineBudget,
  })
  wireReportListener({ reports, leases, memory, offline })

  /** Returns all leases, sends all reports and frees the sidecar's id. */
  async function stop(): Promise<void> {
    leases.giveBackAll()
    await reports.stop()
  }

  return {
    core,
    process,
    accounts,
    leases,
    reservations,
    reports,
    memory,
    bounds,
    rate,
    offline,
    clocks: { ...clocks, mono },
    stop,
  }
}

export type Escrow = ReturnType<typeof createEscrow>

/** Forwards core's answers to reports to the parts that need them. */
const wireReportListener = ({
  reports,
  leases,
  memory,
  offline,
}: {
  readonly reports: Reports
  readonly leases: Leases
  readonly memory: SessionMemory
  readonly offline: OfflineBudget
}): void =>
  reports.listen({
    onRate: leases.setRate,
    onRecalled: leases.recall,
    onShared: (id) => {
      if (!memory.isShared(id)) reports.takeSession(id)
      memory.share(id)
    },
    onConflict: leases.giveBackAll,
    onReconciled: offline.reset,
  })
