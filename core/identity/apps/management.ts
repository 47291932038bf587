import { DomainError } from '../../../proto/errors.ts'
import { GrantType } from '../../../proto/oauth.ts'
import { audit } from '../../platform/audit.ts'
import type { AccountCaller, M2mCaller, MemberCaller } from '../../rpc/callers.ts'
import { type Cursor, page } from '../../platform/cursor.ts'
import type { Idempotency } from '../../platform/idempotency.ts'
import { type AppId, isUuid } from '../../platform/ids.ts'
import type { Invalidations } from '../../platform/invalidations.ts'
import { uuidV7 } from '../../lib/crypto.ts'
import { type Db, type Pool, tx } from '../../lib/sql.ts'
import type { Now } from '../../lib/time.ts'
import type { Context } from '../../rpc/serve.ts'
import type { CredentialIssuer } from '../types.ts'
import { type Clients, pickClient } from './clients.ts'
import * as store from './store.ts'

const domainsMax = 50
/** The most credentials that one deletion invalidates in caches elsewhere. Others end with the caches' own time limit. */
const invalidationsMax = 1_000

export interface ManagementDeps {
  readonly pool: Pool
  readonly clients: Pick<Clients, 'rotateSecret'>
  readonly idempotency: Idempotency
  readonly invalidations: Pick<Invalidations, 'publish'>
  readonly credentialIssuers: readonly CredentialIssuer[]
  readonly now: Now
}

/** Changes by an owner. What is absent stays as it is. */
export type AppChange = Partial<Omit<store.AppRow, 'id' | 'status' | 'created_at'>>
export type ClientChange = Partial<Omit<store.ClientRow, 'client_id' | 'kind' | 'has_secret'>>

export interface AppView {
  readonly app: store.AppRow
  readonly publicClient: store.ClientRow
  readonly m2mClient: store.ClientRow
  readonly domains: readonly store.DomainRow[]
}

/** What the members of an app do with it. Each change has an entry in the audit log. */
export function createManagement({
  pool,
  clients,
  idempotency,
  invalidations,
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

  const view = (caller: M2mCaller | MemberCaller): Promise<AppView> => read(pool, caller.appId)

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
      const client = {
        ...pickClient(await store.findClients(db, caller.appId, now()), 'public'),
        ...change.client,
      }
      checkClient(client)
      await store.updateApp(db, { ...app, ...change.app }, now())
      await store.updateClient(db, client)
      const changed = [...Object.keys(change.app), ...Object.keys(change.client)]
        .toSorted()
        .join(' ')
      await note(db, { caller, context, action: 'app_updated' }, { changed })
      return read(db, caller.appId)
    })
  }

  /** Deletes the app and ends every credential of it. Its tickets, ledger and audit log stay. */
  async function remove(caller: MemberCaller, context: Context): Promise<void> {
    const { appId } = caller
    const ids = await tx(pool, async (db) => {
      const app = await lock(db, appId)
      const at = now()
      await note(db, { caller, context, action: 'app_deleted' }, { name: app.name })
      await store.deleteApp(db, appId, at)
      const endedIds: string[] = []
      for (const { endOfApp } of credentialIssuers)
        endedIds.push(...(await endOfApp(db, appId, at)))
      return endedIds
    })
    await Promise.all(
      ids.slice(0, invalidationsMax).map((id) => invalidations.publish({ kind: 'key', id })),
    )
  }

  /** A new secret of the M2M client; older ones expire after the overlap, or now. */
  async function rotateSecret(
    caller: MemberCaller,
    request: { revokeOld: boolean; idempotencyKey: string | undefined },
    context: Context,
  ) {
    const { revokeOld } = request
    return idempotency.once(
      {
        scope: `${caller.clientId}:${caller.accountId}:secrets`,
        key: request.idempotencyKey,
        body: { revokeOld },
      },
      async (db) => {
        await lock(db, caller.appId)
        const secret = await clients.rotateSecret(db, caller.appId, { revokeOld })
        const { m2mClientId } = secret
        const entry = { caller, context, action: 'client_secret_rotated' }
        await note(db, entry, { m2mClientId, revokeOld })
        return secret
      },
    )
  }

  const listDomains = (caller: MemberCaller): Promise<store.DomainRow[]> =>
    store.listDomains(pool, caller.appId)

  /** CONFLICT for an origin that the app already has. */
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
      if (!domain) throw new DomainError('CONFLICT', `the app has the domain ${origin} already`)
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

  async function listAudit(
    caller: MemberCaller,
    filter: { action: string | null; after: Cursor | null; limit: number },
  ) {
    const rows = await store.listAudit(pool, { ...filter, app: caller.appId })
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
    details: Readonly<Record<string, string | boolean>>,
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
    listDomains,
    addDomain,
    removeDomain,
    knowsOrigin,
    listAudit,
  }
}

export type Management = ReturnType<typeof createManagement>

const noSuchApp = (): DomainError => new DomainError('NOT_FOUND', 'no such app for this credential')

/** Rules between fields: third-party initiated logins of devices need an address and the device grant type. */
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
