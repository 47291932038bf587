import type * as pb from '../../../proto/gen/ts-proto/tollgate/books/v1/receipts.ts'
import { DomainError } from '../../../proto/errors.ts'
import type { Pool } from '../../lib/sql.ts'
import type { AppId } from '../../platform/ids.ts'
import { type RequireMetering, m2mOrMember, operator } from '../../rpc/callers.ts'
import { type Handlers, rpc } from '../../rpc/serve.ts'
import { findApp } from '../store.ts'
import type { Receipt, Receipts, Roots } from './receipts.ts'

export interface ReceiptRpcDeps {
  readonly pool: Pool
  readonly issuer: string
  readonly receipts: Receipts
  readonly requireMetering: RequireMetering
}

export function createReceiptRpc({ pool, issuer, receipts, requireMetering }: ReceiptRpcDeps) {
  async function requireApp(clientId: string): Promise<AppId> {
    const app = await findApp(pool, clientId)
    if (!app) throw new DomainError('NOT_FOUND', 'no such app')
    return app.id
  }

  const receiptService: Handlers<pb.ReceiptServiceServer> = {
    getAppReceipt: rpc(
      requireMetering(m2mOrMember()),
      async ({ eventId }: pb.GetAppReceiptRequest, { appId }) => ({
        receipt: toReceipt(await receipts.issue(eventId, appId), issuer),
      }),
    ),
    listAppRoots: rpc(
      requireMetering(m2mOrMember()),
      async ({ from, to, limit }: pb.ListAppRootsRequest, { appId }) => ({
        roots: toRoots(await receipts.listRoots(appId, { from, to, limit })),
      }),
    ),
    getReceipt: rpc(operator(), async ({ clientId, eventId }: pb.GetReceiptRequest) => ({
      receipt: toReceipt(
        await receipts.issue(eventId, clientId === undefined ? null : await requireApp(clientId)),
        issuer,
      ),
    })),
    listRoots: rpc(operator(), async ({ clientId, from, to, limit }: pb.ListRootsRequest) => ({
      roots: toRoots(await receipts.listRoots(await requireApp(clientId), { from, to, limit })),
    })),
  }
  return { receiptService }
}

type Jwk = Receipt['keys'][number]

const toKey = ({ kty = '', kid = '', alg = '', use = '', n, e, crv, x, y }: Jwk) => ({
  kty,
  kid,
  alg,
  use,
  n,
  e,
  crv,
  x,
  y,
})

const toReceipt = (
  { receipt, proof, root, isProvisional, keys }: Receipt,
  issuer: string,
): pb.Receipt => ({
  receipt,
  proof: proof ? { ...proof, inclusionPath: [...proof.inclusionPath] } : undefined,
  root: root ?? undefined,
  provisional: isProvisional,
  keys: keys.map(toKey),
  jwksUri: `${issuer}/jwks`,
})

const toRoots = ({ roots, keys, next }: Roots): pb.ReceiptRoots => ({
  roots: roots.map(({ day, treeSize, rootHash, statement }) => ({
    day,
    treeSize,
    rootHash: rootHash.toString('hex'),
    statement,
  })),
  keys: keys.map(toKey),
  nextFrom: next ?? undefined,
})
