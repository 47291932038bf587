import { createHash, hash } from 'node:crypto'
import type { Log } from '../../lib/log.ts'
import { type Db, type Pool, isSerializationFailure, isUniqueViolation, tx } from '../../lib/sql.ts'
import type { Now } from '../../lib/time.ts'
import type { AppId } from '../../shared/ids.ts'
import { forApps } from '../ranges.ts'
import { type StoredChain, headDifferences, linkToFollow, saveHead } from '../heads-store.ts'
import type { AppRef, Columns, DifferentRow } from '../types.ts'
import * as store from './store.ts'

/**
 * Seals the books: records one head over the chains of all accounts of an app, from time to time.
 */

export interface BooksHead extends store.Checkpoint {
  readonly clientId: string
}

const sealTries = 5

export function createSeal({ pool, now, log }: { pool: Pool; now: Now; log: Log }) {
  /**
   * Returns the heads of one app or of all. Records a new head first if entries were added. Throws
   * NOT_FOUND for an unknown app.
   */
  async function seal(clientId: string | undefined, signal: AbortSignal): Promise<BooksHead[]> {
    const heads: BooksHead[] = []
    await forApps(pool, { clientId, parallel: 1, signal }, async (app) => {
      const checkpoint = await sealOrRead(app)
      if (checkpoint) heads.push({ ...checkpoint, clientId: app.clientId })
    })
    return heads
  }

  /**
   * Another caller may seal the app between this transaction's snapshot and its lock. Then the next
   * snapshot sees that checkpoint.
   */
  async function sealOrRead(app: AppRef, tries = sealTries): Promise<store.Checkpoint | null> {
    try {
      return await tx(pool, (db) => sealApp(db, app))
    } catch (error) {
      if (tries === 1 || !isConflict(error)) throw error
      return sealOrRead(app, tries - 1)
    }
  }

  async function sealApp(db: Db, app: AppRef): Promise<store.Checkpoint | null> {
    await store.beginSealing(db)
    const isMine = await store.tryLock(db, app.id)
    const last = await store.lastCheckpoint(db, app.id)
    const extent = await store.findExtent(db, app.id)
    const ends = await store.findEnds(db, app.id)
    if (!isMine || !isNew({ ...extent, ends }, last)) return last
    const { root, users } = await rootOf(store.currentHeads(db, app.id))
    const previous = await linkToFollow(db, app.id, chainOf(db, app.id, last))
    const number = (previous?.number ?? 0n) + 1n
    const unsigned = { ...extent, number, createdAt: now(), users, root, ends }
    const checkpoint = { ...unsigned, head: headOf(previous?.hash ?? '', unsigned) }
    await store.insertCheckpoint(db, app.id, checkpoint)
    const { entries, head } = checkpoint
    await saveHead(db, app.id, { kind: 'checkpoint', number, hash: head })
    log.info(
      { appId: app.id, number: String(number), entries: String(entries), head },
      'the books are sealed',
    )
    return checkpoint
  }

  return { seal, unsealedSince: () => store.unsealedSince(pool) }
}

export type Seal = ReturnType<typeof createSeal>

/** On a Citus cluster the nodes' snapshots differ, so the conflict may be found at the head. */
const isConflict = (error: unknown): boolean =>
  isUniqueViolation(error) || isSerializationFailure(error)

/** True when the last checkpoint does not cover everything. */
function isNew({ entries, ends }: Covered, last: Covered | null): boolean {
  if (last === null) return entries > 0n || ends.prices !== 0n
  const textOf = (covered: Covered): string =>
    JSON.stringify([String(covered.entries), ...endColumns(covered.ends)])
  return textOf({ entries, ends }) !== textOf(last)
}

type Covered = Pick<store.Checkpoint, 'entries' | 'ends'>

const chainOf = (db: Db, app: AppId, last: store.Checkpoint | null): StoredChain => ({
  kind: 'checkpoint',
  last: last && { number: last.number, hash: last.head },
  hashAt: (number) => store.headAt(db, app, number),
})

/** SHA-256 over the heads of accounts, one line each, in order of user id. */
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

const headOf = (previous: string, checkpoint: Omit<store.Checkpoint, 'head'>): string =>
  hash(
    'sha256',
    JSON.stringify([
      previous,
      String(checkpoint.number),
      checkpoint.createdAt.toISOString(),
      checkpoint.snapshot,
      checkpoint.through.toISOString(),
      String(checkpoint.users),
      String(checkpoint.entries),
      checkpoint.root,
      ...endColumns(checkpoint.ends),
    ]),
    'hex',
  )

const endColumns = (ends: store.Ends): (string | null)[] => [
  String(ends.prices),
  ends.pricesHash,
  ends.receiptDay,
  ends.receiptHash,
]

const pageSize = 1_000
const goneMax = 100

/**
 * Finds checkpoints that do not follow from the previous one, a last checkpoint that differs from
 * the entries, checkpoints missing at the end, and ends of other chains that a checkpoint names and
 * that are lost.
 */
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
  const keyOf = (number: bigint) => ({ checkpoint: String(number) })
  different.push(...(await headDifferences(db, app, { ...chainOf(db, app, last), keyOf })))
  for (const { number, stored, expected } of await store.goneEnds(db, app, goneMax))
    different.push(differenceOf({ number }, stored, expected))
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
  { number }: Pick<store.Checkpoint, 'number'>,
  stored: Columns,
  expected: Columns,
): DifferentRow => ({
  userId: null,
  externalUserId: null,
  key: { checkpoint: String(number) },
  stored,
  expected,
})
