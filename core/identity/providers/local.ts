import type { Pool } from '../../lib/sql.ts'
import { findUsers } from '../users/store.ts'
import { providerName } from './names.ts'
import type { UserProvider } from './provider.ts'

/** No provider but our own table of users, which the caller writes next. */
export const createLocalProvider = ({ pool }: { readonly pool: Pool }): UserProvider => ({
  ensureUser: async (user) => {
    const known = await findUsers(pool, [user.app], [user.externalUserId])
    return { providerUserId: `local|${providerName(user)}`, created: known.length === 0 }
  },
})
