import { createHash, hash } from 'node:crypto'
import type { Log } from '../../lib/log.ts'
import { type Db, type Pool, tx } from '../../lib/sql.ts'
import type { Now } from '../../lib/time.ts'
import type { AppId } from '../../platform/ids.ts'
import { forApps } from '../ranges.ts'
import type { AppRef, DifferentRow } from '../types.ts'
import * as store from './store.ts'

/** Seals the books: records, from time to time, one head over the chains of all accounts of an app. */

export interface BooksHead extends store.Checkpoint {
  readonly clientId: string
}

export function createSeal({ pool, now, log }: { pool: Pool; now: Now; log: Log }) {
  /** The heads of one app or of all, each recorded first where entries were added. NOT_FOUND for an unknown app. */
  async function seal(clientId: string | undefined, signal: AbortSignal): Promise<BooksHead[]> {
    const heads: BooksHead[] = []
    await forApps(pool, { clientId, parallel: 1, signal }, async (app) => {
      const checkpoint = await tx(pool, (db) => sealApp(db, app))
      if (checkpoint) heads.push({ ...checkpoint, clientId: app.clientId })
    })
    return heads
  }

  async function sealApp(db: Db, app: AppRef): Promise<store.Checkpoint | null> {
    await store.beginSealing(db)
    const isMine = await store.tryLock(db, app.id)
    const last = await store.lastCheckpoint(db, app.id)
    const extent = await store.extentOf(db, app.id)
    if (!isMine || extent.entries === 0n || extent.entries === last?.entries) return last
    const { root, users } = await rootOf(store.currentHeads(db, app.id))
    const unsigned = { ...extent, number: (last?.number ?? 0n) + 1n, createdAt: now(), users, root }
    const checkpoint = { ...unsigned, head: headOf(last?.head ?? '', unsigned) }
    await store.insertCheckpoint(db, app.id, checkpoint)
    const { number, entries, head } = checkpoint
    log.info(
      { appId: app.id, number: String(number), entries: String(entries), head },
      'the books are sealed',
    )
    return checkpoint
  }

  return { seal, unsealedSince: () => store.unsealedSince(pool) }
}

export type Seal = ReturnType<typeof createSeal>

/** SHA-256 over the heads of accounts in the order of their users, a line for each. */
async function rootOf(
  heads: AsyncIterable<store.AccountHead>,
): Promise<{ root: string; users: bigint; entries: bigint }> {
  const digest = createHash('sha256')
  let [users, entries] = [0n, 0n]
  for await (const { userId, seq, hash: head } of heads) {
    digest.update(`${userId} ${seq} ${head ?? ''}\n`)
    users += 1n
    entries += seq
  }
  return { root: digest.digest('hex'), users, entries }
}

const headOf = (previous: string, of: Omit<store.Checkpoint, 'head'>): string =>
  hash(
    'sha256',
    JSON.stringify([
      previous,
      String(of.number),
      of.createdAt.toISOString(),
      of.snapshot,
      of.through.toISOString(),
      String(of.users),
      String(of.entries),
      of.root,
    ]),
    'hex',
  )

const pageSize = 1_000

/** Checkpoints whose head does not follow from the one before, and the last one when the entries say otherwise. */
export async function checkpointDifferences(db: Db, app: AppId): Promise<DifferentRow[]> {
  const different: DifferentRow[] = []
  let last: store.Checkpoint | null = null
  for await (const checkpoint of checkpointsOf(db, app)) {
    const previous: Pick<store.Checkpoint, 'head' | 'number'> = last ?? { head: '', number: 0n }
    const stored = { head: checkpoint.head, number: String(checkpoint.number) }
    const expected = {
      head: headOf(previous.head, checkpoint),
      number: String(previous.number + 1n),
    }
    if (stored.head !== expected.head || stored.number !== expected.number)
      different.push(differenceOf(checkpoint, stored, expected))
    last = checkpoint
  }
  return last ? [...different, ...(await rootDifferences(db, app, last))] : different
}

async function* checkpointsOf(db: Db, app: AppId): AsyncGenerator<store.Checkpoint> {
  for (let after = 0n; ;) {
    const page: store.Checkpoint[] = await store.checkpointsAfter(db, {
      app,
      after,
      limit: pageSize,
    })
    yield* page
    const last = page.at(-1)
    if (!last || page.length < pageSize) return
    after = last.number
  }
}

async function rootDifferences(
  db: Db,
  app: AppId,
  last: store.Checkpoint,
): Promise<DifferentRow[]> {
  const { root, users, entries } = await rootOf(store.headsAt(db, app, last))
  if (root === last.root && users === last.users && entries === last.entries) return []
  const stored = { root: last.root, users: String(last.users), entries: String(last.entries) }
  return [differenceOf(last, stored, { root, users: String(users), entries: String(entries) })]
}

const differenceOf = (
  { number }: store.Checkpoint,
  stored: Record<string, string>,
  expected: Record<string, string>,
): DifferentRow => ({
  userId: null,
  externalUserId: null,
  key: { checkpoint: String(number) },
  stored,
  expected,
})
