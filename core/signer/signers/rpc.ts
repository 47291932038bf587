import type * as pb from '../../../proto/gen/ts-proto/tollgate/signer/v1/signers.ts'
import { DomainError } from '../../../proto/errors.ts'
import { secondsOf } from '../../lib/time.ts'
import { parseIdempotencyKey } from '../../platform/idempotency.ts'
import { member, operator, operatorWrite, serviceCaller } from '../../rpc/callers.ts'
import { type Handlers, rpc } from '../../rpc/serve.ts'
import type { OwnSecrets } from './own-secrets.ts'
import type { Signers } from './service.ts'
import type { OwnSecretRow, Purpose, SecretRow, SignerRow } from './store.ts'

export function createSignersRpc({ signers }: { signers: Signers }) {
  const signersService: Handlers<pb.SignersServiceServer> = {
    createSigner: rpc(operatorWrite(), async (request: pb.CreateSignerRequest) => {
      const { signer, credentials } = await signers.create(request)
      return { signer: toInfo(signer), credentials }
    }),
    listSigners: rpc(operator(), async (_request: pb.ListSignersRequest) => ({
      signers: (await signers.list()).map(toInfo),
    })),
    rotateSigner: rpc(operatorWrite(), async (request: pb.RotateSignerRequest) => ({
      credentials: await signers.rotate(request.name, request.overlapSeconds),
    })),
    setSignerApps: rpc(operatorWrite(), async (request: pb.SetSignerAppsRequest) => ({
      signer: toInfo(await signers.setApps(request.name, request)),
    })),
    removeSigner: rpc(operatorWrite(), async ({ name }: pb.RemoveSignerRequest) => {
      await signers.remove(name)
      return {}
    }),
    listSignerSecrets: rpc(
      serviceCaller('sidecar'),
      async (_request: pb.ListSignerSecretsRequest) => ({
        secrets: (await signers.listSecrets()).map(toSecret),
      }),
    ),
  }
  return { signersService }
}

/** What owners of an app do with the signer that it brings. */
export function createOwnSignerRpc({ ownSecrets }: { ownSecrets: OwnSecrets }) {
  const ownSignerService: Handlers<pb.OwnSignerServiceServer> = {
    listOwnSecrets: rpc(member('own'), async (_: pb.ListOwnSecretsRequest, caller) => ({
      secrets: (await ownSecrets.list(caller)).map(toOwnSecret),
    })),
    createOwnSecret: rpc(
      member('own'),
      async (request: pb.CreateOwnSecretRequest, caller, context) => {
        const idempotencyKey = parseIdempotencyKey(request.idempotencyKey)
        const purpose = parsePurpose(request.purpose)
        const overlapSeconds = request.overlapSeconds ?? null
        return ownSecrets.create(caller, { purpose, overlapSeconds, idempotencyKey }, context)
      },
    ),
    revokeOwnSecret: rpc(
      member('own'),
      async ({ id }: pb.RevokeOwnSecretRequest, caller, context) => {
        await ownSecrets.revoke(caller, id, context)
        return {}
      },
    ),
  }
  return { ownSignerService }
}

function parsePurpose(text: string): Purpose {
  if (text !== 'decisions' && text !== 'events')
    throw new DomainError('REQUEST_INVALID', 'purpose must be decisions or events')
  return text
}

const toOwnSecret = ({ id, purpose, created_at, ends_at }: OwnSecretRow): pb.OwnSecret => ({
  id,
  purpose,
  createdAt: created_at.toISOString(),
  expiresAt: ends_at?.toISOString(),
})

const toInfo = (row: SignerRow): pb.SignerInfo => ({
  name: row.name,
  allApps: row.all_apps,
  clientIds: row.client_ids,
  mayPushEvents: row.may_push_events,
  createdAt: row.created_at.toISOString(),
  secrets: row.secrets,
})

const toSecret = ({ all_apps, client_ids, ends_at, ...row }: SecretRow): pb.SignerSecret => ({
  ...row,
  allApps: all_apps,
  clientIds: client_ids,
  endsAt: BigInt(ends_at ? secondsOf(ends_at) : 0),
})
