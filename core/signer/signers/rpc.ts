import type * as pb from '../../../proto/gen/ts-proto/tollgate/signer/v1/signers.ts'
import { DomainError } from '../../../proto/errors.ts'
import { toSeconds } from '../../lib/time.ts'
import { parseIdempotencyKey } from '../../platform/idempotency.ts'
import type { AppId } from '../../platform/ids.ts'
import {
  type MemberCaller,
  member,
  operator,
  operatorActor,
  operatorWrite,
  serviceCaller,
} from '../../rpc/callers.ts'
import { type Context, type Handlers, rpc } from '../../rpc/serve.ts'
import type { OwnSecretRequest, OwnSecrets, SecretOwner } from './own-secrets.ts'
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

/** Own signer service for an app's owners. */
export function createOwnSignerRpc({ ownSecrets }: { ownSecrets: OwnSecrets }) {
  const ownSignerService: Handlers<pb.OwnSignerServiceServer> = {
    listOwnSecrets: rpc(member('own'), async (_: pb.ListOwnSecretsRequest, caller) => ({
      secrets: (await ownSecrets.list(caller.appId)).map(toOwnSecret),
    })),
    createOwnSecret: rpc(
      member('own'),
      async (request: pb.CreateOwnSecretRequest, caller, context) =>
        ownSecrets.create(memberOwner(caller, context), parseSecret(request)),
    ),
    revokeOwnSecret: rpc(
      member('own'),
      async ({ id }: pb.RevokeOwnSecretRequest, caller, context) => {
        await ownSecrets.revoke(memberOwner(caller, context), id)
        return {}
      },
    ),
  }
  return { ownSignerService }
}

interface OperatorSignerDeps {
  readonly ownSecrets: OwnSecrets
  /** Returns the app of a public client id. Throws NOT_FOUND for an unknown one. */
  readonly appOf: (clientId: string) => Promise<AppId>
}

/** Own signer service for operators. */
export function createOperatorSignerRpc({ ownSecrets, appOf }: OperatorSignerDeps) {
  const ownerOf = async (clientId: string, context: Context): Promise<SecretOwner> => ({
    appId: await appOf(clientId),
    clientId,
    actor: operatorActor(context),
    idempotencyScope: `operator:signer-secrets:${clientId}`,
  })
  const operatorSignerService: Handlers<pb.OperatorSignerServiceServer> = {
    listAppSecrets: rpc(operator(), async ({ clientId }: pb.ListAppSecretsRequest) => ({
      secrets: (await ownSecrets.list(await appOf(clientId))).map(toOwnSecret),
    })),
    createAppSecret: rpc(operatorWrite(), async (request: pb.CreateAppSecretRequest, _, context) =>
      ownSecrets.create(await ownerOf(request.clientId, context), parseSecret(request)),
    ),
    revokeAppSecret: rpc(
      operatorWrite(),
      async ({ clientId, id }: pb.RevokeAppSecretRequest, _, context) => {
        await ownSecrets.revoke(await ownerOf(clientId, context), id)
        return {}
      },
    ),
  }
  return { operatorSignerService }
}

const memberOwner = (
  { appId, clientId, accountId }: MemberCaller,
  { correlationId }: Context,
): SecretOwner => ({
  appId,
  clientId,
  actor: { name: accountId, context: { correlationId } },
  idempotencyScope: `${clientId}:${accountId}:signer-secrets`,
})

const parseSecret = (request: pb.CreateOwnSecretRequest): OwnSecretRequest => ({
  idempotencyKey: parseIdempotencyKey(request.idempotencyKey),
  purpose: parsePurpose(request.purpose),
  overlapSeconds: request.overlapSeconds ?? null,
})

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
  endsAt: BigInt(ends_at ? toSeconds(ends_at) : 0),
})
