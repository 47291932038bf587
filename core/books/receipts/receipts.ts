import { DomainError } from '../../../proto/errors.ts'
import type { Shared } from '../../shared/shared.ts'
import { inclusionPath } from './merkle.ts'
import { formatDecimal18 as decimal } from '../../lib/money.ts'
import { type Db, tx } from '../../lib/sql.ts'
import { parseUtcDay, toSeconds } from '../../lib/time.ts'
import type { AppId } from '../../shared/ids.ts'
import type { TokensApi } from '../../tokens/module.ts'
import type { UsageApi } from '../../usage/module.ts'
import type { ExplainedSale, Explanation } from '../../usage/tickets/explain.ts'
import type { AppRef } from '../types.ts'
import { type Leaf, hashOfLeaf } from './leaf.ts'
import { proveInCharge } from './provisional.ts'
import { chunkHashes, findChunk } from './chunk-store.ts'
import * as store from './store.ts'
import type { Day, RootRow } from './store.ts'
import { findLeaf } from './ticket-store.ts'
import { chunkSize } from './tree.ts'

export interface ReceiptsDeps extends Pick<Shared, 'pool' | 'now'> {
  readonly issuer: string
  readonly signStatement: TokensApi['signStatement']
  readonly explain: UsageApi['explain']
}

/** Position of a ticket in the tree of its day, and the path to the root. */
export interface Proof {
  readonly day: Day
  readonly leafIndex: number
  readonly treeSize: number
  /** Hexadecimal, from the leaf upwards. */
  readonly inclusionPath: readonly string[]
}

export interface Receipt {
  readonly receipt: string
  /** Both null for tickets older than roots, and when a provisional root cannot be computed. */
  readonly proof: Proof | null
  readonly root: string | null
  /** True for a root over the ticket's charge, which the root of the day replaces later. */
  readonly isProvisional: boolean
  /** Public keys of both statements. */
  readonly keys: readonly RootRow['jwk'][]
}

type PricedSale = NonNullable<Explanation['sale']>

/** Issues receipts for tickets (docs/receipts.md, "Receipt"). */
export function createReceipts({ pool, now, issuer, signStatement, explain }: ReceiptsDeps) {
  /**
   * Issues the receipt of a ticket, of one app or of any. Throws NOT_FOUND for an unknown ticket,
   * CONFLICT while the ticket waits for a rate.
   */
  async function issue(eventId: string, onlyApp: AppId | null): Promise<Receipt> {
    const ticket = await explain(eventId, onlyApp)
    const { sale } = ticket
    if (!sale)
      throw new DomainError(
        'CONFLICT',
        'the ticket waits for a rate, and its receipt becomes available with its price',
      )
    const at = now()
    const { leaf, place } = await tx(pool, async (db) => {
      const leaf = await leafOf(db, ticket, sale)
      return { leaf, place: await prove(db, { ticket, sale, leaf }) }
    })
    const proof = place && place.proof
    const root = place && (await rootOf(ticket.clientId, place, at))
    const isProvisional = place?.provisional !== undefined
    const { jws, jwk } = await signStatement('receipt', {
      iss: issuer,
      iat: toSeconds(at),
      ticket: leaf,
      externalUserId: ticket.externalUserId,
      ...termsOf(sale),
      charge: chargeOf(sale),
      place: proof && {
        day: proof.day,
        leafIndex: proof.leafIndex,
        ...(isProvisional && { provisional: true }),
      },
    })
    const keys = root && root.jwk['kid'] !== jwk['kid'] ? [jwk, root.jwk] : [jwk]
    return { receipt: jws, proof, root: root && root.statement, isProvisional, keys }
  }

  /** Returns the root of the day, or signs a provisional one. */
  async function rootOf(
    clientId: string,
    { proof: { day, treeSize }, root, provisional }: PlaceInTree,
    at: Date,
  ): Promise<Pick<RootRow, 'statement' | 'jwk'>> {
    if (root) return root
    const { jws: statement, jwk } = await signStatement('receipt-provisional-root', {
      iss: issuer,
      iat: toSeconds(at),
      clientId,
      day,
      ...provisional,
      treeSize,
      provisional: true,
    })
    return { statement, jwk }
  }

  /**
   * Returns a page of an app's roots by day, with the keys that signed them. Throws REQUEST_INVALID
   * for an invalid day.
   */
  async function listRoots(app: AppId, query: RootsQuery): Promise<Roots> {
    const [from, to] = [
      dayOf('from', query.from, store.firstDay),
      dayOf('to', query.to, store.lastDay),
    ]
    if (query.limit > rootsMax)
      throw new DomainError('REQUEST_INVALID', `limit must be from 1 to ${rootsMax}`)
    const limit = query.limit === 0 ? rootsMax : query.limit
    const { roots, next } = await store.rootsPage(pool, { app, from, to, limit })
    const keys = new Map(roots.map(({ jwk }) => [jwk['kid'], jwk]))
    return { roots, keys: [...keys.values()], next }
  }

  return { issue, listRoots }
}

export type Receipts = ReturnType<typeof createReceipts>

const rootsMax = 366

