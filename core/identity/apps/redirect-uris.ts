import { DomainError } from '../../../proto/errors.ts'
import { type Db, type Pool, tx } from '../../lib/sql.ts'
import type { Now } from '../../lib/time.ts'
import { type Actor, auditSuccess } from '../../shared/audit.ts'
import type { AppId } from '../../shared/ids.ts'
import { parseRedirectUris } from '../input.ts'
import { pickClient } from './clients.ts'
import * as store from './store.ts'

/** Whether a URI is a redirect target after login or after logout. */
export type RedirectUse = 'login' | 'logout'

export interface RedirectUris {
  readonly login: string[]
  readonly logout: string[]
}

interface Change {
  readonly use: RedirectUse
  readonly uri: string
}

const columns = { login: 'redirect_uris', logout: 'post_logout_redirect_uris' } as const
const fields = { login: 'redirectUris', logout: 'postLogoutRedirectUris' } as const

/**
 * Adds and removes single redirect URIs of an app's public client. The dashboard replaces the whole
 * list (`management.ts`).
 */
export function createRedirectUris({ pool, now }: { readonly pool: Pool; readonly now: Now }) {
  async function list(app: AppId): Promise<RedirectUris> {
    return urisOf(await clientOf(pool, app))
  }

  /**
   * Throws REQUEST_INVALID for an invalid URI or too many URIs. Adding an existing URI changes
   * nothing.
   */
  const add = (app: AppId, { use, uri }: Change, actor: Actor): Promise<RedirectUris> =>
    change(app, { use, actor }, (uris) =>
      uris.includes(uri) ? uris : parseRedirectUris([...uris, uri], fields[use]),
    )

  /** Throws NOT_FOUND when the client has no such URI. */
  const remove = (app: AppId, { use, uri }: Change, actor: Actor): Promise<RedirectUris> =>
    change(app, { use, actor }, (uris) => {
      if (uris.includes(uri)) return uris.filter((each) => each !== uri)
      throw new DomainError('NOT_FOUND', `the app has no such URI for ${use}`)
    })

  async function change(
    app: AppId,
    { use, actor }: { use: RedirectUse; actor: Actor },
    edit: (uris: readonly string[]) => readonly string[],
  ): Promise<RedirectUris> {
    return tx(pool, async (db) => {
      await store.lockApp(db, app)
      const before = await clientOf(db, app)
      const column = columns[use]
      const uris = edit(before[column])
      const after = { ...before, [column]: [...uris] }
      if (uris === before[column]) return urisOf(before)
      await store.updateClient(db, after)
      await auditSuccess(db, {
        appId: app,
        actor,
        action: 'app_updated',
        details: { changed: column },
        at: now(),
      })
      return urisOf(after)
    })
  }

  const clientOf = async (db: Db, app: AppId): Promise<store.ClientRow> =>
    pickClient(await store.findClients(db, app, now()), 'public')

  return { list, add, remove }
}

export type RedirectUrisService = ReturnType<typeof createRedirectUris>

const urisOf = (client: store.ClientRow): RedirectUris => ({
  login: client.redirect_uris,
  logout: client.post_logout_redirect_uris,
})
