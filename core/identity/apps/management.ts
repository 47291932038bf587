import { DomainError } from '../../../proto/errors.ts'
import { GrantType } from '../../../proto/oauth.ts'
import { audit, auditSuccess } from '../../platform/audit.ts'
import { type AppAuditFilter, listEntries } from '../../platform/audit-log/entries.ts'
import type { AccountCaller, MemberCaller } from '../../rpc/callers.ts'
import { type Cursor, page } from '../../platform/cursor.ts'
import { type Grants, scopeGrant } from '../../platform/grants/grants.ts'
import type { Idempotency } from '../../platform/idempotency.ts'
import { type AppId, isUuid } from '../../platform/ids.ts'
import { uuidV7 } from '../../lib/crypto.ts'
import { type Db, type Pool, tx } from '../../lib/sql.ts'
import type { Now } from '../../lib/time.ts'
import type { Context } from '../../rpc/serve.ts'
import { type MemberEditor, memberEditor } from '../members/editor.ts'
import type { CredentialIssuer } from '../types.ts'
import { type Clients, pickClient } from './clients.ts'
import { parseName } from '../input.ts'
import * as store from './store.ts'

const domainsMax = 50

export interface ManagementDeps {
  readonly pool: Pool
  readonly clients: Pick<Clients, 'rotateSecret'>
  readonly idempotency: Idempotency
  /** How tickets reach this deployment. */
  readonly meteringMode: store.MeteringMode
  readonly grants: Pick<Grants, 'end'>
  readonly credentialIssuers: readonly CredentialIssuer[]
  readonly now: Now
}

/** Changes by an owner. Absent fields stay unchanged. */
export type AppChange = Partial<Omit<store.AppRow, 'id' | 'status' | 'created_at'>>
export type ClientChange = Partial<Omit<store.ClientRow, 'client_id' | 'kind' | 'has_secret'>>

/** Options for the older secrets of the M2M client. */
export interface SecretRotation {
  readonly revokeOld: boolean
  readonly keepKeys: boolean
}

export interface AppView {
  readonly app: store.AppRow
  readonly publicClient: store.ClientRow
  readonly m2mClient: store.ClientRow
  readonly domains: readonly store.DomainRow[]
}

