import { createHash, createPublicKey, verify } from 'node:crypto'
import { parseObject } from '../../lib/json.ts'
import type { Db } from '../../lib/sql.ts'
import type { AppRef, Columns, DifferentRow } from '../types.ts'
import { createTree, rootOf } from './merkle.ts'
import { hashOfStatement } from './roots.ts'
import * as store from './store.ts'
import type { Chunk, Day, RootRow, Window } from './store.ts'
import { treeOf } from './tree.ts'

/** Makes the trees of days again and compares them with what was stored and signed. */

export interface RootsToVerify {
  readonly app: AppRef
  /** Whether some tickets of the app are only in archives: the trees of their days cannot be made again. */
  readonly hasArchives: boolean
  readonly signal: AbortSignal
}

/** Roots that differ from the tickets, their own chunks or their statement, and those that are missing. */
export async function rootDifferences(db: Db, options: RootsToVerify): Promise<DifferentRow[]> {
  const different: DifferentRow[] = []
  let previous: string | null = null
  for await (const root of rootsOf(db, options)) {
    if (options.signal.aborted) return different
    const window = await store.windowOf(db, root.day)
    const row = await compareRoot(db, { ...options, root, window, previous })
    if (row) different.push(row)
    previous = hashOfStatement(root.statement)
  }
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

async function compareRoot(db: Db, of: RootToVerify): Promise<DifferentRow | null> {
  const { app, root, window, previous } = of
  if (!window) return rowOf(root.day, { cut: null }, { cut: 'missing' })
  const kept = await keptTree(db, app, root.day)
  const tickets = await treeAgain(db, of, window)
  const stored: Record<string, string> = {
    ...columnsOf(root),
    chunks: kept.chunks,
    statement: statementOf(root),
  }
  const expected = {
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

/** The tree from the tickets; null where some of them are in archives. */
async function treeAgain(
  db: Db,
  { app, hasArchives, signal }: RootToVerify,
  window: Window,
): Promise<Record<string, string> | null> {
  const chunks = createHash('sha256')
  const onChunk = async (chunk: Chunk): Promise<void> => void chunks.update(lineOf(chunk))
  const tree = await treeOf(db, { app, window, signal, onChunk })
  if (!tree || (hasArchives && tree.treeSize < tree.charged)) return null
  return { ...columnsOf(tree), chunks: chunks.digest('hex') }
}

const lineOf = ({ number, userId, signedAt, eventId, hash }: Chunk): string =>
  `${number} ${userId} ${signedAt} ${eventId} ${hash.toString('hex')}\n`

/** The tree from the hashes of its leaves that were kept. */
async function keptTree(db: Db, app: AppRef, day: string) {
  const chunks = createHash('sha256')
  const tree = createTree()
  let treeSize = 0
  for (let number = 0; ; number++) {
    const chunk = await store.chunkAt(db, { app: app.id, day }, number)
    if (!chunk) break
    const hash = rootOf(chunk.leaves)
    chunks.update(hash.equals(chunk.hash) ? lineOf(chunk) : `${number} is not of its leaves\n`)
    tree.add(hash)
    treeSize += chunk.leaves.length
  }
  const rootHash = tree.root().toString('hex')
  return { rootHash, treeSize: String(treeSize), chunks: chunks.digest('hex') }
}

/** What the statement says, if its key has signed it. */
function statementOf({ statement, jwk }: RootRow): string {
  const [, payload = ''] = statement.split('.')
  const claims = parseObject(Buffer.from(payload, 'base64url').toString('utf8'))
  if (!claims || !isSigned(statement, jwk)) return 'not signed by its key'
  const names = ['clientId', 'day', 'cutAt', 'treeSize', 'rootHash', 'previous']
  return JSON.stringify(names.map((name) => claims[name]))
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
