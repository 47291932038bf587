import type * as pb from '../../../proto/gen/ts-proto/tollgate/billing/v1/reconciliation.ts'
import { DomainError } from '../../../proto/errors.ts'
import { type Pool, tx } from '../../lib/sql.ts'
import type { Now } from '../../lib/time.ts'
import { toActor } from '../../rpc/callers.ts'
import { operator, operatorWrite, orOperator, platformAdmin } from '../../rpc/guards.ts'
import { type Handlers, rpc, streamRpc } from '../../rpc/serve.ts'
import { type Actor, auditSuccess } from '../../shared/audit.ts'
import { findClientIds } from '../../shared/clients.ts'
import { page, parseCursor, parseLimit } from '../../shared/cursor.ts'
import { appId, isUuid } from '../../shared/ids.ts'
import { parseReadable } from '../../shared/text.ts'
import { notConfigured } from '../payments/checkouts.ts'
import * as store from './difference-store.ts'
import type { StoredDifference } from './difference-store.ts'
import { type ReconciledPlace, type Reconciliation, parseDays } from './reconciliation.ts'

export interface ReconciliationRpcDeps {
  readonly pool: Pool
  readonly now: Now
  /** Null without a payment processor. */
  readonly reconciliation: Pick<Reconciliation, 'reconcile'> | null
}

const resolutionMax = 500

/** Differences between the payment processor and our payments. */
export function createReconciliationRpc({ pool, now, reconciliation }: ReconciliationRpcDeps) {
  const processorReconciliationService: Handlers<pb.ProcessorReconciliationServiceServer> = {
    reconcileProcessor: streamRpc(
      operator(),
      async (request: pb.ReconcileProcessorRequest, emit, { signal }) => {
        if (reconciliation === null) throw notConfigured()
        const what = { range: parseDays(request), isRecent: request.recent ?? false }
        for await (const result of reconciliation.reconcile(what, signal))
          emit(await toAccount(result))
      },
    ),

    listProcessorDifferences: rpc(
      orOperator(platformAdmin(), operator()),
      async (request: pb.ListProcessorDifferencesRequest) => {
        const limit = parseLimit(request.limit)
        const after = parseCursor(request.cursor)
        const rows = await store.listDifferences(pool, {
          open: request.open,
          after,
          limit: limit + 1,
        })
        const { items, nextCursor } = page(
          rows.map((row) => ({ ...row, createdAt: row.foundAt })),
          limit,
        )
        return { differences: await toDifferences(items), nextCursor }
      },
    ),

    resolveProcessorDifference: rpc(
      orOperator(platformAdmin(), operatorWrite()),
      async (request: pb.ResolveProcessorDifferenceRequest, caller, context) => {
        const resolution = parseReadable(request.resolution, {
          field: 'resolution',
          max: resolutionMax,
        })
        const actor = toActor(caller, context)
        const by = caller.kind === 'account' ? caller.email : actor.name
        const resolved = await resolve(request.id, { resolution, by }, actor)
        const [difference] = await toDifferences([resolved])
        return { difference }
      },
    ),
  }

  async function resolve(
    id: string,
    { resolution, by }: { readonly resolution: string; readonly by: string },
    actor: Actor,
  ): Promise<StoredDifference> {
    if (!isUuid(id)) throw unknownDifference()
    return tx(pool, async (db) => {
      const at = now()
      const resolved = await store.resolve(db, id, { at, resolution, by })
      if (resolved === null) {
        if ((await store.findDifference(db, id)) === null) throw unknownDifference()
        throw new DomainError('CONFLICT', 'this difference is resolved already')
      }
      await auditSuccess(db, {
        appId: resolved.appId === null ? null : appId(resolved.appId),
        actor,
        action: 'processor_difference_resolved',
        details: { differenceId: id, payment: resolved.processorPaymentId, resolution },
        at,
      })
      return resolved
    })
  }

  async function toAccount({
    place,
    window,
    sums,
    newDifferences,
    failure,
  }: ReconciledPlace): Promise<pb.ReconcileProcessorResponse> {
    const clients = await clientIds([place.appId])
    return {
      plane: place.at.plane,
      account: place.at.account ?? undefined,
      clientId: clients.get(place.appId ?? ''),
      from: window.from.toISOString(),
      through: window.to.toISOString(),
      sums: sums.map(({ kind, currency, count, amount }) => ({
        kind,
        currency,
        count,
        amount: amount.toString(),
      })),
      differences: await toDifferences(newDifferences),
      failure: failure ?? undefined,
    }
  }

  async function toDifferences(
    stored: readonly StoredDifference[],
  ): Promise<pb.ProcessorDifference[]> {
    const clients = await clientIds(stored.map((difference) => difference.appId))
    return stored.map((difference) => toDifference(difference, clients))
  }

  async function clientIds(apps: readonly (string | null)[]): Promise<ReadonlyMap<string, string>> {
    const known = [...new Set(apps.filter((app) => app !== null))].map(appId)
    return findClientIds(pool, known)
  }

  return { processorReconciliationService }
}

const unknownDifference = (): DomainError =>
  new DomainError('NOT_FOUND', 'there is no such difference')

const toDifference = (
  difference: StoredDifference,
  clients: ReadonlyMap<string, string>,
): pb.ProcessorDifference => ({
  id: difference.id,
  subject: difference.subject,
  problem: difference.problem,
  plane: difference.at.plane,
  account: difference.at.account ?? undefined,
  clientId: clients.get(difference.appId ?? ''),
  processorPaymentId: difference.processorPaymentId,
  paymentId: difference.paymentId ?? undefined,
  ours: difference.ours?.toString(),
  theirs: difference.theirs?.toString(),
  currency: difference.currency,
  foundAt: difference.foundAt.toISOString(),
  resolvedAt: difference.resolvedAt?.toISOString(),
  resolution: difference.resolution ?? undefined,
  resolvedBy: difference.resolvedBy ?? undefined,
})