/** Operations of an app's members. Each change has an entry in the audit log. */
export function createManagement({
  pool,
  clients,
  idempotency,
  meteringMode,
  grants,
  credentialIssuers,
  now,
}: ManagementDeps) {
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
      const app = await lock(db, caller.appId)
      const before = pickClient(await store.findClients(db, caller.appId, now()), 'public')
      const client = { ...before, ...change.client }
      checkClient(client)
      const name = renamed(app, change.app)
      await store.updateApp(db, { ...withMeteringMode(app, change.app, meteringMode), name }, now())
      await store.updateClient(db, client)
      const takenScopes = before.scopes.filter((scope) => !client.scopes.includes(scope))
      await endScopes(db, { caller, context }, takenScopes)
      const changed = [...Object.keys(change.app), ...Object.keys(change.client)]
        .toSorted()
        .join(' ')
      await note(db, { caller, context, action: 'app_updated' }, { changed })
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
    const entry = { caller, context, action: 'client_scope_taken' }
    for (const scope of scopes) await note(db, entry, { scope, cause: 'scope_taken' })
  }

  /** Deletes the app and ends all its credentials. Tickets, ledger and audit log stay. */
  async function remove(caller: MemberCaller, context: Context): Promise<void> {
    const { appId } = caller
    await tx(pool, async (db) => {
      const app = await lock(db, appId)
      const at = now()
      await note(db, { caller, context, action: 'app_deleted' }, { name: app.name })
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

  /**
   * Creates a secret of the M2M client. Older secrets expire after the overlap or, with
   * `revokeOld`, now, together with all credentials obtained with them. `keepKeys` keeps API keys
   * valid.
   */
  async function rotateSecret(
    caller: MemberCaller,
    { idempotencyKey, ...request }: SecretRotation & { idempotencyKey: string | undefined },
    context: Context,
  ) {
    const { revokeOld, keepKeys } = request
    return idempotency.once(
      {
        scope: `${caller.clientId}:${caller.accountId}:secrets`,
        key: idempotencyKey,
        body: keepKeys ? { revokeOld, keepKeys } : { revokeOld },
        holdsSecret: true,
      },
      (db) => replaceSecret(db, memberEditor(caller, context), request),
    )
  }

  /** Same as `rotateSecret`, by an operator. */
  const rotateSecretAs = (editor: MemberEditor, request: SecretRotation) =>
    tx(pool, (db) => replaceSecret(db, editor, request))

  async function replaceSecret(
    db: Db,
    { appId, actor }: MemberEditor,
    { revokeOld, keepKeys }: SecretRotation,
  ) {
    await lock(db, appId)
    const { endedIds, ...secret } = await clients.rotateSecret(db, appId, { revokeOld })
    const revokedKeys = await endSecrets(db, { appId, ids: endedIds, keepKeys })
    const details = { m2mClientId: secret.m2mClientId, revokeOld, keepKeys, revokedKeys }
    await auditSuccess(db, { appId, actor, action: 'client_secret_rotated', details, at: now() })
    return { ...secret, revokedKeys }
  }

  /** Ends credentials that descend from the secrets. Returns the number of API keys that ended. */
  async function endSecrets(
    db: Db,
    { appId, ids, keepKeys }: { appId: AppId; ids: readonly string[]; keepKeys: boolean },
  ): Promise<number> {
    if (ids.length === 0) return 0
    const at = now()
    await grants.end(
      db,
      ids.map((id) => ({ id, cause: 'secret_revoked', at, forever: true })),
    )
    let count = 0
    for (const { endOfGrants } of credentialIssuers)
      count += (await endOfGrants?.(db, { appId, grants: ids, at, keep: keepKeys })) ?? 0
    return count
  }

  const listDomains = (caller: MemberCaller): Promise<store.DomainRow[]> =>
    store.listDomains(pool, caller.appId)

  /** Throws CONFLICT for an origin that the app already has. */
  async function addDomain(
    caller: MemberCaller,
    origin: string,
    context: Context,
  ): Promise<store.DomainRow> {
    return tx(pool, async (db) => {
      await lock(db, caller.appId)
      const at = now()
      const domain = await store.insertDomain(db, caller.appId, {
        id: uuidV7(at.getTime()),
        origin,
        at,
      })
      if (!domain) throw new DomainError('CONFLICT', `the app already has the domain ${origin}`)
      const { length } = await store.listDomains(db, caller.appId)
      if (length > domainsMax)
        throw new DomainError('CONFLICT', `an app may have ${domainsMax} domains`)
      await note(db, { caller, context, action: 'domain_added' }, { origin })
      return domain
    })
  }

  async function removeDomain(caller: MemberCaller, id: string, context: Context): Promise<void> {
    await tx(pool, async (db) => {
      const domain = isUuid(id) ? await store.deleteDomain(db, caller.appId, id) : null
      if (!domain) throw new DomainError('NOT_FOUND', 'the app has no such domain')
      await note(db, { caller, context, action: 'domain_removed' }, { origin: domain.origin })
    })
  }

  const knowsOrigin = (origin: string, clientId: string | null): Promise<boolean> =>
    store.knowsOrigin(pool, origin, clientId)

  async function listAudit(caller: MemberCaller, filter: Omit<AppAuditFilter, 'app'>) {
    const rows = await listEntries(pool, { ...filter, app: caller.appId })
    return page(
      rows.map((row) => ({ ...row, createdAt: row.created_at })),
      filter.limit,
    )
  }

  async function lock(db: Db, app: AppId): Promise<store.AppRow> {
    const row = await store.lockApp(db, app)
    if (!row) throw noSuchApp()
    return row
  }

  async function note(
    db: Db,
    { caller, context, action }: { caller: MemberCaller; context: Context; action: string },
    details: Readonly<Record<string, string | boolean | number>>,
  ): Promise<void> {
    await audit(db, {
      appId: caller.appId,
      actor: caller.accountId,
      action,
      status: 'success',
      correlationId: context.correlationId,
      details,
      at: now(),
    })
  }

  return {
    listOwn,
    view,
    update,
    remove,
    rotateSecret,
    rotateSecretAs,
    listDomains,
    addDomain,
    removeDomain,
    knowsOrigin,
    listAudit,
  }
}

export type Management = ReturnType<typeof createManagement>

const noSuchApp = (): DomainError => new DomainError('NOT_FOUND', 'no such app for this credential')

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
