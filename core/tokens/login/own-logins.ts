import { DomainError } from '../../../proto/errors.ts'
import type { Clients } from '../../identity/apps/clients.ts'
import { tx } from '../../lib/sql.ts'
import { addSeconds } from '../../lib/time.ts'
import type { SelfCaller } from '../../rpc/callers.ts'
import { isUuid } from '../../shared/ids.ts'
import type { Shared } from '../../shared/shared.ts'
import { splitScopes } from '../scopes.ts'
import * as store from './store.ts'
import type { TokenFamilies } from './token-families.ts'

type Deps = Shared & {
  readonly clients: Pick<Clients, 'findPublic'>
  readonly families: Pick<TokenFamilies, 'end'>
  /** Lifetime of an access token, for which a login without a refresh token lasts. */
  readonly ttlSeconds: number
}

const listedMax = 100

/** A person's own logins to an app: from browsers, programs and devices. */
export function createOwnLogins({ pool, clients, families, ttlSeconds, now }: Deps) {
  /** Lists the logins that have not ended, newest first. */
  async function list(caller: SelfCaller) {
    const at = now()
    const since = addSeconds(at, -ttlSeconds)
    const rows = await store.listFamilies(pool, caller, { at, since, limit: listedMax })
    return Promise.all(
      rows.map(async (row) => ({
        loginId: row.id,
        createdAt: row.created_at.toISOString(),
        expiresAt: row.expires_at.toISOString(),
        lastUsedAt: row.last_used_at.toISOString(),
        oauthClientId: row.client_id ?? undefined,
        clientName: row.client_id === null ? undefined : await nameOf(row.client_id),
        scopes: splitScopes(row.scope ?? ''),
      })),
    )
  }

  const nameOf = async (clientId: string): Promise<string | undefined> =>
    (await clients.findPublic(clientId))?.appName

  /** Ends one of the person's logins. Throws NOT_FOUND for any other. */
  async function end(caller: SelfCaller, id: string): Promise<Date> {
    const { appId, userId, accountId: actor } = caller
    return tx(pool, async (db) => {
      if (!isUuid(id) || !(await store.lockFamily(db, { appId, userId, id })))
        throw new DomainError('NOT_FOUND', 'you have no such login')
      const at = now()
      await families.end(db, { id, cause: 'login_revoked', actor })
      return at
    })
  }

  return { list, end }
}

export type OwnLogins = ReturnType<typeof createOwnLogins>
