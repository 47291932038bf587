import type { RecomputeInvoices } from '../billing/invoices/recompute.ts'
import type { Ledger } from '../balances/ledger/ledger.ts'
import type { SigningLimits } from '../metering/events/parse.ts'
import type { ManualIngest, conflictOnPoison } from '../metering/ingest/manual-ingest.ts'
import type { ReadRates } from '../metering/rating/port.ts'
import type { TicketRecords } from '../metering/records.ts'
import { type Loop, startLoop } from '../lib/loop.ts'
import type { UsdAttos } from '../lib/money.ts'
import type { PriceReads } from '../plans/prices/chain.ts'
import type { TokensApi } from '../tokens/module.ts'
import type { Shared } from '../shared/shared.ts'
import { createChecks } from './checks/checks.ts'
import { createChecksRpc } from './checks/rpc.ts'
import { type CheckParts, createRuns } from './checks/runs.ts'
import { createArchive } from './transfer/archive.ts'
import type { BooksConfig } from './config.ts'
import { createExport } from './transfer/export.ts'
import { createImport } from './transfer/import.ts'
import { createBooksMetrics } from './metrics.ts'
import { createPriceWatch } from './price-watch.ts'
import { createRebuild } from './rebuild.ts'
import { createRoots } from './receipts/roots.ts'
import { createBooksRpc } from './rpc.ts'
import { createSeal } from './seal/seal.ts'
import type { ListMoves } from './verify/clocks.ts'
import type { SalesDeps } from './verify/sales.ts'
import { createVerify } from './verify/verify.ts'

export interface BooksDeps extends Pick<
  Shared,
  'pool' | 'now' | 'log' | 'metrics' | 'invalidations'
> {
  readonly config: BooksConfig
  readonly manualIngest: ManualIngest
  readonly signingLimits: SigningLimits
  readonly conflictOnPoison: typeof conflictOnPoison
  readonly ticketRecords: TicketRecords
  readonly rebuildBalance: Ledger['rebuildBalance']
  readonly createReplay: Ledger['createReplay']
  readonly recomputeInvoices: RecomputeInvoices
  /** Smaller debts are not invoiced. */
  readonly minimumCharge: UsdAttos
  readonly readRates: ReadRates
  readonly listCuts: SalesDeps['listCuts']
  readonly issuer: string
  readonly signStatement: TokensApi['signStatement']
  readonly listMoves: ListMoves
  readonly prices: PriceReads
  readonly backend: CheckParts['backend']
  readonly processorReconciliation: CheckParts['processorReconciliation']
}

const archivePauseMs = 3_600_000
const sealPauseMs = 3_600_000
const rootsPauseMs = 600_000
const pricesPauseMs = 600_000

/** Operator functions of the books: verify and rebuild them; export, import and archive tickets. */
export function createBooks(deps: BooksDeps) {
  const { pool, now, log, metrics, config, ticketRecords, rebuildBalance } = deps
  const { restoreTickets, truncateMonth } = ticketRecords
  const tickets = {
    ...createExport({ pool }),
    ...createImport({ ...deps, restoreTickets }),
  }
  const archive = createArchive({ ...deps, pages: tickets.pages, truncateMonth })
  const seal = createSeal({ pool, now, log })
  const roots = createRoots(deps)
  const { unbuiltSince } = roots
  const watch = createPriceWatch(deps)
  const { differences: priceDifferences } = watch
  const { unsealedSince } = seal
  createBooksMetrics(metrics, { unsealedSince, unbuiltSince, priceDifferences, now })
  let archiving: Loop | null = null
  let sealing: Loop | null = null
  let building: Loop | null = null
  let watching: Loop | null = null

  /**
   * Starts the loops: seal the books every hour, build daily roots, compare prices with their
   * chain, and archive months by RETENTION_MONTHS.
   */
  function start(): void {
    building = startLoop({ name: 'roots', log, metrics, pauseMs: rootsPauseMs, round: roots.build })
    watching = startLoop({
      name: 'prices',
      log,
      metrics,
      pauseMs: pricesPauseMs,
      round: watch.check,
    })
    sealing = startLoop({
      name: 'seal',
      log,
      metrics,
      pauseMs: sealPauseMs,
      delayed: true,
      round: (signal) => seal.seal(undefined, signal),
    })
    if (config.retentionMonths === 0) return
    archiving = startLoop({
      name: 'archive',
      log,
      metrics,
      pauseMs: archivePauseMs,
      delayed: true,
      round: (signal) => archive.run({ dryRun: false, signal, report: () => {} }),
    })
  }

  const stop = async (): Promise<void> => {
    const loops = [archiving, sealing, building, watching]
    await Promise.all([checks.stop(), ...loops.map((loop) => loop?.stop())])
  }

  const { hashTickets, toPrices } = ticketRecords
  const sales = { readRates: deps.readRates, listCuts: deps.listCuts, toPrices }
  const replay = { createReplay: deps.createReplay, hashTickets, listMoves: deps.listMoves, sales }
  const { prices, recomputeInvoices } = deps
  const verify = createVerify({ pool, prices, recomputeInvoices, ...replay })
  const rebuild = createRebuild({ pool, now, ticketRecords, rebuildBalance, ...replay })
  const checks = createChecks({ pool, now, log, checks: createRuns({ ...deps, verify }) })
  return {
    ...createBooksRpc({ verify, rebuild, seal, tickets, archive }),
    ...createChecksRpc({ checks }),
    // Cut before the first ticket is booked.
    prepare: roots.cut,
    start,
    stop,
  }
}
