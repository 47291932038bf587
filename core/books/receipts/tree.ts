import { createTree, computeRoot } from './merkle.ts'
import type { Db } from '../../lib/sql.ts'
import { addSeconds } from '../../lib/time.ts'
import type { AppRef } from '../types.ts'
import { hashOfLeaf } from './leaf.ts'
import type { Chunk, Place } from './chunk-store.ts'
import type { Window } from './store.ts'
import {
  type ChargedUser,
  type PlacedLeaf,
  type Reach,
  listChargeIds,
  chargedUsers,
  countTickets,
  ticketsPage,
} from './ticket-store.ts'

/** Tree over an app's tickets of a day. Reads tickets page by page. */

/**
 * Leaves per chunk: a power of two, so that the tree over the chunks has the same root as the tree
 * over the leaves.
 */
export const chunkSize = 1_024
const pageSize = 2_048
const groupUsers = 200
// Most tickets are booked within minutes of signing.
const nearSeconds = 86_400

/** Yields the tickets of an app in a window, by user, signing time and event id. */
async function* leavesOf(
  db: Db,
  { app, window }: TreeOptions,
  onUser: (user: ChargedUser) => void,
): AsyncGenerator<PlacedLeaf> {
  for await (const group of groupsOf(chargedUsers(db, app.id, window))) {
    group.forEach(onUser)
    yield* leavesOfGroup(db, { app, window }, group)
  }
}

/** Groups users so that each group has about one page of tickets. */
async function* groupsOf(users: AsyncIterable<ChargedUser>): AsyncGenerator<ChargedUser[]> {
  let group: ChargedUser[] = []
  let tickets = 0
  for await (const user of users) {
    group.push(user)
    tickets += user.tickets
    if (tickets < pageSize && group.length < groupUsers) continue
    yield group
    ;[group, tickets] = [[], 0]
  }
  if (group.length > 0) yield group
}

async function* leavesOfGroup(
  db: Db,
  { app, window }: Pick<TreeOptions, 'app' | 'window'>,
  group: readonly ChargedUser[],
): AsyncGenerator<PlacedLeaf> {
  const chargeIds = await listChargeIds(db, { app: app.id, window }, group)
  const near = { app, reaches: group.map(nearReach), chargeIds }
  const counts = await countTickets(db, near)
  // A user with tickets signed long before their booking is searched over all times.
  const reaches = near.reaches.map((reach, i) =>
    (counts.get(reach.userId) ?? 0) === group[i]?.tickets
      ? reach
      : { userId: reach.userId, from: null, to: null },
  )
  for (let after: Place | null = null; ;) {
    const last: Place | null = after
    const rest = reaches.filter(({ userId }) => last === null || userId >= last.userId)
    const page: PlacedLeaf[] = await ticketsPage(
      db,
      { ...near, reaches: rest },
      { after, limit: pageSize },
    )
    yield* page
    after = page.at(-1) ?? null
    if (after === null || page.length < pageSize) return
  }
}

const nearReach = ({ userId, from, to }: ChargedUser): Reach => ({
  userId,
  from: addSeconds(from, -nearSeconds),
  to: addSeconds(to, nearSeconds),
})

export interface TicketTree {
  readonly treeSize: number
  readonly rootHash: Buffer
  /** Number of tickets that the charges cover. */
  readonly charged: number
}

export interface TreeOptions {
  readonly app: AppRef
  readonly window: Window
  readonly signal: AbortSignal
  readonly onChunk: (chunk: Chunk) => Promise<void>
}

/** Builds the tree over the tickets of a window. Returns null when `signal` aborts. */
export async function buildTree(db: Db, options: TreeOptions): Promise<TicketTree | null> {
  const tree = createTree()
  let [treeSize, charged] = [0, 0]
  const onUser = ({ tickets }: ChargedUser): void => void (charged += tickets)
  for await (const chunk of chunksOf(leavesOf(db, options, onUser))) {
    if (options.signal.aborted) return null
    await options.onChunk(chunk)
    tree.add(chunk.hash)
    treeSize += chunk.leaves.length
  }
  return { treeSize, rootHash: tree.root(), charged }
}

async function* chunksOf(leaves: AsyncIterable<PlacedLeaf>): AsyncGenerator<Chunk> {
  let number = 0
  let chunk: PlacedLeaf[] = []
  for await (const leaf of leaves) {
    chunk.push(leaf)
    if (chunk.length < chunkSize) continue
    yield toChunk(number++, chunk)
    chunk = []
  }
  if (chunk.length > 0) yield toChunk(number, chunk)
}

function toChunk(number: number, tickets: readonly PlacedLeaf[]): Chunk {
  const [first] = tickets
  if (!first) throw new Error('a chunk has a ticket')
  const { userId, signedAt, eventId } = first
  const leaves = tickets.map(({ leaf }) => hashOfLeaf(leaf))
  return { number, userId, signedAt, eventId, hash: computeRoot(leaves), leaves }
}
