import type { Pool } from '../../lib/sql.ts'
import type { Shared } from '../../shared/shared.ts'
import { findUsers } from '../users/store.ts'
import { createAuth0Directory } from './auth0/directory.ts'
import type { UserProviderConfig } from './config.ts'
import { createDirectoryProvider } from './directory.ts'
import { providerName } from './names.ts'
import type { UserProvider } from './provider.ts'

/**
 * Opens the configured provider. Sends no request, so the provider may be unavailable when core
 * starts.
 */
export function openUserProvider(
  { budgetMs, ...deps }: Pick<Shared, 'pool' | 'log' | 'now'> & { readonly budgetMs?: number },
  config: UserProviderConfig,
): UserProvider {
  if (config.name === 'local') return localProvider(deps.pool)
  const directory = createAuth0Directory({ config: config.auth0, log: deps.log })
  return createDirectoryProvider({ ...deps, directory, budgetMs })
}

/** Uses only our own table of users, which the caller writes next. Ignores connections. */
const localProvider = (pool: Pool): UserProvider => ({
  ensureUser: async (user) => {
    const known = await findUsers(pool, [{ app: user.app, external: user.externalUserId }])
    return { providerUserId: `local|${providerName(user)}`, created: known.length === 0 }
  },
})
