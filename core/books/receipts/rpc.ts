import type * as pb from '../../../proto/gen/ts-proto/tollgate/books/v1/receipts.ts'
import { DomainError } from '../../../proto/errors.ts'
import type { Pool } from '../../lib/sql.ts'
import type { AppId } from '../../shared/ids.ts'
import { type RequireMetering, m2mOrMember, operator, orOperator } from '../../rpc/guards.ts'
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

  const appOf = async (clientId: string | undefined): Promise<AppId | null> =>
    clientId === undefined ? null : requireApp(clientId)

  const receiptService: Handlers<pb.ReceiptServiceServer> = {
    getReceipt: rpc(
      orOperator(requireMetering(m2mOrMember()), operator()),
      async ({ clientId, eventId }: pb.GetReceiptRequest, caller) => {
        const app = caller.kind === 'operator' ? await appOf(clientId) : caller.appId
        return { receipt: toReceipt(await receipts.issue(eventId, app), issuer) }
      },
    ),
    listRoots: rpc(
      orOperator(requireMetering(m2mOrMember()), operator()),
      async ({ clientId, from, to, limit }: pb.ListRootsRequest, caller) => {
        const app = caller.kind === 'operator' ? await requireApp(clientId) : caller.appId
        return { roots: toRoots(await receipts.listRoots(app, { from, to, limit })) }
      },
    ),
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
