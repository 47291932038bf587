import { createHash, createPublicKey, verify } from 'node:crypto'
import { headDifferences } from '../heads-store.ts'
import { type JsonObject, isObject, parseObject } from '../../lib/json.ts'
import type { Db } from '../../lib/sql.ts'
import type { AppId } from '../../shared/ids.ts'
import type { AppRef, Columns, DifferentRow } from '../types.ts'
import { createTree, computeRoot } from './merkle.ts'
import type { EndClaim } from './roots.ts'
import { chunkAt } from './chunk-store.ts'
import * as store from './store.ts'
import type { Chunk } from './chunk-store.ts'
import type { Day, RootRow, Window } from './store.ts'
import { buildTree } from './tree.ts'

/** Recomputes the trees of days and compares them with the stored and signed roots. */

export interface RootsToVerify {
  readonly app: AppRef
  /**
   * Whether some of the app's tickets are only in archives, so that the trees of their days cannot
   * be recomputed.
   */
  readonly hasArchives: boolean
  readonly signal: AbortSignal
}

/** Finds roots that differ from the tickets, their chunks or their statement, and missing roots. */
export async function rootDifferences(db: Db, options: RootsToVerify): Promise<DifferentRow[]> {
  const different: DifferentRow[] = []
  let last: RootRow | null = null
  for await (const root of rootsOf(db, options)) {
    if (options.signal.aborted) return different
    const window = await store.findWindow(db, options.app.id, root.day)
    const previous = last && store.findLink(last).hash
    const row = await compareRoot(db, { ...options, root, window, previous })
    if (row) different.push(row)
    last = root
  }
  const keyOf = (number: bigint) => ({ day: store.dayOfLink(number) })
  const { id } = options.app
  different.push(...(await headDifferences(db, id, { ...store.readChain(db, id, last), keyOf })))
  const missing = await store.daysWithoutRoot(db, options.app.id)
  return [...different, ...missing.map((day) => rowOf(day, null, { root: 'missing' }))]
}

const pageSize = 100

async function* rootsOf(db: Db, { app }: RootsToVerify): AsyncGenerator<RootRow> {
  for (let from: Day | null = store.firstDay; from !== null;) {
    const range = { app: app.id, from, to: store.lastDay, limit: pageSize }
    const page: Awaited<ReturnType<typeof store.rootsPage>> = await store.rootsPage(db, range)
    yield* page.roots
    from = page.next
  }
}

interface RootToVerify extends RootsToVerify {
  readonly root: RootRow
  readonly window: Window | null
  readonly previous: string | null
}

async function compareRoot(db: Db, toVerify: RootToVerify): Promise<DifferentRow | null> {
  const { app, root, window, previous } = toVerify
  if (!window) return rowOf(root.day, { cut: null }, { cut: 'missing' })
  const kept = await keptTree(db, app, root.day)
  const tickets = await treeAgain(db, toVerify, window)
  const claims = signedClaims(root)
  const ends = await compareEnds(db, app.id, claims)
  const stored: Columns = {
    ...columnsOf(root),
    chunks: kept.chunks,
    statement: statementOf(claims),
    ...ends.stored,
  }
  const expected: Columns = {
    ...ends.expected,
    ...(tickets ?? { root_hash: kept.rootHash, tree_size: kept.treeSize, chunks: kept.chunks }),
    statement: JSON.stringify([
      app.clientId,
      root.day,
      window.cutAt.toISOString(),
      root.treeSize,
      root.rootHash.toString('hex'),
      previous,
    ]),
  }
  const isSame = Object.entries(expected).every(([column, value]) => stored[column] === value)
  return isSame ? null : rowOf(root.day, stored, expected)
}

const columnsOf = ({
  rootHash,
  treeSize,
}: Pick<RootRow, 'rootHash' | 'treeSize'>): Record<string, string> => ({
  root_hash: rootHash.toString('hex'),
  tree_size: String(treeSize),
})

const rowOf = (day: string, stored: Columns | null, expected: Columns): DifferentRow => ({
  userId: null,
  externalUserId: null,
  key: { day },
  stored,
  expected,
})

/** Computes the tree from the tickets; null if some are in archives. */
async function treeAgain(
  db: Db,
  { app, hasArchives, signal }: RootToVerify,
  window: Window,
): Promise<Record<string, string> | null> {
  const chunks = createHash('sha256')
  const onChunk = async (chunk: Chunk): Promise<void> => void chunks.update(lineOf(chunk))
  const tree = await buildTree(db, { app, window, signal, onChunk })
  if (!tree || (hasArchives && tree.treeSize < tree.charged)) return null
  return { ...columnsOf(tree), chunks: chunks.digest('hex') }
}

const lineOf = ({ number, userId, signedAt, eventId, hash }: Chunk): string =>
  `${number} ${userId} ${signedAt} ${eventId} ${hash.toString('hex')}\n`

/** Computes the tree from the stored leaf hashes. */
async function keptTree(db: Db, app: AppRef, day: string) {
  const chunks = createHash('sha256')
  const tree = createTree()
  let treeSize = 0
  for (let number = 0; ; number++) {
    const chunk = await chunkAt(db, { app: app.id, day }, number)
    if (!chunk) break
    const hash = computeRoot(chunk.leaves)
    chunks.update(hash.equals(chunk.hash) ? lineOf(chunk) : `${number} is not of its leaves\n`)
    tree.add(hash)
    treeSize += chunk.leaves.length
  }
  const rootHash = tree.root().toString('hex')
  return { rootHash, treeSize: String(treeSize), chunks: chunks.digest('hex') }
}

/** Returns the claims of a root; null when the signature does not verify. */
function signedClaims({ statement, jwk }: RootRow): JsonObject | null {
  const [, payload = ''] = statement.split('.')
  const claims = parseObject(Buffer.from(payload, 'base64url').toString('utf8'))
  return isSigned(statement, jwk) ? claims : null
}

function statementOf(claims: JsonObject | null): string {
  const names = ['clientId', 'day', 'cutAt', 'treeSize', 'rootHash', 'previous']
  return claims ? JSON.stringify(names.map((name) => claims[name])) : 'not signed by its key'
}

/** Compares the checkpoint and the price chain item that the root names with the current ones. */
async function compareEnds(
  db: Db,
  app: AppId,
  claims: JsonObject | null,
): Promise<{ stored: Columns; expected: Columns }> {
  const [checkpoint, price] = [endIn(claims?.['checkpoint']), endIn(claims?.['prices'])]
  const named = { checkpoint: checkpoint?.number ?? null, price: price?.number ?? null }
  return {
    stored: await store.hashesAt(db, app, named),
    expected: { checkpoint: checkpoint?.hash ?? null, price: price?.hash ?? null },
  }
}

function endIn(claim: unknown): EndClaim | null {
  if (!isObject(claim)) return null
  const { number, hash } = claim
  const isEnd = typeof number === 'string' && /^[0-9]{1,18}$/.test(number)
  return isEnd && typeof hash === 'string' ? { number, hash } : null
}

function isSigned(statement: string, jwk: RootRow['jwk']): boolean {
  const [header = '', payload = '', signature = ''] = statement.split('.')
  try {
    const key = createPublicKey({ key: jwk, format: 'jwk' })
    const input = Buffer.from(`${header}.${payload}`)
    const bytes = Buffer.from(signature, 'base64url')
    return verify('sha256', input, { key, dsaEncoding: 'ieee-p1363' }, bytes)
  } catch {
    return false
  }
}
