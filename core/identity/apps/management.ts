import { auditChange, lockApp, noSuchApp } from './change.ts'
import { createDomains } from './domains.ts'
import { type SecretRotationDeps, createSecretRotation } from './secret-rotation.ts'
import { DomainError } from '../../../proto/errors.ts'
import { GrantType } from '../../../proto/oauth.ts'
import { type AppAuditFilter, listEntries } from '../../shared/audit-log/entries.ts'
import type { AccountCaller, MemberCaller } from '../../rpc/callers.ts'
import { type Cursor, page } from '../../shared/cursor.ts'
import { scopeGrant } from '../../shared/lineage/grants.ts'
import type { AppId } from '../../shared/ids.ts'
import { type Db, tx } from '../../lib/sql.ts'
import type { Context } from '../../rpc/serve.ts'
import { pickClient } from './clients.ts'
import { parseName } from '../input.ts'
import * as store from './store.ts'

type Deps = SecretRotationDeps & {
  /** How tickets reach this deployment. */
  readonly meteringMode: store.MeteringMode
  /** Throws CONFLICT for an app that must not be deleted now. */
  readonly requireDeletable: (db: Db, app: AppId) => Promise<void>
}

/** Changes by an owner. Absent fields stay unchanged. */
export type AppChange = Partial<Omit<store.AppRow, 'id' | 'status' | 'created_at'>>

export type ClientChange = Partial<
  Omit<store.ClientRow, 'client_id' | 'kind' | 'secret_starts' | 'secret_ends'>
>

export interface AppView {
  readonly app: store.AppRow
  readonly publicClient: store.ClientRow
  readonly m2mClient: store.ClientRow
  readonly domains: readonly store.DomainRow[]
}

/** Operations of an app's members. Each change has an entry in the audit log. */
export function createManagement(deps: Deps) {
  const { pool, meteringMode, grants, credentialIssuers, requireDeletable, now } = deps

  async function listOwn(
    account: AccountCaller,
    filter: { all: boolean; after: Cursor | null; limit: number },
  ) {
    if (filter.all && !account.isPlatformAdmin) {
      throw new DomainError('EDIT_FORBIDDEN', 'only a platform admin may list every app')
    }
    const rows = await store.listOwnApps(pool, { ...filter, account: account.accountId })
    return page(
      rows.map((row) => ({ ...row, createdAt: row.created_at })),
      filter.limit,
    )
  }

  const view = ({ appId }: { readonly appId: AppId }): Promise<AppView> => read(pool, appId)

  async function read(db: Db, app: AppId): Promise<AppView> {
    const row = await store.findApp(db, app)
    if (!row) throw noSuchApp()
    const rows = await store.findClients(db, app, now())
    const [publicClient, m2mClient] = [pickClient(rows, 'public'), pickClient(rows, 'm2m')]
    return { app: row, publicClient, m2mClient, domains: await store.listDomains(db, app) }
  }

  async function update(
    caller: MemberCaller,
    change: { app: AppChange; client: ClientChange },
    context: Context,
  ): Promise<AppView> {
    return tx(pool, async (db) => {
      const app = await lockApp(db, caller.appId)
      const at = now()
      const before = pickClient(await store.findClients(db, caller.appId, at), 'public')
      const client = { ...before, ...change.client }
      checkClient(client)
      const name = renamed(app, change.app)
      await store.updateApp(db, { ...withMeteringMode(app, change.app, meteringMode), name }, at)
      await store.updateClient(db, client)
      const takenScopes = before.scopes.filter((scope) => !client.scopes.includes(scope))
      await endScopes(db, { caller, context }, takenScopes)
      const changed = [...Object.keys(change.app), ...Object.keys(change.client)]
        .toSorted()
        .join(' ')
      await auditChange(db, { caller, context, action: 'app_updated', details: { changed }, at })
      return read(db, caller.appId)
    })
  }

  /**
   * Ends credentials that use scopes removed from the public client. Credentials issued after a
   * scope is granted again are not affected.
   */
  async function endScopes(
    db: Db,
    { caller, context }: { caller: MemberCaller; context: Context },
    scopes: readonly string[],
  ): Promise<void> {
    const at = now()
    await grants.end(
      db,
      scopes.map((scope) => ({
        id: scopeGrant(caller.clientId, scope),
        cause: 'scope_taken',
        at,
        endsBefore: at,
      })),
    )
    const entry = { caller, context, action: 'client_scope_taken', at }
    for (const scope of scopes)
      await auditChange(db, { ...entry, details: { scope, cause: 'scope_taken' } })
  }

  /** Deletes the app and ends all its credentials. Tickets, ledger and audit log stay. */
  async function remove(caller: MemberCaller, context: Context): Promise<void> {
    const { appId } = caller
    await tx(pool, async (db) => {
      const app = await lockApp(db, appId)
      await requireDeletable(db, appId)
      const at = now()
      const details = { name: app.name }
      await auditChange(db, { caller, context, action: 'app_deleted', details, at })
      const rows = await store.findClients(db, appId, at)
      await store.deleteApp(db, appId, at)
      for (const { endOfApp } of credentialIssuers) await endOfApp(db, appId, at)
      // All credentials of the app descend from its clients.
      const ends = rows.map(({ client_id }) => ({ id: client_id, forever: true }))
      await grants.end(
        db,
        ends.map((client) => ({ ...client, cause: 'app_deleted', at })),
      )
    })
  }

  async function listAudit(caller: MemberCaller, filter: Omit<AppAuditFilter, 'app'>) {
    const rows = await listEntries(pool, { ...filter, app: caller.appId })
    return page(
      rows.map((row) => ({ ...row, createdAt: row.created_at })),
      filter.limit,
    )
  }

  return {
    listOwn,
    view,
    update,
    remove,
    listAudit,
    rotateSecret: createSecretRotation(deps),
    ...createDomains(deps),
  }
}

export type Management = ReturnType<typeof createManagement>

/** Returns the name after the change. Does not parse an unchanged name again. */
const renamed = (app: store.AppRow, { name }: AppChange): string =>
  name === undefined ? app.name : parseName(name, { current: app.name })

/** An app without its own signer uses the deployment's metering mode (docs/decisions/46.md). */
function withMeteringMode(
  before: store.AppRow,
  change: AppChange,
  deployment: store.MeteringMode,
): store.AppRow {
  const app = { ...before, ...change }
  if (app.dmz_url !== '') return app
  const { signer_metering_mode: mode = null } = change
  if (mode !== null && mode !== deployment)
    throw new DomainError(
      'REQUEST_INVALID',
      `meteringMode is ${deployment} in this deployment; an app can set it only together with its own signer (dmzUrl)`,
    )
  return { ...app, signer_metering_mode: null }
}

/**
 * Checks rules between fields: third-party initiated device logins need a login URI and the device
 * grant type.
 */
function checkClient(client: store.ClientRow): void {
  if (!client.device_third_party_initiate_login) return
  if (client.initiate_login_uri === null) {
    throw new DomainError(
      'REQUEST_INVALID',
      'deviceThirdPartyInitiateLogin needs an initiateLoginUri',
    )
  }
  if (!client.grant_types.includes(GrantType.deviceCode)) {
    throw new DomainError(
      'REQUEST_INVALID',
      `deviceThirdPartyInitiateLogin needs the grant type ${GrantType.deviceCode}`,
    )
  }
}
