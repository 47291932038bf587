import { DomainError } from '../../../proto/errors.ts'
import type * as pb from '../../../proto/gen/ts-proto/tollgate/plans/v1/discovery.ts'
import type { AppId } from '../../shared/ids.ts'
import type { AccountCaller, MemberCaller } from '../../rpc/callers.ts'
import {
  type Guard,
  member,
  operator,
  operatorWrite,
  orOperator,
  platformAdmin,
} from '../../rpc/guards.ts'
import { type Handlers, rpc } from '../../rpc/serve.ts'
import type { Shared } from '../../shared/shared.ts'
import { toCapability } from './discovery.ts'
import { checkOffer } from './document.ts'
import * as store from './entries-store.ts'
import type { Capability } from './profile.ts'
import type { CatalogReader } from './reader.ts'

export interface DiscoveryRpcDeps extends Pick<Shared, 'pool' | 'now'> {
  readonly pipelines: readonly string[]
  readonly url: string | null
  readonly reader: CatalogReader
  /** Throws NOT_FOUND for an unknown client id. */
  readonly appOf: (clientId: string) => Promise<AppId>
}

/** A member of the named app, or a platform admin for the catalogue alone. */
const reader: Guard<MemberCaller | AccountCaller> = {
  ...member('read'),
  admit: (request, authenticator) =>
    (request.clientId === undefined ? platformAdmin() : member('read')).admit(
      request,
      authenticator,
    ),
}

/**
 * Discovery service for operators, and for members who read it: lists offers, refreshes the
 * catalogue, adds and removes entries.
 */
export function createDiscoveryRpc(deps: DiscoveryRpcDeps) {
  const { pool, now, pipelines, url, appOf } = deps
  const renderRead = (read: store.CatalogRead | null): pb.CatalogRead | undefined =>
    url === null
      ? undefined
      : {
          url,
          readAt: read?.readAt?.toISOString(),
          triedAt: read?.triedAt.toISOString(),
          error: read?.error ?? undefined,
        }

  async function list(request: pb.ListOffersRequest): Promise<pb.Offer[]> {
    const { clientId, afterPipeline = '', afterModelId = '', limit } = request
    if (limit < 1 || limit > 1_000)
      throw new DomainError('REQUEST_INVALID', 'limit must be from 1 to 1000')
    const app = clientId === undefined ? null : await appOf(clientId)
    const after = { pipeline: afterPipeline, modelId: afterModelId }
    const offers = await store.listOffers(pool, app, { after, limit })
    const configured = afterPipeline === '' ? pipelines.map(toCapability) : []
    return [
      ...configured.map((offer) => ({ ...offer, source: 'setting', addedAt: undefined })),
      ...offers.map((offer) => ({ ...offer, addedAt: offer.addedAt.toISOString() })),
    ]
  }

  const discoveryService: Handlers<pb.DiscoveryServiceServer> = {
    listOffers: rpc(orOperator(reader, operator()), async (request: pb.ListOffersRequest) => ({
      offers: await list(request),
      read: renderRead(url === null ? null : await store.findRead(pool, url)),
    })),
    refreshOffers: rpc(operatorWrite(), async () => ({
      read: renderRead(await deps.reader.refresh()),
    })),
    createOffer: rpc(operatorWrite(), async (request: pb.CreateOfferRequest) => {
      const offer = offerOf(request)
      checkOffer(offer)
      await store.insertEntries(pool, 'operator', { entries: [offer], at: now() })
      return {}
    }),
    deleteOffer: rpc(operatorWrite(), async (request: pb.DeleteOfferRequest) => {
      if (await store.deleteEntry(pool, offerOf(request))) return {}
      throw new DomainError('NOT_FOUND', 'no operator has added this pipeline and model')
    }),
  }
  return { discoveryService }
}

const offerOf = ({ pipeline, modelId }: { pipeline: string; modelId: string }): Capability => ({
  pipeline,
  modelId,
})
