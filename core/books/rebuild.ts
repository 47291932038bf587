import { DomainError } from '../../proto/errors.ts'
import { type Db, type Pool, tx } from '../lib/sql.ts'
import type { Now } from '../lib/time.ts'
import type { AppId } from '../shared/ids.ts'
import { balanceDifferences, chargeDifferences, entryDifferences } from './verify/ledger-store.ts'
import { type ReplayDeps, replayDifferences } from './verify/replay.ts'
import { archivedMonths, beginSnapshot, countUsers, holdArchive } from './store.ts'
import { forApps, userRanges } from './ranges.ts'
import type { Ledger } from '../balances/ledger/ledger.ts'
import type { TicketRecords } from '../metering/records.ts'
import type { AppRef, DifferentRow, UserRange } from './types.ts'
import {
  type RangeQuery,
  envelopeDifferences,
  hourDifferences,
  priceDifferences,
  sessionDifferences,
} from './verify/ticket-store.ts'

/** Number of rows that differed, by table. */
export type RebuiltRows = Readonly<Record<'usage_hourly' | 'ticket_sessions' | 'balances', number>>

export interface RebuildProgress {
  readonly clientId: string
  readonly usersDone: number
  readonly usersTotal: number
  readonly rows: RebuiltRows
}

export interface RebuildOptions {
  /** One app; all if undefined. */
  readonly clientId: string | undefined
  /** Only counts differences. */
  readonly dryRun: boolean
  readonly signal: AbortSignal
  readonly report: (kind: 'progress' | 'done', progress: RebuildProgress) => void
}

export interface RebuildDeps extends ReplayDeps {
  readonly pool: Pool
  readonly now: Now
  readonly ticketRecords: Pick<TicketRecords, 'rebuildHours' | 'rebuildSessions'>
  readonly rebuildBalance: Ledger['rebuildBalance']
}

interface UserOfApp {
  readonly appId: AppId
  readonly userId: string
}

interface Table {
  readonly name: keyof RebuiltRows
  readonly differences: (db: Db, query: RangeQuery) => Promise<DifferentRow[]>
  readonly repair: (db: Db, user: UserOfApp, rows: readonly DifferentRow[]) => Promise<void>
}

const rowsAtOnce = 1_000
/** Rows that one transaction repairs, all of the same user, so that locks are short. */
const rowsPerTransaction = 100
const checkViolation = '23514'
const deadlock = '40P01'
const tries = 5

/**
 * Recomputes derived rows: hours and sessions from tickets, balances from ledger entries. Ingest
 * may run at the same time. Skips months with archived tickets. Never changes entries or tickets,
 * and skips users with a damaged ledger or damaged tickets, because rows derived from damage would
 * hide it.
 */
