import { DomainError } from '../../../proto/errors.ts'
import { m2mScopes } from '../../../proto/scopes.ts'
import { audit } from '../../platform/audit.ts'
import type { M2mCaller } from '../../rpc/callers.ts'
import { type Cursor, page } from '../../platform/cursor.ts'
import {
  type AccountId,
  appId,
  isClientId,
  isM2mClientId,
  newAppId,
  newClientId,
  newM2mClientId,
} from '../../platform/ids.ts'
import { newSecret, uuidV7 } from '../../lib/crypto.ts'
import type { UsdMicros } from '../../lib/money.ts'
import { type Pool, tx } from '../../lib/sql.ts'
import type { Now } from '../../lib/time.ts'
import { createBatchLoader } from '../../lib/batch-loader.ts'
import type { Plans } from '../../plans/service.ts'
import { type Secrets, hashPassword } from '../../platform/secrets.ts'
import * as store from '../store.ts'
import { type App, m2mGrants, publicGrants, publicScopes } from '../types.ts'

export interface AppsDeps {
  readonly pool: Pool
  readonly plans: Plans
  readonly secrets: Secrets
  readonly now: Now
}

export interface NewApp {
  readonly name: string
  readonly included: UsdMicros
  readonly owner?: { readonly email: string; readonly password?: string }
  /** The account that makes the app for itself and owns it. */
  readonly madeBy?: { readonly accountId: AccountId; readonly correlationId: string }
  readonly developerName?: string
  readonly websiteUrl?: string
}

export interface CreatedApp extends App {
  /** Shown once. */
  readonly m2mClientSecret: string
  readonly ownerEmail?: string
  /** Only when this call made the account and chose the password. Shown once. */
  readonly ownerPassword?: string
}

/** Apps with their two clients, and who a client is. */
export function createApps({ pool, plans, secrets, now }: AppsDeps) {
  /** An app, both clients, a secret, the Starter plan and the owner: all of it or nothing. */
  async function create(request: NewApp): Promise<CreatedApp> {
    const at = now()
    const app = {
      id: newAppId(),
      name: request.name,
      clientId: newClientId(),
      m2mClientId: newM2mClientId(),
      createdAt: at,
    }
    const m2mClientSecret = newSecret('svc_cs_')
    const chosen = request.owner?.password ?? newSecret('').slice(0, 20)
    const passwordHash = request.owner ? await hashPassword(chosen) : ''
    return tx(pool, async (db) => {
      await store.insertApp(db, {
        ...app,
        developerName: request.developerName ?? '',
        websiteUrl: request.websiteUrl ?? '',
        starterUsdMicros: request.included,
        publicScopes,
        m2mScopes,
        publicGrants,
        m2mGrants,
        at,
      })
      await store.insertClientSecret(db, {
        id: uuidV7(at.getTime()),
        clientId: app.m2mClientId,
        ...secrets.store(m2mClientSecret),
        at,
      })
      await plans.createStarter(db, { appId: app.id, included: request.included, at })
      await audit(db, {
        appId: app.id,
        actor: request.madeBy?.accountId ?? 'operator',
        action: 'app_created',
        status: 'success',
        correlationId: request.madeBy?.correlationId,
        at,
      })
      if (request.madeBy)
        await store.insertMember(db, {
          appId: app.id,
          accountId: request.madeBy.accountId,
          role: 'owner',
          at,
        })
      if (!request.owner) return { ...app, m2mClientSecret }
      const { email, password } = request.owner
      const account = await store.ensureAccount(db, {
        id: uuidV7(at.getTime()),
        email,
        passwordHash,
        at,
      })
      await store.insertMember(db, { appId: app.id, accountId: account.id, role: 'owner', at })
      const shown = account.created && password === undefined ? { ownerPassword: chosen } : {}
      return { ...app, m2mClientSecret, ownerEmail: email, ...shown }
    })
  }

  async function list(after: Cursor | null, limit: number) {
    const rows = await store.listApps(pool, after, limit)
    return page(
      rows.map((row) => ({
        id: appId(row.id),
        name: row.name,
        clientId: row.client_id,
        m2mClientId: row.m2m_client_id,
        createdAt: row.created_at,
      })),
      limit,
    )
  }

  const findM2mRows = createBatchLoader(async (ids: readonly string[]) => {
    const found = Map.groupBy(
      await store.findM2mClients(pool, [...new Set(ids)], now()),
      (row) => row.client_id,
    )
    return (id) => found.get(id) ?? []
  })

  /** The M2M client whose secret is right. CREDENTIAL_INVALID otherwise, after the same work for unknown clients. */
  async function authenticate(
    pairs: readonly { id: string; secret: string }[],
  ): Promise<M2mCaller> {
    for (const { id, secret } of pairs) {
      const rows = isM2mClientId(id) ? await findM2mRows(id) : []
      const match = rows.find(
        (row) =>
          row.secret_hash !== null &&
          row.pepper_id !== null &&
          secrets.matches(secret, { hash: row.secret_hash, pepperId: row.pepper_id }),
      )
      if (rows.length === 0) secrets.store(secret)
      if (match) return toCaller(match)
    }
    throw new DomainError('CREDENTIAL_INVALID', 'the client id or secret is wrong')
  }

  /** The M2M client a machine token names, as it stands now; null when it is gone. */
  async function findM2m(clientId: string): Promise<M2mCaller | null> {
    const [row] = await findM2mRows(clientId)
    return row ? toCaller(row) : null
  }

  const findPublic = (clientId: string) => store.findPublicClient(pool, clientId)

  return { create, list, authenticate, findM2m, findPublic }
}

export type Apps = ReturnType<typeof createApps>

function toCaller(row: store.M2mClientRow): M2mCaller {
  if (!isClientId(row.public_client_id) || !isM2mClientId(row.client_id))
    throw new Error('malformed client id in clients')
  return {
    kind: 'm2m',
    appId: appId(row.app_id),
    clientId: row.public_client_id,
    m2mClientId: row.client_id,
    scopes: row.scopes,
    publicScopes: row.public_scopes,
  }
}
