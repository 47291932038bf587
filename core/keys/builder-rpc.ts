import { DomainError } from '../../proto/errors.ts'
import type * as pb from '../../proto/gen/ts-proto/tollgate/keys/v1/builder.ts'
import type { UserChange } from '../identity/types.ts'
import { normalizeEmail } from '../lib/text/email.ts'
import { parseExternalUserId } from '../shared/ids.ts'
import { parseIdempotencyKey } from '../shared/idempotency.ts'
import { parseReadable } from '../shared/text.ts'
import { provisioner } from '../rpc/guards.ts'
import { type Handlers, rpc } from '../rpc/serve.ts'
import type { BuilderUsers } from './builder-users.ts'

export function createBuilderUsersRpc({ builderUsers }: { builderUsers: BuilderUsers }) {
  const builderUserService: Handlers<pb.BuilderUserServiceServer> = {
    provisionUser: rpc(provisioner(), async (request: pb.ProvisionUserRequest, caller, context) =>
      builderUsers.provision(
        caller,
        {
          change: changeOf(request),
          connection: connectionOf(request),
          issueApiKey: request.issueApiKey,
          idempotencyKey: parseIdempotencyKey(request.idempotencyKey),
        },
        { name: caller.name, context },
      ),
    ),
  }
  return { builderUserService }
}

function changeOf({ externalUserId, email: address }: pb.ProvisionUserRequest): UserChange {
  const change = { externalUserId: parseExternalUserId(externalUserId) }
  if (address === undefined) return change
  const email = normalizeEmail(address)
  if (email === null)
    throw new DomainError('REQUEST_INVALID', 'email must be an e-mail address with ASCII letters')
  return { ...change, email }
}

const connectionOf = ({ connection }: pb.ProvisionUserRequest): string | undefined =>
  connection === undefined ? undefined : parseReadable(connection, { field: 'connection' })