export interface RootsQuery {
  /** First and last day, inclusive. */
  readonly from: string | undefined
  readonly to: string | undefined
  /** 0 means the maximum. */
  readonly limit: number
}

export interface Roots {
  readonly roots: readonly RootRow[]
  readonly keys: readonly RootRow['jwk'][]
  /** First day of the next page. */
  readonly next: Day | null
}

function dayOf(name: string, text: string | undefined, fallback: Day): Day {
  if (text === undefined || text === '') return fallback
  if (!parseUtcDay(text))
    throw new DomainError('REQUEST_INVALID', `${name} must be a day as YYYY-MM-DD`)
  return text
}

/** Reads the leaf of the ticket. */
async function leafOf(db: Db, ticket: Explanation, { chargeId }: PricedSale): Promise<Leaf> {
  const { userId, eventId } = ticket
  const signed = new Date(ticket.signedAt).getTime()
  const app: AppRef = { id: ticket.appId, clientId: ticket.clientId }
  const reach = { userId, from: new Date(signed), to: new Date(signed + 1) }
  const leaf = await findLeaf(db, { app, reaches: [reach], chargeIds: [chargeId] }, eventId)
  if (!leaf) throw new Error('an explained ticket is missing')
  return leaf
}

interface PlaceInTree {
  readonly proof: Proof
  /** Null for a provisional proof. */
  readonly root: RootRow | null
  readonly provisional?: { readonly chargeId: string; readonly rootHash: string }
}

interface TicketToProve {
  readonly ticket: Explanation
  readonly sale: PricedSale
  readonly leaf: Leaf
}

async function prove(db: Db, toProve: TicketToProve): Promise<PlaceInTree | null> {
  const { charge } = toProve.sale
  if (!charge) return null
  const { appId: app, userId: user } = toProve.ticket
  const cut = await store.dayOfCharge(db, { app, user, seq: charge.seq })
  if (!cut) return proveProvisionally(db, toProve, charge.bookedAt.toISOString().slice(0, 10))
  const { day, isBuilt } = cut
  const { roots } = await store.rootsPage(db, { app, from: day, to: day, limit: 1 })
  if (roots[0]) return proveInDay(db, toProve, roots[0])
  return isBuilt ? null : proveProvisionally(db, toProve, day)
}

async function proveProvisionally(
  db: Db,
  { ticket, sale: { charge }, leaf }: TicketToProve,
  day: Day,
): Promise<PlaceInTree | null> {
  if (!charge) return null
  const { userId, signedAt } = ticket
  const app: AppRef = { id: ticket.appId, clientId: ticket.clientId }
  const chargedTicket = { app, userId, signedAt: new Date(signedAt), charge }
  const proved = await proveInCharge(db, chargedTicket, leaf)
  if (!proved) return null
  const { leafIndex, treeSize, rootHash, path } = proved
  return {
    proof: { day, leafIndex, treeSize, inclusionPath: path.map((hash) => hash.toString('hex')) },
    root: null,
    provisional: { chargeId: charge.id, rootHash: rootHash.toString('hex') },
  }
}

async function proveInDay(
  db: Db,
  { ticket, leaf }: TicketToProve,
  root: RootRow,
): Promise<PlaceInTree> {
  const { appId: app } = ticket
  const { day } = root
  const chunk = await findChunk(db, { app, day }, ticket)
  const own = hashOfLeaf(leaf)
  const index = chunk?.leaves.findIndex((hash) => hash.equals(own)) ?? -1
  if (!chunk || index < 0)
    throw new DomainError(
      'CONFLICT',
      `the ticket differs from the root of ${day}, so it has no proof; run \`tollgate verify\` for details`,
    )
  const hashes = await chunkHashes(db, app, day)
  const path = [...inclusionPath(chunk.leaves, index), ...inclusionPath(hashes, chunk.number)]
  return {
    proof: {
      day,
      leafIndex: chunk.number * chunkSize + index,
      treeSize: root.treeSize,
      inclusionPath: path.map((hash) => hash.toString('hex')),
    },
    root,
  }
}

const termsOf = ({ plan, rule, cut, period, cost, platformFee }: ExplainedSale) => ({
  ownerChargeUsd: decimal(cost + platformFee),
  plan: plan && { id: plan.id, version: plan.version },
  rule: rule && { name: rule.name, bundleId: rule.bundleId, multiple: decimal(rule.ratio) },
  cut: cut && { percent: decimal(cut.percent), since: cut.since.toISOString() },
  period: period && { start: period.start.toISOString(), end: period.end.toISOString() },
})

function chargeOf({ charge }: ExplainedSale) {
  if (!charge) return null
  const { id, seq, bookedAt, share, credits } = charge
  const draws = share?.draws.map(({ creditId, amount }) => {
    const credit = credits.find((one) => one.id === creditId)
    const { kind = '', source = '' } = credit ?? {}
    return { creditId, kind, source, amountUsd: decimal(-amount) }
  })
  return {
    id,
    seq: String(seq),
    bookedAt: bookedAt.toISOString(),
    share: share && { draws, overageUsd: decimal(share.overage) },
  }
}
