import { mkdir, open } from 'node:fs/promises'
import { join } from 'node:path'
import { type Pool, tx } from '../../lib/sql.ts'
import { type Now, addSeconds } from '../../lib/time.ts'
import { type OldEntry, deleteOldEntries } from '../audit.ts'
import type { AuditConfig } from '../config.ts'
import { deleteInBatches } from '../upkeep.ts'

const daySeconds = 86_400

/**
 * Upkeep: deletes entries older than the retention. If there is a folder, a batch is written to
 * disk there before it is deleted. A crash between the two writes the batch twice and loses
 * nothing.
 */
export function createAuditRetention(
  { pool, now }: { pool: Pool; now: Now },
  { retentionDays, exportDir }: AuditConfig,
) {
  async function deleteOld(): Promise<void> {
    const before = addSeconds(now(), -retentionDays * daySeconds)
    await deleteInBatches((limit) =>
      tx(pool, async (db) => {
        const entries = await deleteOldEntries(db, before, limit)
        if (exportDir !== null) await append(exportDir, entries)
        return entries.length
      }),
    )
  }

  return { deleteOld }
}

/** Appends the entries to one file per month of their creation. */
async function append(dir: string, entries: readonly OldEntry[]): Promise<void> {
  const byMonth = Map.groupBy(entries, ({ createdAt }) => createdAt.toISOString().slice(0, 7))
  if (byMonth.size > 0) await mkdir(dir, { recursive: true, mode: 0o700 })
  for (const [month, rows] of byMonth) {
    const file = await open(join(dir, `audit-${month}.ndjson`), 'a', 0o600)
    try {
      await file.appendFile(rows.map((row) => `${JSON.stringify(row)}\n`).join(''))
      await file.sync()
    } finally {
      await file.close()
    }
  }
}
