import { BuilderUserServiceService } from '../../proto/gen/ts-proto/tollgate/keys/v1/builder.ts'
import { KeyServiceService } from '../../proto/gen/ts-proto/tollgate/keys/v1/keys.ts'
import type { IdentityApi } from '../identity/module.ts'
import type { CredentialIssuer } from '../identity/types.ts'
import type { Platform } from '../platform/platform.ts'
import { grpcService } from '../rpc/serve.ts'
import { createAppKeys } from './app-keys.ts'
import { createBuilderUsersRpc } from './builder-rpc.ts'
import { createBuilderUsers } from './builder-users.ts'
import { createKeys } from './keys.ts'
import { createKeysRpc } from './rpc.ts'
import { revokeKeysOfApp, revokeKeysOfGrants, revokeKeysOfUser } from './store.ts'

/**
 * Ends keys with their user or app. Separate from the module, because identity is created before
 * keys.
 */
export const keyCredentials: CredentialIssuer = {
  endOfUser: revokeKeysOfUser,
  endOfApp: revokeKeysOfApp,
  endOfGrants: revokeKeysOfGrants,
}

/** API keys of end users and of apps. */
export function createKeysModule(
  platform: Platform,
  { identity: { users, owners, userProvider } }: { readonly identity: IdentityApi },
) {
  const { pool, log, now, secrets, idempotency, grants } = platform
  const { revocationBoundSeconds } = platform.config
  const keys = createKeys({ pool, users, owners, secrets, idempotency, grants, log, now })
  const appKeys = createAppKeys({ pool, secrets, idempotency, grants, keys, users, now })
  const forBuilders = { pool, users, userProvider, secrets, idempotency, now }
  const builderUsers = createBuilderUsers(forBuilders)
  return {
    api: keys,
    services: [
      grpcService(
        KeyServiceService,
        createKeysRpc({ keys, appKeys, revocationBoundSeconds }).keyService,
      ),
      grpcService(
        BuilderUserServiceService,
        createBuilderUsersRpc({ builderUsers }).builderUserService,
      ),
    ],
  }
}
