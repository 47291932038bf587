import { DomainError } from '../../../proto/errors.ts'
import { audit } from '../../platform/audit.ts'
import type { AccountCaller, M2mCaller, MemberCaller } from '../../rpc/callers.ts'
import { type Cursor, page } from '../../platform/cursor.ts'
import type { Idempotency } from '../../platform/idempotency.ts'
import { type AppId, isUuid } from '../../platform/ids.ts'
import type { Invalidations } from '../../platform/invalidations.ts'
import { newSecret, uuidV7 } from '../../lib/crypto.ts'
import { type Db, type Pool, tx } from '../../lib/sql.ts'
import { type Now, addSeconds } from '../../lib/time.ts'
import type { Secrets } from '../../platform/secrets.ts'
import type { Context } from '../../rpc/serve.ts'
import * as store from './management-store.ts'
import { insertClientSecret } from '../store.ts'
import { deviceGrant } from '../types.ts'

const liveSecretsMax = 5
const domainsMax = 50
/** Caches elsewhere are told of so many keys at once; the rest end with the caches' own time limit. */
const announcedMax = 1_000

export interface ManagementDeps {
  readonly pool: Pool
  readonly secrets: Secrets
  readonly idempotency: Idempotency
  readonly invalidations: Invalidations
  /** How long older secrets work beside a new one. */
  readonly secretOverlapSeconds: number
  readonly now: Now
}

/** What an owner wants changed: absent means as it is. */
export type AppChange = Partial<Omit<store.AppRow, 'id' | 'status' | 'created_at'>>
export type ClientChange = Partial<Omit<store.ClientRow, 'client_id' | 'kind' | 'has_secret'>>

export interface AppView {
  readonly app: store.AppRow
  readonly publicClient: store.ClientRow
  readonly m2mClient: store.ClientRow
  readonly domains: readonly store.DomainRow[]
}

/** What an app's people do with it. Each change stands in the audit log. */
export function createManagement({
  pool,
  secrets,
  idempotency,
  invalidations,
  secretOverlapSeconds,
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
    const clients = await store.findClients(db, app, now())
    const [publicClient, m2mClient] = [pick(clients, 'public'), pick(clients, 'm2m')]
    return { app: row, publicClient, m2mClient, domains: await store.listDomains(db, app) }
  }

  async function update(
    caller: MemberCaller,
    change: { app: AppChange; client: ClientChange },
    context: Context,
  ): Promise<AppView> {
    return tx(pool, async (db) => {
      const app = await hold(db, caller.appId)
      const client = {
        ...pick(await store.findClients(db, caller.appId, now()), 'public'),
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

  /** Ends the app: nobody finds it and no credential of it works. What it signed and owes stays on record. */
  async function remove(caller: MemberCaller, context: Context): Promise<void> {
    const keys = await tx(pool, async (db) => {
      const app = await hold(db, caller.appId)
      await note(db, { caller, context, action: 'app_deleted' }, { name: app.name })
      return store.endApp(db, caller.appId, now())
    })
    await Promise.all(
      keys.slice(0, announcedMax).map((id) => invalidations.publish({ kind: 'key', id })),
    )
  }

  /** A new secret of the M2M client; the older ones end after the overlap, or now. */
  async function rotateSecret(
    caller: MemberCaller,
    request: { revokeOld: boolean; idempotencyKey: string | undefined },
    context: Context,
  ) {
    return idempotency.once(
      {
        scope: `${caller.clientId}:${caller.accountId}:secrets`,
        key: request.idempotencyKey,
        body: { revokeOld: request.revokeOld },
      },
      async (db) => {
        await hold(db, caller.appId)
        const at = now()
        const client = pick(await store.findClients(db, caller.appId, at), 'm2m')
        const end = request.revokeOld ? at : addSeconds(at, secretOverlapSeconds)
        await store.endSecrets(db, client.client_id, { at, end })
        if ((await store.countLiveSecrets(db, client.client_id, at)) >= liveSecretsMax) {
          throw new DomainError(
            'CONFLICT',
            `a client may have ${liveSecretsMax} secrets that work; revoke the old ones`,
          )
        }
        const clientSecret = newSecret('svc_cs_')
        await insertClientSecret(db, {
          id: uuidV7(at.getTime()),
          clientId: client.client_id,
          ...secrets.store(clientSecret),
          at,
        })
        await note(
          db,
          { caller, context, action: 'client_secret_rotated' },
          { m2mClientId: client.client_id, revokeOld: request.revokeOld },
        )
        return {
          m2mClientId: client.client_id,
          clientSecret,
          createdAt: at.toISOString(),
          oldSecretsExpireAt: end.toISOString(),
        }
      },
    )
  }

  const listDomains = (caller: MemberCaller): Promise<store.DomainRow[]> =>
    store.listDomains(pool, caller.appId)

  /** CONFLICT for an origin that the app has. */
  async function addDomain(
    caller: MemberCaller,
    origin: string,
    context: Context,
  ): Promise<store.DomainRow> {
    return tx(pool, async (db) => {
      await hold(db, caller.appId)
      const at = now()
      const made = await store.insertDomain(db, caller.appId, {
        id: uuidV7(at.getTime()),
        origin,
        at,
      })
      if (!made) throw new DomainError('CONFLICT', `the app has the domain ${origin} already`)
      const { length } = await store.listDomains(db, caller.appId)
      if (length > domainsMax)
        throw new DomainError('CONFLICT', `an app may have ${domainsMax} domains`)
      await note(db, { caller, context, action: 'domain_added' }, { origin })
      return made
    })
  }

  async function removeDomain(caller: MemberCaller, id: string, context: Context): Promise<void> {
    await tx(pool, async (db) => {
      const gone = isUuid(id) ? await store.deleteDomain(db, caller.appId, id) : null
      if (!gone) throw new DomainError('NOT_FOUND', 'the app has no such domain')
      await note(db, { caller, context, action: 'domain_removed' }, { origin: gone.origin })
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

  async function hold(db: Db, app: AppId): Promise<store.AppRow> {
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

function pick(clients: readonly store.ClientRow[], kind: 'public' | 'm2m'): store.ClientRow {
  const found = clients.find((client) => client.kind === kind)
  if (!found) throw new Error(`an app lacks its ${kind} client`)
  return found
}

/** What only the whole client shows: a login by a third party needs to know where, and devices need their grant. */
function checkClient(client: store.ClientRow): void {
  if (!client.device_third_party_initiate_login) return
  if (client.initiate_login_uri === null) {
    throw new DomainError(
      'REQUEST_INVALID',
      'deviceThirdPartyInitiateLogin needs an initiateLoginUri',
    )
  }
  if (!client.grant_types.includes(deviceGrant)) {
    throw new DomainError(
      'REQUEST_INVALID',
      `deviceThirdPartyInitiateLogin needs the grant type ${deviceGrant}`,
    )
  }
}
