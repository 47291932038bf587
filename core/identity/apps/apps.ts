import { m2mGrantTypes, publicGrantTypes } from '../../../proto/oauth.ts'
import { m2mScopes, publicScopes } from '../../../proto/scopes.ts'
import { audit } from '../../shared/audit.ts'
import { page } from '../../shared/cursor.ts'
import {
  type AccountId,
  type AppId,
  type ClientId,
  type M2mClientId,
  accountId,
  appId,
  newAppId,
  newClientId,
  newM2mClientId,
} from '../../shared/ids.ts'
import { newSecret, uuidV7 } from '../../lib/crypto.ts'
import type { Email } from '../../lib/text/email.ts'
import type { UsdMicros } from '../../lib/money.ts'
import { type Db, tx } from '../../lib/sql.ts'
import type { Plans } from '../../plans/service.ts'
import { hashPassword } from '../../shared/secrets.ts'
import type { Shared } from '../../shared/shared.ts'
import type { AppQuota } from '../accounts/app-quota.ts'
import { getOrInsertAccount } from '../accounts/store.ts'
import { clientSecretPrefix } from './clients.ts'
import type { OwnByPlatform } from '../types.ts'
import * as store from './store.ts'

type Deps = Pick<Shared, 'pool' | 'secrets' | 'now'> & {
  readonly plans: Plans
  readonly quota: Pick<AppQuota, 'requireRoom'>
  /** Marks a new app as one of the platform's own apps (docs/billing.md). */
  readonly ownByPlatform: OwnByPlatform
  /** Makes the account an owner of the new app. */
  readonly putOwner: PutOwner
}

type PutOwner = (db: Db, owner: { app: AppId; account: AccountId; at: Date }) => Promise<void>

export interface NewApp {
  readonly name: string
  /** Allowance of the Starter plan. */
  readonly included: UsdMicros
  /** Owner by e-mail address, set when an operator creates the app. */
  readonly owner?: { readonly email: Email; readonly password?: string }
  /** Owner by account, set when a person creates the app in the dashboard. */
  readonly createdBy?: { readonly accountId: AccountId; readonly correlationId: string }
  readonly developerName?: string
  readonly websiteUrl?: string
  /** Whether the app is a test app, which has a test clock (docs/test-clock.md). */
  readonly isTest?: boolean
  /** Whether the app belongs to the platform. False for an app of a paying integrator. */
  readonly isPlatformOwned: boolean
}

/** A reply that is stored for repetitions is JSON, so the instant is text. */
interface InsertedApp extends Omit<CreatedApp, 'createdAt'> {
  readonly createdAt: string
}

/** Runs the work in a transaction, or returns the reply that it gave before. */
export type RunOnce = (work: (db: Db) => Promise<InsertedApp>) => Promise<InsertedApp>

export interface CreatedApp {
  readonly id: AppId
  readonly clientId: ClientId
  readonly m2mClientId: M2mClientId
  readonly name: string
  readonly createdAt: Date
  readonly isTest: boolean
  readonly isPlatformOwned: boolean
  /** Returned only once: the secret is stored as a hash. */
  readonly m2mClientSecret: string
  readonly ownerEmail?: string
  /** Set only when this call created the account and generated its password. */
  readonly ownerPassword?: string
}

interface Owner {
  readonly email: Email
  readonly password: string
  readonly passwordHash: string
  readonly isPasswordNew: boolean
}

/** Creates and lists apps. Each app has one public and one M2M client. */
export function createApps(deps: Deps) {
  const { pool, plans, secrets, quota, ownByPlatform, putOwner, now } = deps

  /**
   * Creates the app, both clients, a client secret, the Starter plan and the owner in one
   * transaction, which `run` may answer with the reply to an earlier request.
   */
  async function create(
    request: NewApp,
    run: RunOnce = (work) => tx(pool, work),
  ): Promise<CreatedApp> {
    const owner = request.owner ? await prepareOwner(request.owner) : null
    const { createdAt, ...created } = await run((db) => insert(db, request, owner))
    plans.syncStarter(created.id)
    return { ...created, createdAt: new Date(createdAt) }
  }

  async function insert(db: Db, request: NewApp, owner: Owner | null): Promise<InsertedApp> {
    const at = now()
    const app = {
      id: newAppId(),
      name: request.name,
      clientId: newClientId(),
      m2mClientId: newM2mClientId(),
      createdAt: at,
      isTest: request.isTest ?? false,
      isPlatformOwned: request.isPlatformOwned,
    }
    const m2mClientSecret = newSecret(clientSecretPrefix)
    const { accountId: creator } = request.createdBy ?? {}
    if (creator) await quota.requireRoom(db, creator)
    await store.insertApp(db, {
      ...app,
      developerName: request.developerName ?? '',
      websiteUrl: request.websiteUrl ?? '',
      starterUsdMicros: request.included,
      publicScopes,
      m2mScopes,
      publicGrantTypes,
      m2mGrantTypes,
      at,
    })
    await store.insertClientSecret(db, {
      id: uuidV7(at.getTime()),
      clientId: app.m2mClientId,
      ...secrets.store(m2mClientSecret),
      at,
    })
    if (app.isPlatformOwned) await ownByPlatform(db, app.id, at)
    await plans.createDefaults(db, { appId: app.id, included: request.included, at })
    await auditCreation(db, request, { id: app.id, at })
    if (creator) await putOwner(db, { app: app.id, account: creator, at })
    const ownerFields = owner ? await addOwner(db, owner, { app: app.id, at, putOwner }) : {}
    return { ...app, createdAt: at.toISOString(), m2mClientSecret, ...ownerFields }
  }

  async function list(filter: store.AppFilter) {
    const rows = await store.listApps(pool, filter)
    return page(
      rows.map((row) => ({
        id: appId(row.id),
        name: row.name,
        clientId: row.client_id,
        m2mClientId: row.m2m_client_id,
        createdAt: row.created_at,
        isTest: row.is_test,
        isPlatformApp: row.is_platform_app,
        status: row.status,
        ownerEmails: row.owner_emails,
      })),
      filter.limit,
    )
  }

  return { create, list }
}

export type Apps = ReturnType<typeof createApps>

const auditCreation = (
  db: Db,
  { createdBy, isPlatformOwned }: NewApp,
  { id, at }: { id: AppId; at: Date },
): Promise<void> =>
  audit(db, {
    appId: id,
    actor: createdBy?.accountId ?? 'operator',
    action: 'app_created',
    status: 'success',
    correlationId: createdBy?.correlationId,
    details: { isPlatformOwned },
    at,
  })

/** Hashes the owner's password. Generates one if the operator gave no password. */
async function prepareOwner(owner: { email: Email; password?: string }): Promise<Owner> {
  const password = owner.password ?? newSecret('').slice(0, 20)
  return {
    email: owner.email,
    password,
    passwordHash: await hashPassword(password),
    isPasswordNew: owner.password === undefined,
  }
}

/**
 * Makes the account with the owner's address an owner of the app. Creates the account if it is
 * missing.
 */
async function addOwner(
  db: Db,
  owner: Owner,
  { app, at, putOwner }: { app: AppId; at: Date; putOwner: PutOwner },
) {
  const { email, passwordHash } = owner
  const id = accountId(uuidV7(at.getTime()))
  const account = await getOrInsertAccount(db, { id, email, passwordHash, at })
  await putOwner(db, { app, account: account.id, at })
  const isShown = account.created && owner.isPasswordNew
  return { ownerEmail: email, ...(isShown ? { ownerPassword: owner.password } : {}) }
}
