import type * as pb from '../../../proto/gen/ts-proto/tollgate/billing/v1/collections.ts'
import type { Pool } from '../../lib/sql.ts'
import { toActor } from '../../rpc/callers.ts'
import { appOperator, appOperatorWrite, m2mOrMember, orOperator } from '../../rpc/guards.ts'
import { type Handlers, rpc } from '../../rpc/serve.ts'
import { page, parseCursor, parseLimit } from '../../shared/cursor.ts'
import { formatCents } from '../payments/amounts.ts'
import { notConfigured } from '../payments/checkouts.ts'
import type { Payers } from '../payments/payers.ts'
import type { CollectNowService } from './collect-now.ts'
import { type ListedCollection, listCollections } from './collection-list-store.ts'

export interface CollectionRpcDeps {
  readonly pool: Pool
  readonly payers: Pick<Payers, 'findRequested'>
  /** Null without a payment processor. */
  readonly collectNow: CollectNowService | null
}

export function createCollectionRpc({ pool, payers, collectNow }: CollectionRpcDeps) {
  const collectionService: Handlers<pb.CollectionServiceServer> = {
    collectDebt: rpc(
      orOperator(m2mOrMember(undefined, 'edit'), appOperatorWrite()),
      async (request: pb.CollectDebtRequest, caller, context) => {
        if (collectNow === null) throw notConfigured()
        const { outcome, invoiceIds, reason } = await collectNow.collect(
          caller.appId,
          await payers.findRequested(caller, request),
          toActor(caller, context),
        )
        return { outcome, invoiceIds: [...invoiceIds], reason }
      },
    ),
    listCollections: rpc(appOperator(), async (request: pb.ListCollectionsRequest, { appId }) => {
      const limit = parseLimit(request.limit)
      const rows = await listCollections(pool, {
        appId,
        externalUserId: request.externalUserId ?? null,
        isOpen: request.open,
        after: parseCursor(request.cursor),
        limit: limit + 1,
      })
      const { items, nextCursor } = page(rows, limit)
      return { collections: items.map(toCollection), nextCursor }
    }),
  }
  return { collectionService }
}

const toCollection = (collection: ListedCollection): pb.Collection => ({
  id: collection.id,
  externalUserId: collection.externalUserId,
  reason: collection.reason,
  state: collection.state,
  invoiceId: collection.invoiceId ?? undefined,
  totalUsd: collection.total === null ? undefined : formatCents(collection.total),
  requestedAt: collection.createdAt.toISOString(),
  dueAt: collection.dueAt?.toISOString(),
  failures: collection.failures,
  failure: collection.failure ?? undefined,
})
