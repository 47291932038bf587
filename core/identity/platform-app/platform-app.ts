import { m2mGrantTypes, publicGrantTypes } from '../../../proto/oauth.ts'
import { m2mScopes, publicScopes } from '../../../proto/scopes.ts'
import type { UsdMicros } from '../../lib/money.ts'
import { type Db, tx } from '../../lib/sql.ts'
import type { Plans } from '../../plans/service.ts'
import { audit } from '../../shared/audit.ts'
import { type AppId, newAppId, newClientId, newM2mClientId } from '../../shared/ids.ts'
import type { Shared } from '../../shared/shared.ts'
import { insertApp } from '../apps/store.ts'
import type { OwnByPlatform } from '../types.ts'
import * as store from './store.ts'

export interface PlatformAppDeps extends Pick<Shared, 'pool' | 'log' | 'now'> {
  readonly plans: Plans
  readonly ownByPlatform: OwnByPlatform
  /** Included usage of the Starter plan: what an owner may use before paying. */
  readonly starterUsdMicros: UsdMicros
  /** Client id of the app that PLATFORM_APP_ID names; null without one. */
  readonly platformAppId: string | null
}

/** The app of which the owners of apps are end users (decision 58). */
export function createPlatformApp(deps: PlatformAppDeps) {
  const { pool, plans, ownByPlatform, starterUsdMicros, platformAppId, log, now } = deps

  /**
   * Creates the platform app at core's first start, or switches to the one that PLATFORM_APP_ID
   * names. Several cores may do this at the same time. Rejects if PLATFORM_APP_ID names no app that
   * can be the platform app.
   */
  async function prepare(): Promise<void> {
    const created = await tx(pool, async (db) => {
      await store.lockPlatformApp(db)
      const current = await store.findPlatformApp(db)
      if (platformAppId !== null) await use(db, platformAppId, current)
      return platformAppId === null && current === null ? create(db) : null
    })
    if (created === null) return
    log.info({ appId: created }, 'the platform app was created')
    plans.syncStarter(created)
  }

  async function use(db: Db, clientId: string, current: AppId | null): Promise<void> {
    const { appId, isTest, isPlatformOwned } = (await store.findNamedApp(db, clientId)) ?? {}
    if (appId === undefined) throw unusable(`no app has the client id ${clientId}`)
    if (isTest) throw unusable(`${clientId} is a test app`)
    if (!isPlatformOwned) throw unusable(`${clientId} is not platform-owned`)
    if (appId === current) return
    await store.savePlatformApp(db, appId)
    log.warn(
      { appId, formerAppId: current },
      'the platform app changed; owners keep their balances and debts in the former one',
    )
  }

  async function create(db: Db): Promise<AppId> {
    const [id, at] = [newAppId(), now()]
    await insertApp(db, {
      id,
      name: 'Platform',
      starterUsdMicros,
      developerName: '',
      websiteUrl: '',
      isTest: false,
      clientId: newClientId(),
      m2mClientId: newM2mClientId(),
      publicScopes,
      m2mScopes,
      publicGrantTypes,
      m2mGrantTypes,
      at,
    })
    await ownByPlatform(db, id, at)
    await plans.createDefaults(db, { appId: id, included: starterUsdMicros, at })
    await store.savePlatformApp(db, id)
    const details = { isPlatformApp: true }
    await audit(db, {
      appId: id,
      actor: 'core',
      action: 'app_created',
      status: 'success',
      details,
      at,
    })
    return id
  }

  return { prepare }
}

const unusable = (problem: string): Error =>
  new Error(
    `PLATFORM_APP_ID: ${problem}; name an app that belongs to the platform, or remove the setting`,
  )
