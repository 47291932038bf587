import type { RecomputeInvoices } from '../../billing/invoices/recompute.ts'
import { type Db, type Pool, tx } from '../../lib/sql.ts'
import { toDifferences } from './differences.ts'
import {
  chargeDifferences,
  ownerChargeDifferences,
  entryDifferences,
  creditDifferences,
  balanceDifferences,
  heldCallDifferences,
} from './ledger-store.ts'
import { archivedMonths, beginSnapshot, countUsers } from '../store.ts'
import { forApps, userRanges } from '../ranges.ts'
import type { AppId } from '../../shared/ids.ts'
import type { PriceReads } from '../../plans/prices/chain.ts'
import type { AppRef, Check, Difference, DifferentRow } from '../types.ts'
import { rootDifferences } from '../receipts/differences.ts'
import { checkpointDifferences } from '../seal/seal.ts'
import { priceChainDifferences } from './prices.ts'
import { type ReplayDeps, replayDifferences } from './replay.ts'
import {
  invoiceDifferences,
  invoicedDifferences,
  numberDifferences,
  settledDifferences,
} from './invoice-store.ts'
import { orderDifferences, prorationDifferences } from './order-store.ts'
import { lineDifferences } from './invoices.ts'
import {
  attemptDifferences,
  feeDifferences,
  paymentDifferences,
  returnDifferences,
} from './payment-store.ts'
import {
  type RangeQuery,
  archiveDifferences,
  countEnvelopes,
  envelopeDifferences,
  hourDifferences,
  priceDifferences,
  sessionDifferences,
} from './ticket-store.ts'

export interface Progress {
  /** Empty for a check across all apps. */
  readonly clientId: string
  readonly usersChecked: number
  readonly usersTotal: number
  readonly differences: number
}

export interface VerifyListener {
  progress(progress: Progress): void
  difference(progress: Progress, difference: Difference): void
  done(progress: Progress): void
}

export interface VerifyOptions {
  /** One app; all if undefined. */
  readonly clientId: string | undefined
  readonly signal: AbortSignal
  readonly listener: VerifyListener
}

/** More differences do not help an operator: so many have one cause. */
const maxDifferences = 1_000

const appChecks: readonly (readonly [Check, (db: Db, app: AppId) => Promise<DifferentRow[]>])[] = [
  ['archives', archiveDifferences],
  ['checkpoints', checkpointDifferences],
  ['invoices', numberDifferences],
]

const userChecks: readonly (readonly [
  Check,
  (db: Db, query: RangeQuery) => Promise<DifferentRow[]>,
])[] = [
  ['usage_hourly', hourDifferences],
  ['ticket_sessions', sessionDifferences],
  ['charges', chargeDifferences],
  ['ledger_entries', entryDifferences],
  ['balances', balanceDifferences],
  ['authorisations', heldCallDifferences],
  ['grants', creditDifferences],
  ['payments', paymentDifferences],
  ['payments', returnDifferences],
  ['payments', attemptDifferences],
  ['payments', orderDifferences],
  ['payments', prorationDifferences],
  ['invoices', invoiceDifferences],
  ['invoices', settledDifferences],
  ['invoices', invoicedDifferences],
  ['prices', priceDifferences],
  ['envelopes', envelopeDifferences],
]

/**
 * Recomputes the books from tickets and ledger entries. Only reads, each app in one snapshot, while
 * the service runs.
 */
export function createVerify({
  pool,
  prices,
  recomputeInvoices,
  ...replay
}: { pool: Pool; prices: PriceReads; recomputeInvoices: RecomputeInvoices } & ReplayDeps) {
  // Each app holds a connection until it is done; the service needs the others.
  const parallel = Math.max(1, Math.min(4, Math.floor((pool.options.max ?? 2) / 4)))

  /** Reports each difference to the listener. Throws NOT_FOUND for an unknown app. */
  async function verify({ clientId, signal, listener }: VerifyOptions): Promise<void> {
    await forApps(pool, { clientId, parallel, signal }, (app) => verifyApp(app, signal, listener))
    if (clientId === undefined && !signal.aborted) await verifyEnvelopes(listener)
  }

  async function verifyApp(
    app: AppRef,
    signal: AbortSignal,
    listener: VerifyListener,
  ): Promise<void> {
    await tx(pool, async (db) => {
      await beginSnapshot(db)
      const archived = await archivedMonths(db, app.id)
      const state = {
        clientId: app.clientId,
        usersChecked: 0,
        usersTotal: await countUsers(db, app.id),
        differences: 0,
      }
      for (const [check, differences] of appChecks)
        report(state, listener, { check, rows: await differences(db, app.id) })
      const roots = await rootDifferences(db, { app, hasArchives: archived.length > 0, signal })
      report(state, listener, { check: 'receipts', rows: roots })
      const ownerCharges = await ownerChargeDifferences(db, app.id, maxDifferences)
      report(state, listener, { check: 'owner_charges', rows: ownerCharges })
      const fees = await feeDifferences(db, app.id, maxDifferences)
      report(state, listener, { check: 'payments', rows: fees })
      for await (const row of priceChainDifferences(db, app.id, prices))
        report(state, listener, { check: 'price_chain', rows: [row] })
      for await (const range of userRanges(db, app.id)) {
        for (const [check, differences] of userChecks) {
          if (signal.aborted) return
          const limit = maxDifferences - state.differences
          if (limit > 0)
            report(state, listener, {
              check,
              rows: await differences(db, { ...range, archived, limit }),
            })
        }
        for await (const { check, row } of recomputed(db, range)) {
          report(state, listener, { check, rows: [row] })
          if (state.differences >= maxDifferences || signal.aborted) break
        }
        state.usersChecked += range.users
        if (state.differences >= maxDifferences) break
        listener.progress({ ...state })
      }
      listener.done({ ...state })
    })
  }

  /** Yields what differs after invoices and ledgers are computed again. */
  async function* recomputed(db: Db, range: Parameters<typeof replayDifferences>[1]) {
    for await (const row of lineDifferences(db, range, recomputeInvoices))
      yield { check: 'invoices', row } as const
    yield* replayDifferences(db, range, replay)
  }

  /** Envelopes do not name their app, so they are counted over all apps. */
  async function verifyEnvelopes(listener: VerifyListener): Promise<void> {
    const { envelopes, tickets } = await tx(pool, async (db) => {
      await beginSnapshot(db)
      return countEnvelopes(db)
    })
    const state = { clientId: '', usersChecked: 0, usersTotal: 0, differences: 0 }
    const counted = { stored: { count: String(envelopes) }, expected: { count: String(tickets) } }
    report(state, listener, {
      check: 'envelopes',
      rows: [{ userId: null, externalUserId: null, key: {}, ...counted }],
    })
    listener.done(state)
  }

  return { verify }
}

export type Verify = ReturnType<typeof createVerify>

type State = { -readonly [Field in keyof Progress]: Progress[Field] }

function report(
  state: State,
  listener: VerifyListener,
  { check, rows }: { check: Check; rows: readonly DifferentRow[] },
): void {
  for (const difference of rows.flatMap((row) => toDifferences(check, row))) {
    if (state.differences >= maxDifferences) return
    state.differences += 1
    listener.difference({ ...state }, difference)
  }
}
