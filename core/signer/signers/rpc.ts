import type * as pb from '../../../proto/gen/ts-proto/tollgate/signer/v1/signers.ts'
import { DomainError } from '../../../proto/errors.ts'
import { toSeconds } from '../../lib/time.ts'
import { parseIdempotencyKey } from '../../shared/idempotency.ts'
import {
  type AccountCaller,
  type AppOperatorCaller,
  type MemberCaller,
  type OperatorCaller,
  deploymentIdempotencyScope,
  toActor,
} from '../../rpc/callers.ts'
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
import type { SignerOperator, Signers } from './service.ts'
import type { OwnSecretRow, Purpose, SecretRow } from './store.ts'

const administering = orOperator(platformAdmin(), operatorWrite())

export function createSignersRpc({ signers }: { signers: Signers }) {
  const signersService: Handlers<pb.SignersServiceServer> = {
    createSigner: rpc(
      administering,
      async ({ idempotencyKey, ...request }: pb.CreateSignerRequest, caller, context) =>
        signers.create(request, toOperator(caller, context, idempotencyKey)),
    ),
    listSigners: rpc(
      orOperator(platformAdmin(), operator()),
      async (_request: pb.ListSignersRequest) => ({
        signers: await signers.list(),
      }),
    ),
    rotateSigner: rpc(
      administering,
      async ({ idempotencyKey, ...request }: pb.RotateSignerRequest, caller, context) => ({
        credentials: await signers.rotate(request, toOperator(caller, context, idempotencyKey)),
      }),
    ),
    updateSigner: rpc(administering, async (request: pb.UpdateSignerRequest, caller, context) => ({
      signer: await signers.setApps(request.name, request, toActor(caller, context)),
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

const toOperator = (
  caller: AccountCaller | OperatorCaller,
  context: Context,
  idempotencyKey: string | undefined,
): SignerOperator => ({
  actor: toActor(caller, context),
  idempotencyScope: deploymentIdempotencyScope(caller, 'signers'),
  idempotencyKey: parseIdempotencyKey(idempotencyKey),
})

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

const toSecret = ({ all_apps, client_ids, ends_at, ...row }: SecretRow): pb.SignerSecret => ({
  ...row,
  allApps: all_apps,
  clientIds: client_ids,
  endsAt: BigInt(ends_at ? toSeconds(ends_at) : 0),
})
