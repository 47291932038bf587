import { randomUUID } from 'node:crypto'
import { mkdir, open, rename, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { DomainError } from '../../../proto/errors.ts'
import { appId } from '../../shared/ids.ts'
import type { UsdAttos } from '../../lib/money.ts'
import { tx } from '../../lib/sql.ts'
import { addSeconds } from '../../lib/time.ts'
import type { TicketRecords } from '../../metering/records.ts'
import type { Shared } from '../../shared/shared.ts'
import * as store from './archive-store.ts'
import type { BooksConfig } from '../config.ts'
import type { TicketExport } from './export.ts'
import { allowLongStatements } from '../store.ts'
import { type FileSums, checkTicketFile, readTicketFile, writeTicketFile } from './ticket-file.ts'
import { parseTicketLine } from './ticket-line.ts'

export interface ArchiveDeps extends Pick<Shared, 'pool' | 'now' | 'log'> {
  readonly config: BooksConfig
  readonly pages: TicketExport['pages']
  readonly truncateMonth: TicketRecords['truncateMonth']
  readonly minimumCharge: UsdAttos
}

/** Result of an archive run for an app's tickets of a month. */
export interface ArchiveStep {
  /** `due`: would be archived. `waits`: cannot be archived yet, for the reason in `detail`. */
  readonly kind: 'due' | 'archived' | 'waits'
  readonly month: string
  readonly clientId: string
  readonly tickets: bigint
  readonly file: string
  readonly sha256: string
  readonly detail: string
}

interface Written {
  readonly sums: store.MonthSums
  readonly part: string
  readonly file: FileSums
}

/** Time for which a restored month stays in the database. */
const restoredSeconds = 30 * 86_400

/**
 * Writes past months to files and removes their tickets. Removes a month only after reading back
 * its files, and only if the files match its number of tickets and its sums of money. That
 * comparison holds a lock that blocks new tickets.
 */
export function createArchive(deps: ArchiveDeps) {
  const { pool, now, log, config, pages, truncateMonth, minimumCharge } = deps
  const { retentionMonths, archiveDir } = config

  /** Throws CONFLICT when no retention is set. */
  async function run({
    dryRun,
    signal,
    report,
  }: {
    dryRun: boolean
    signal: AbortSignal
    report: (step: ArchiveStep) => void
  }): Promise<void> {
    if (archiveDir === null || retentionMonths === 0)
      throw new DomainError('CONFLICT', 'RETENTION_MONTHS is 0: every month is kept')
    const at = now()
    const before = new Date(Date.UTC(at.getUTCFullYear(), at.getUTCMonth() - retentionMonths, 1))
    for (const month of await store.monthsToArchive(pool, {
      before,
      restoredBefore: addSeconds(at, -restoredSeconds),
    })) {
      if (signal.aborted) return
      const sums = await sumsOf(month)
      const detail = reasonToWait(sums)
      if (detail !== null) reportAll(sums, { kind: 'waits', month, detail })
      else if (dryRun) reportAll(sums, { kind: 'due', month, detail: '' })
      else if (sums.length > 0) await archiveMonth(archiveDir, { month, sums, report })
    }

    function reportAll(
      apps: readonly store.MonthSums[],
      step: Pick<ArchiveStep, 'kind' | 'month' | 'detail'>,
    ): void {
      for (const { clientId, tickets } of apps)
        report({ ...step, clientId, tickets, file: '', sha256: '' })
    }
  }

  const sumsOf = (month: string): Promise<store.MonthSums[]> =>
    tx(pool, async (db) => {
      await allowLongStatements(db)
      return store.monthSums(db, spanOf(month), minimumCharge)
    })

  interface Month {
    readonly month: string
    readonly sums: readonly store.MonthSums[]
    readonly report: (step: ArchiveStep) => void
  }

  async function archiveMonth(dir: string, { month, sums, report }: Month): Promise<void> {
    await mkdir(dir, { recursive: true, mode: 0o700 })
    const written: Written[] = []
    try {
      for (const app of sums) written.push(await writeApp(dir, { month, app }))
      for (const step of await drop(dir, { month, written })) {
        log.info({ ...step, tickets: String(step.tickets) }, 'tickets archived')
        report(step)
      }
    } finally {
      for (const { part } of written) await rm(part, { force: true })
    }
  }

  async function writeApp(
    dir: string,
    { month, app }: { month: string; app: store.MonthSums },
  ): Promise<Written> {
    const span = spanOf(month)
    const part = join(dir, `.${app.clientId}.${month}.${randomUUID()}.part`)
    const manifest = {
      format: 'tollgate-tickets',
      version: 2,
      clientId: app.clientId,
      from: span.from.toISOString(),
      to: span.to.toISOString(),
      exportedAt: now().toISOString(),
    } as const
    try {
      await writeTicketFile(part, manifest, {
        name: 'archive.zst',
        chunks: pages({ appId: appId(app.appId), ...span }),
      })
      return { sums: app, part, file: await readBack(part, app) }
    } catch (error) {
      await rm(part, { force: true })
      throw error
    }
  }

  /** Names the files, records them and removes the tickets, all or nothing. */
  async function drop(
    dir: string,
    { month, written }: { month: string; written: readonly Written[] },
  ): Promise<ArchiveStep[]> {
    return tx(pool, async (db) => {
      await allowLongStatements(db)
      await store.lockMonth(db, month)
      refuseChanged(await store.monthSums(db, spanOf(month), minimumCharge), written)
      const steps: ArchiveStep[] = []
      for (const { sums, part, file } of written) {
        const number = await store.nextPart(db, sums.appId, month)
        const name = `${sums.clientId}.${month}.${number}.ndjson.zst`
        await store.insertArchive(db, {
          sums,
          month,
          part: number,
          file: name,
          sha256: file.sha256,
          at: now(),
        })
        await rename(part, join(dir, name))
        steps.push({
          kind: 'archived',
          month,
          clientId: sums.clientId,
          tickets: sums.tickets,
          file: join(dir, name),
          sha256: file.sha256,
          detail: '',
        })
      }
      await syncFolder(dir)
      await truncateMonth(db, month)
      return steps
    })
  }

  return { run }
}

export type Archive = ReturnType<typeof createArchive>

function spanOf(month: string): { from: Date; to: Date } {
  const [year, index] = [Number(month.slice(0, 4)), Number(month.slice(5)) - 1]
  return { from: new Date(Date.UTC(year, index, 1)), to: new Date(Date.UTC(year, index + 1, 1)) }
}

/** Reads back a written file, as an import would, and compares its sums. */
async function readBack(path: string, app: store.MonthSums): Promise<FileSums> {
  const { sums } = await checkTicketFile(path)
  let [fee, cost, markup, platformFee, platformWei] = [0n, 0n, 0n, 0n, 0n]
  for await (const chunk of readTicketFile(path)) {
    if ('format' in chunk) continue
    for (const line of chunk.lines.toString('utf8').trimEnd().split('\n')) {
      const ticket = parseTicketLine(line)
      if (typeof ticket === 'string')
        throw new Error(`an archived ticket cannot be read back: ${ticket}`)
      const { price } = ticket
      fee += ticket.fee
      if (!price) continue
      cost += price.cost
      markup += price.retail - price.cost
      platformFee += price.platformFee
      platformWei += price.platformWei
    }
  }
  const read = { tickets: BigInt(sums.tickets), fee, cost, markup, platformFee, platformWei }
  if (sumsText(read) !== sumsText(app)) throw changed()
  return sums
}

/** Returns why a month cannot be archived yet; null when it can. */
function reasonToWait(sums: readonly store.MonthSums[]): string | null {
  const total = (column: 'unpriced' | 'unrooted' | 'uninvoiced'): bigint =>
    sums.reduce((count, app) => count + app[column], 0n)
  if (total('unpriced') > 0n) return `${total('unpriced')} tickets of the month wait for a rate`
  if (total('unrooted') > 0n)
    return `${total('unrooted')} tickets of the month wait for the root of the day on which they were booked`
  if (total('uninvoiced') > 0n)
    return `${total('uninvoiced')} tickets of the month wait for an invoice`
  return null
}

type TicketSums = Pick<
  store.MonthSums,
  'tickets' | 'fee' | 'cost' | 'markup' | 'platformFee' | 'platformWei'
>

const sumsText = ({ tickets, fee, cost, markup, platformFee, platformWei }: TicketSums): string =>
  [tickets, fee, cost, markup, platformFee, platformWei].join(' ')

function refuseChanged(current: readonly store.MonthSums[], written: readonly Written[]): void {
  const textOf = (sums: readonly store.MonthSums[]): string =>
    sums
      .map((month) =>
        [month.appId, month.unpriced, month.unrooted, month.uninvoiced, sumsText(month)].join(' '),
      )
      .join('; ')
  if (textOf(current) !== textOf(written.map(({ sums }) => sums))) throw changed()
}

const changed = (): DomainError =>
  new DomainError(
    'CONFLICT',
    'tickets of the month arrived while it was being archived; the month stays until the next run',
  )

async function syncFolder(path: string): Promise<void> {
  const folder = await open(path, 'r')
  await folder.sync().finally(() => folder.close())
}
