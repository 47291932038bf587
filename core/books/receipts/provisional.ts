import type { Db } from '../../lib/sql.ts'
import { addSeconds } from '../../lib/time.ts'
import type { UserId } from '../../shared/ids.ts'
import type { AppRef } from '../types.ts'
import { type Leaf, hashOfLeaf } from './leaf.ts'
import { inclusionPath, computeRoot } from './merkle.ts'
import type { Place } from './chunk-store.ts'
import { type PlacedLeaf, countTickets, ticketsPage } from './ticket-store.ts'

/**
 * Tree over the tickets of one charge. It proves a ticket until its day has a root
 * (docs/receipts.md, "Provisional root").
 */

export interface ChargeToProve {
  readonly app: AppRef
  readonly userId: UserId
  readonly signedAt: Date
  readonly charge: {
    readonly id: string
    readonly bookedAt: Date
    readonly ticketCount: number | null
  }
}

export interface ChargeProof {
  readonly leafIndex: number
  readonly treeSize: number
  readonly rootHash: Buffer
  readonly path: readonly Buffer[]
}

const nearSeconds = 86_400
const pageSize = 2_048
/** Limit of tickets per charge; a page of an import has fewer. */
const ticketsMax = 20_000

/**
 * Returns null unless all tickets of the charge were signed within a day of this ticket and its
 * booking.
 */
export async function proveInCharge(
  db: Db,
  { app, userId, signedAt, charge }: ChargeToProve,
  leaf: Leaf,
): Promise<ChargeProof | null> {
  const [from, to] =
    signedAt < charge.bookedAt ? [signedAt, charge.bookedAt] : [charge.bookedAt, signedAt]
  const reach = { userId, from: addSeconds(from, -nearSeconds), to: addSeconds(to, nearSeconds) }
  const tickets = { app, reaches: [reach], chargeIds: [charge.id] }
  const count = (await countTickets(db, tickets)).get(userId) ?? 0
  if (count !== charge.ticketCount || count > ticketsMax) return null
  const leaves: Buffer[] = []
  for (let after: Place | null = null; ;) {
    const page: PlacedLeaf[] = await ticketsPage(db, tickets, { after, limit: pageSize })
    leaves.push(...page.map((placed) => hashOfLeaf(placed.leaf)))
    after = page.at(-1) ?? null
    if (page.length < pageSize) break
  }
  const own = hashOfLeaf(leaf)
  const leafIndex = leaves.findIndex((hash) => hash.equals(own))
  if (leafIndex < 0) return null
  const path = inclusionPath(leaves, leafIndex)
  return { leafIndex, treeSize: leaves.length, rootHash: computeRoot(leaves), path }
}