export function createRebuild(deps: RebuildDeps) {
  const { pool, now, ticketRecords, rebuildBalance } = deps
  const tables: readonly Table[] = [
    {
      name: 'usage_hourly',
      differences: hourDifferences,
      repair: (db, user, rows) =>
        ticketRecords.rebuildHours(
          db,
          user,
          rows.map(({ key }) => ({
            hour: key['hour'] ?? '',
            pipeline: key['pipeline'] ?? '',
            modelId: key['model_id'] ?? '',
          })),
        ),
    },
    {
      name: 'ticket_sessions',
      differences: sessionDifferences,
      repair: (db, user, rows) =>
        ticketRecords.rebuildSessions(
          db,
          user,
          rows.map(({ key }) => key['session_id'] ?? ''),
        ),
    },
    {
      name: 'balances',
      differences: balanceDifferences,
      repair: (db, user) => rebuildBalance(db, user, now()),
    },
  ]

  /**
   * Throws NOT_FOUND for an unknown app. Handles one app at a time: repairs are rare and need not
   * be fast.
   */
  async function rebuild({ clientId, dryRun, signal, report }: RebuildOptions): Promise<void> {
    await forApps(pool, { clientId, parallel: 1, signal }, async (app) => {
      const rows = { usage_hourly: 0, ticket_sessions: 0, balances: 0 }
      const damaged = new Set<string>()
      const progress = {
        clientId: app.clientId,
        usersDone: 0,
        usersTotal: await countUsers(pool, app.id),
        rows,
      }
      for await (const range of userRanges(pool, app.id)) {
        const faults = await tx(pool, async (db) => {
          await beginSnapshot(db)
          return faultsOf(db, range, deps)
        })
        for (const user of faults.damaged) damaged.add(user)
        for (const table of tables) {
          if (signal.aborted) return
          rows[table.name] += await rebuildRange(app, { table, range, dryRun, faults })
        }
        progress.usersDone += range.users
        report('progress', progress)
      }
      report('done', progress)
      if (damaged.size > 0) throw refusal(app, damaged)
    })
  }

  interface Part {
    readonly table: Table
    readonly range: UserRange
    readonly dryRun: boolean
    readonly faults: Faults
  }

  async function rebuildRange(
    app: AppRef,
    { table, range, dryRun, faults }: Part,
  ): Promise<number> {
    let wallets = table.name === 'balances' ? faults.wallets : []
    let count = 0
    for (;;) {
      const { different, archived } = await tx(pool, async (db) => {
        await holdArchive(db)
        const months = await archivedMonths(db, app.id)
        return {
          different: await table.differences(db, { ...range, archived: months, limit: rowsAtOnce }),
          archived: months,
        }
      })
      const sound = different.filter(({ userId }) => userId === null || !faults.damaged.has(userId))
      const known = new Set(sound.map(({ userId }) => userId))
      const rows = [...sound, ...wallets.filter(({ userId }) => !known.has(userId))]
      if (rows.length === 0) return count
      const repaired = dryRun || (await repair(app, { table, rows, archived }))
      if (repaired) [count, wallets] = [count + rows.length, []]
      if (repaired && (dryRun || different.length < rowsAtOnce)) return count
    }
  }

  interface Repair {
    readonly table: Table
    readonly rows: readonly DifferentRow[]
    readonly archived: readonly string[]
  }

  /**
   * Returns false if a month was archived since the comparison, because the rows may be right
   * without its tickets.
   */
  async function repair(app: AppRef, { table, rows, archived }: Repair): Promise<boolean> {
    for (const [userId, all] of Map.groupBy(rows, (row) => row.userId)) {
      if (userId === null) continue
      for (let i = 0; i < all.length; i += rowsPerTransaction) {
        const repaired = await refusingContradictions(userId, () =>
          tx(pool, async (db) => {
            await holdArchive(db)
            if ((await archivedMonths(db, app.id)).join() !== archived.join()) return false
            await table.repair(db, { appId: app.id, userId }, all.slice(i, i + rowsPerTransaction))
            return true
          }),
        )
        if (!repaired) return false
      }
    }
    return true
  }

  return { rebuild }
}

/** Users in a range that a rebuild must skip, and credits and balances that it can repair. */
interface Faults {
  readonly damaged: ReadonlySet<string>
  readonly wallets: readonly DifferentRow[]
}

const derivedColumns: Readonly<Record<string, readonly string[]>> = {
  grants: ['remaining_attos', 'expired_at'],
  balances: [
    'period_start',
    'period_end',
    'period_counts_from',
    'period_consumed_attos',
    'head_hash',
    'booked_through',
  ],
}

async function faultsOf(db: Db, range: UserRange, deps: ReplayDeps): Promise<Faults> {
  const query = { ...range, archived: [], limit: rowsAtOnce }
  const damage = [
    await chargeDifferences(db, query),
    await entryDifferences(db, query),
    await priceDifferences(db, query),
    await envelopeDifferences(db, query),
  ].flat()
  const wallets: DifferentRow[] = []
  for await (const { check, row } of replayDifferences(db, range, deps)) {
    const isDerived = Object.keys(row.stored ?? {}).every((column) =>
      derivedColumns[check]?.includes(column),
    )
    ;(isDerived ? wallets : damage).push(row)
  }
  const damaged = new Set(damage.flatMap(({ userId }) => userId ?? []))
  const repairable = wallets.filter(({ userId }) => userId !== null && !damaged.has(userId))
  const byUser = new Map(repairable.map((row) => [row.userId, row]))
  return { damaged, wallets: [...byUser.values()] }
}

const namesAtMost = 5

const refusal = ({ clientId }: AppRef, damaged: ReadonlySet<string>): DomainError =>
  new DomainError(
    'CONFLICT',
    `the ledger or the tickets of ${damaged.size} users of ${clientId} are damaged and were not rebuilt ` +
      `(${[...damaged].slice(0, namesAtMost).join(', ')}); tollgate verify shows the damage`,
  )

export type Rebuild = ReturnType<typeof createRebuild>

/**
 * Retries after a deadlock. Throws CONFLICT when the recomputed row violates a check of its table:
 * then the log itself is wrong, and a rebuild cannot repair it.
 */
async function refusingContradictions<T>(userId: string, work: () => Promise<T>): Promise<T> {
  for (let tried = 1; ; tried++) {
    try {
      return await work()
    } catch (error) {
      const code = error instanceof Error && 'code' in error ? error.code : null
      if (code === deadlock && tried < tries) continue
      if (code !== checkViolation) throw error
      throw new DomainError(
        'CONFLICT',
        `the log of user ${userId} contradicts itself; tollgate verify shows the damage`,
        { cause: error },
      )
    }
  }
}
