import { DomainError } from '../../../proto/errors.ts'
import { createBatchLoader } from '../../lib/concurrency.ts'
import { newSecret, uuidV7 } from '../../lib/crypto.ts'
import { type Db, tx } from '../../lib/sql.ts'
import { addSeconds } from '../../lib/time.ts'
import { type Actor, auditSuccess } from '../../shared/audit.ts'
import { type Cursor, page } from '../../shared/cursor.ts'
import { type AppId, appId, isClientId } from '../../shared/ids.ts'
import type { Shared } from '../../shared/shared.ts'
import type { Clients } from '../apps/clients.ts'
import type { CredentialIssuer } from '../types.ts'
import * as store from './store.ts'

export type { TenantRow, TenantState } from './store.ts'

const tenantSecretPrefix = 'svc_ts_'
const validSecretsMax = 5
/** Maximum time in seconds for which older secrets stay valid after a rotation. */
const overlapMax = 2_592_000

type Deps = Shared & {
  readonly clients: Pick<Clients, 'appOf'>
  readonly credentialIssuers: readonly CredentialIssuer[]
}

export interface Rotation {
  readonly overlapSeconds: number
  readonly keepKeys: boolean
}

/** An authenticated tenant, with the id of the secret it used. */
export interface KnownTenant {
  readonly appId: AppId
  readonly clientId: string
  readonly secretId: string
}

/**
 * Tenants: apps that create their users at the builder API (docs/builder-api.md). A tenant's name
 * is the app's public client id. That client has no secret in OAuth; the tenant's secret works only
 * at the builder API.
 */
export function createTenants(deps: Deps) {
  const { pool, secrets, clients, grants, credentialIssuers, now } = deps
  const findSecrets = createBatchLoader(async (ids: readonly string[]) => {
    const rows = Map.groupBy(
      await store.findSecrets(pool, [...new Set(ids)], now()),
      (row) => row.client_id,
    )
    return (id) => rows.get(id) ?? []
  })

  /**
   * Returns the tenant of the first pair with the right secret; otherwise null. An unknown name
   * takes the same work.
   */
  async function authenticate(
    pairs: readonly { id: string; secret: string }[],
  ): Promise<KnownTenant | null> {
    for (const { id, secret } of pairs) {
      const rows = isClientId(id) ? await findSecrets(id) : []
      if (rows.length === 0) secrets.store(secret)
      const match = rows.find((row) =>
        secrets.matches(secret, { hash: row.secret_hash, pepperId: row.pepper_id }),
      )
      if (match)
        return { appId: appId(match.app_id), clientId: match.client_id, secretId: match.id }
    }
    return null
  }

  /**
   * Makes an app a tenant. Throws CONFLICT when it is one already. The secret is returned only
   * once.
   */
  async function create(clientId: string, actor: Actor) {
    const app = await clients.appOf(clientId)
    const secret = await tx(pool, async (db) => {
      if (!(await store.insertTenant(db, app, now())))
        throw new DomainError('CONFLICT', 'the app is already a tenant; rotate its secret')
      await note(db, { app, actor, action: 'tenant_created' })
      return issue(db, app)
    })
    return { tenant: await get(app), secret }
  }

  /**
   * Creates a secret. Older secrets expire after the overlap. With an overlap of 0, everything
   * created with them also ends.
   */
  async function rotate(clientId: string, { overlapSeconds, keepKeys }: Rotation, actor: Actor) {
    if (overlapSeconds > overlapMax)
      throw new DomainError('REQUEST_INVALID', `overlap_seconds must be from 0 to ${overlapMax}`)
    const app = await clients.appOf(clientId)
    return tx(pool, async (db) => {
      await lock(db, app)
      const at = now()
      const end = addSeconds(at, overlapSeconds)
      const olderIds = await store.endSecrets(db, app, { at, end })
      if ((await store.countSecrets(db, app, at)) >= validSecretsMax)
        throw new DomainError(
          'CONFLICT',
          `a tenant may have ${validSecretsMax} valid secrets; end the old ones with an overlap of 0`,
        )
      const ends = { app, ids: overlapSeconds === 0 ? olderIds : [], keepKeys, at }
      const revokedKeys = await endDescendants(db, ends)
      const action = 'tenant_secret_rotated'
      await note(db, { app, actor, action }, { overlapSeconds, keepKeys, revokedKeys })
      return { secret: await issue(db, app), oldSecretsExpireAt: end, revokedKeys }
    })
  }

  /** Ends everything that descends from the secrets. Returns the number of ended API keys. */
  async function endDescendants(
    db: Db,
    { app, ids, keepKeys, at }: { app: AppId; ids: string[]; keepKeys: boolean; at: Date },
  ): Promise<number> {
    if (ids.length === 0) return 0
    const cause = 'secret_revoked'
    await grants.end(
      db,
      ids.map((id) => ({ id, cause, at, forever: true })),
    )
    let count = 0
    for (const { endOfGrants } of credentialIssuers)
      count += (await endOfGrants?.(db, { appId: app, grants: ids, at, keep: keepKeys })) ?? 0
    return count
  }

  /**
   * Enables or disables a tenant. A disabled tenant is refused like an unknown one; its users and
   * their keys stay valid.
   */
  async function setStatus(clientId: string, status: store.TenantState, actor: Actor) {
    const app = await clients.appOf(clientId)
    await tx(pool, async (db) => {
      await lock(db, app)
      await store.setStatus(db, app, { to: status, at: now() })
      await note(db, {
        app,
        actor,
        action: status === 'active' ? 'tenant_enabled' : 'tenant_disabled',
      })
    })
    return get(app)
  }

  async function list(filter: { after: Cursor | null; limit: number }) {
    const rows = await store.listTenants(pool, { ...filter, app: null, at: now() })
    return page(
      rows.map((row) => ({ ...row, createdAt: row.created_at })),
      filter.limit,
    )
  }

  async function get(app: AppId): Promise<store.TenantRow> {
    const [row] = await store.listTenants(pool, { app, at: now(), after: null, limit: 1 })
    if (!row) throw noSuchTenant()
    return row
  }

  async function issue(db: Db, app: AppId): Promise<string> {
    const at = now()
    const secret = newSecret(tenantSecretPrefix)
    const stored = { id: uuidV7(at.getTime()), ...secrets.store(secret) }
    await store.insertSecret(db, app, { secret: stored, at })
    return secret
  }

  async function lock(db: Db, app: AppId): Promise<void> {
    if (!(await store.lockTenant(db, app))) throw noSuchTenant()
  }

  async function note(
    db: Db,
    { app, actor, action }: { app: AppId; actor: Actor; action: string },
    details: Readonly<Record<string, string | number | boolean>> = {},
  ): Promise<void> {
    await auditSuccess(db, { appId: app, actor, action, details, at: now() })
  }

  return { authenticate, create, rotate, setStatus, list }
}

export type Tenants = ReturnType<typeof createTenants>

const noSuchTenant = (): DomainError =>
  new DomainError(
    'NOT_FOUND',
    'the app is not a tenant; ./tollgate tenant create makes it one, and ./tollgate tenant list shows all tenants',
  )
