import type * as pb from '../../../proto/gen/ts-proto/tollgate/signer/v1/signers.ts'
import { DomainError } from '../../../proto/errors.ts'
import { toSeconds } from '../../lib/time.ts'
import { parseIdempotencyKey } from '../../shared/idempotency.ts'
import { type AppOperatorCaller, type MemberCaller, toActor } from '../../rpc/callers.ts'
import {
  appOperator,
  appOperatorWrite,
  member,
  operator,
  operatorWrite,
  orOperator,
  platformAdmin,
  serviceCaller,
} from '../../rpc/guards.ts'
import { type Context, type Handlers, rpc } from '../../rpc/serve.ts'
import type { OwnSecretRequest, OwnSecrets, SecretOwner } from './own-secrets.ts'
import type { Signers } from './service.ts'
import type { OwnSecretRow, Purpose, SecretRow, SignerRow } from './store.ts'

const administering = orOperator(platformAdmin(), operatorWrite())

export function createSignersRpc({ signers }: { signers: Signers }) {
  const signersService: Handlers<pb.SignersServiceServer> = {
    createSigner: rpc(administering, async (request: pb.CreateSignerRequest, caller, context) => {
      const { signer, credentials } = await signers.create(request, toActor(caller, context))
      return { signer: toInfo(signer), credentials }
    }),
    listSigners: rpc(
      orOperator(platformAdmin(), operator()),
      async (_request: pb.ListSignersRequest) => ({
        signers: (await signers.list()).map(toInfo),
      }),
    ),
    rotateSigner: rpc(administering, async (request: pb.RotateSignerRequest, caller, context) => ({
      credentials: await signers.rotate(
        request.name,
        request.overlapSeconds,
        toActor(caller, context),
      ),
    })),
    updateSigner: rpc(administering, async (request: pb.UpdateSignerRequest, caller, context) => ({
      signer: toInfo(await signers.setApps(request.name, request, toActor(caller, context))),
    })),
    deleteSigner: rpc(administering, async ({ name }: pb.DeleteSignerRequest, caller, context) => {
      await signers.remove(name, toActor(caller, context))
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

/** Secrets of an app's own signer, for its owners and for operators. */
export function createAppSecretsRpc({ ownSecrets }: { ownSecrets: OwnSecrets }) {
  const writer = orOperator(member('own'), appOperatorWrite())
  const appSecretService: Handlers<pb.AppSecretServiceServer> = {
    listAppSecrets: rpc(
      orOperator(member('own'), appOperator()),
      async (_: pb.ListAppSecretsRequest, { appId }) => ({
        secrets: (await ownSecrets.list(appId)).map(toAppSecret),
      }),
    ),
    createAppSecret: rpc(writer, async (request: pb.CreateAppSecretRequest, caller, context) =>
      ownSecrets.create(toOwner(caller, context), parseSecret(request)),
    ),
    revokeAppSecret: rpc(writer, async ({ id }: pb.RevokeAppSecretRequest, caller, context) => {
      await ownSecrets.revoke(toOwner(caller, context), id)
      return {}
    }),
  }
  return { appSecretService }
}

const toOwner = (caller: MemberCaller | AppOperatorCaller, context: Context): SecretOwner => ({
  appId: caller.appId,
  clientId: caller.clientId,
  actor: toActor(caller, context),
  idempotencyScope:
    caller.kind === 'operator'
      ? `operator:signer-secrets:${caller.clientId}`
      : `${caller.clientId}:${caller.accountId}:signer-secrets`,
})

const parseSecret = (request: pb.CreateAppSecretRequest): OwnSecretRequest => ({
  idempotencyKey: parseIdempotencyKey(request.idempotencyKey),
  purpose: parsePurpose(request.purpose),
  overlapSeconds: request.overlapSeconds ?? null,
})

function parsePurpose(text: string): Purpose {
  if (text !== 'decisions' && text !== 'events')
    throw new DomainError('REQUEST_INVALID', 'purpose must be decisions or events')
  return text
}

const toAppSecret = ({ id, purpose, created_at, ends_at }: OwnSecretRow): pb.AppSecret => ({
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
