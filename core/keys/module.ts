import { BuilderUserServiceService } from '../../proto/gen/ts-proto/tollgate/keys/v1/builder.ts'
import { KeyServiceService } from '../../proto/gen/ts-proto/tollgate/keys/v1/keys.ts'
import type { IdentityApi } from '../identity/module.ts'
import type { CredentialIssuer } from '../identity/types.ts'
import type { Shared } from '../shared/shared.ts'
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
  shared: Shared,
  { identity: { users, owners, userProvider } }: { readonly identity: IdentityApi },
) {
  const { revocationBoundSeconds } = shared.config
  const keys = createKeys({ ...shared, users, owners })
  const appKeys = createAppKeys({ ...shared, keys, users })
  const builderUsers = createBuilderUsers({ ...shared, users, userProvider })
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
