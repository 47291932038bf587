import type { Log } from '../../core/lib/log.ts'
import type { SidecarProcess } from '../../proto/gen/ts-proto/tollgate/allowances/v1/escrow.ts'
import { type Gather, gatherInFlight, gatherUntilQuiet } from '../batcher.ts'
import type { Versions } from '../identity/cached-state.ts'
import { createAccounts } from './accounts.ts'
import { type CurrentRate, createBounds } from './bounds.ts'
import type { Clocks, EscrowCore } from './escrow-core.ts'
import { createLeases } from './leases.ts'
import { createOfflineBudget } from './offline.ts'
import { createReports } from './reports.ts'
import { createReservations } from './reservations.ts'
import { createSessionMemory } from './session-calls.ts'

/** Money is nano-dollars. */
export interface EscrowSettings {
  readonly ttlSeconds: number
  /** What a call without a type or price is taken to cost; null to refuse it. */
  readonly untyped: number | null
  /** While core is away: for one user, and for all. */
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
  /** How Lend and Reserve gather calls of many users; a simulation gives its own. */
  readonly gather?: { readonly lend: Gather; readonly reserve: Gather }
}

/**
 * The sidecar's side of the escrow (docs/escrow.md): it spends only what it was lent. Nothing in it
 * has a timer: its owner calls `reports.flush`, `reports.heartbeat`, `leases.renewDue` and
 * `leases.returnIdle` again and again.
 */
export function createEscrow(options: EscrowOptions) {
  const { core, process, versions, settings, clocks, log } = options
  const { mono, sleep } = clocks
  const gather = options.gather ?? { lend: gatherUntilQuiet, reserve: gatherInFlight }
  const rate: CurrentRate = { nanosPerWei: null }
  const max = settings.maxEntries
  const accounts = createAccounts({ versions, ttlSeconds: settings.ttlSeconds, max, mono })
  const reports = createReports({ core, process, mono, log })
  const shared = { core, process, accounts, versions, reports, mono }
  const refreshMs = settings.ttlSeconds * 750
  const leases = createLeases({ ...shared, rate, refreshMs, gather: gather.lend })
  const reservations = createReservations({ ...shared, sleep, gather: gather.reserve })
  const memory = createSessionMemory({ max })
  const bounds = createBounds({ memory, rate, untyped: settings.untyped })
  const offline = createOfflineBudget({
    userBudget: settings.offlineUserBudget,
    budget: settings.offlineBudget,
  })
  reports.listen({
    onRate: leases.setRate,
    onRecalled: leases.recall,
    onConflict: leases.giveBackAll,
    onReconciled: offline.reset,
  })

  /** Returns all leases, reports everything and frees the sidecar's id. */
  async function stop(): Promise<void> {
    leases.giveBackAll()
    await reports.stop()
  }

  return {
    core,
    accounts,
    leases,
    reservations,
    reports,
    memory,
    bounds,
    rate,
    offline,
    clocks,
    stop,
  }
}

export type Escrow = ReturnType<typeof createEscrow>
