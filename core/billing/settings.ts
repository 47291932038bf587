import { DomainError } from '../../proto/errors.ts'
import { type Db, tx } from '../lib/sql.ts'
import { auditSuccess } from '../shared/audit.ts'
import type { AppId } from '../shared/ids.ts'
import type { Shared } from '../shared/shared.ts'
import { endUserCapMax } from './config.ts'
import { type Cuts, findCut } from './cuts.ts'
import type { Modes } from './owners/modes.ts'
import type { Unpaid } from './owners/unpaid.ts'
import * as store from './store.ts'
import { type BillingMode, type Cut, type Settings, billingModes } from './store.ts'

export interface SettingsDeps extends Pick<Shared, 'pool' | 'now'> {
  readonly cuts: Cuts
  /** Chains the cut that begins at `since`, in the transaction that writes it. */
  readonly chainCut: (db: Db, app: AppId, since: Date) => Promise<void>
  /** The deployment's default cap. */
  readonly endUserCap: number
  /** Computes the ceilings of an app's users again after a change of who pays. */
  readonly refreshCeilings: (app: AppId) => Promise<void>
  readonly unpaid: Pick<Unpaid, 'requirePaid'>
  readonly modes: Modes
}

/** A change by an owner or a platform admin. Absent members stay unchanged. */
export interface SettingsChange {
  readonly billingMode?: BillingMode
  /** Null resets to the deployment's cap. */
  readonly endUserCap?: number | null
  readonly isPlatformOwned?: boolean
  readonly servesEveryApp?: boolean
  /** Hundredths of a percent; null takes no cut. */
  readonly cut?: bigint | null
}

export interface AppSettings extends Settings {
  readonly clientId: string
  readonly cap: number
  readonly cut: bigint | null
  /** Cuts that have not begun, the next one first. */
  readonly plannedCuts: readonly Cut[]
}

interface SettingsActor {
  readonly name: string
  readonly correlationId: string
}

/** Billing settings of apps. Each change is recorded in the audit log. */
export function createSettings({
  pool,
  cuts,
  chainCut,
  endUserCap,
  refreshCeilings,
  unpaid,
  modes,
  now,
}: SettingsDeps) {
  /** Throws NOT_FOUND for an unknown app. */
  async function read(clientId: string): Promise<AppSettings> {
    return readApp(clientId, await getApp(pool, clientId))
  }

  async function readApp(clientId: string, app: AppId): Promise<AppSettings> {
    const settings = await store.findSettings(pool, app)
    const [list, at] = [await cuts.list(pool, app), now()]
    return {
      ...settings,
      clientId,
      cap: settings.endUserCap ?? endUserCap,
      cut: findCut(list, at),
      plannedCuts: list.filter(({ since }) => since > at).toReversed(),
    }
  }

  /**
   * Applies all changes of a command together. Throws NOT_FOUND for an unknown app, CONFLICT for
   * another billing mode while something is unpaid.
   */
  async function change(
    clientId: string,
    { cut, ...changed }: SettingsChange,
    actor: SettingsActor,
  ): Promise<AppSettings> {
    const app = await getApp(pool, clientId)
    const settleLast = await settleUsers(app, changed.billingMode)
    await tx(pool, async (db) => {
      const at = now()
      // Before the settings are locked, because the activation gate locks users first.
      await settleLast?.(db)
      const before = await store.lockSettings(db, app, at)
      const settings = applyChange(before, changed)
      if (!settings.isPlatformOwned) await requireNoPlatformApp(db, app)
      if (settings.billingMode !== before.billingMode)
        await unpaid.requirePaid(db, { app, ...before }, modeStays)
      await store.saveSettings(db, app, { settings, at })
      const since = cut === undefined ? undefined : await cuts.set(db, app, cut)
      if (since) await chainCut(db, app, since)
      await auditSuccess(db, {
        appId: app,
        actor: { name: actor.name, context: actor },
        action: 'billing_settings_changed',
        details: {
          ...changed,
          ...(since === undefined
            ? {}
            : {
                platformCutPercent: formatPercent(cut ?? null) ?? null,
                since: since.toISOString(),
              }),
        },
        at,
      })
    })
    if (changed.billingMode !== undefined || changed.isPlatformOwned !== undefined)
      await refreshCeilings(app)
    return readApp(clientId, app)
  }

  /** Settles the users of an app that is about to change to `merchant`; null if it does not. */
  async function settleUsers(app: AppId, mode: BillingMode | undefined) {
    const before = await store.findSettings(pool, app)
    if (mode !== 'merchant' || before.billingMode === mode) return null
    await unpaid.requirePaid(pool, { app, ...before }, modeStays)
    return modes.settle(app)
  }

  async function getApp(db: Db, clientId: string): Promise<AppId> {
    const app = await store.findApp(db, clientId)
    if (app === null) throw new DomainError('NOT_FOUND', 'there is no such app')
    return app
  }

  return { read, change, ownByPlatform: store.insertPlatformOwned }
}

const modeStays = 'the billing mode cannot change'

export type BillingSettings = ReturnType<typeof createSettings>

async function requireNoPlatformApp(db: Db, app: AppId): Promise<void> {
  if (await store.isPlatformApp(db, app))
    throw new DomainError('CONFLICT', 'the platform app is always platform-owned')
}

/** Throws CONFLICT for `servesEveryApp` on an app that is not platform-owned. */
function applyChange(before: Settings, change: Partial<Settings>): Settings {
  const settings = { ...before, ...change }
  if (change.servesEveryApp && !settings.isPlatformOwned)
    throw new DomainError('CONFLICT', 'only a platform-owned app can serve every app')
  return { ...settings, servesEveryApp: settings.isPlatformOwned && settings.servesEveryApp }
}

export function parseBillingMode(text: string): BillingMode {
  const mode = billingModes.find((known) => known === text)
  if (mode === undefined)
    throw new DomainError(
      'REQUEST_INVALID',
      `billingMode must be one of: ${billingModes.join(', ')}`,
    )
  return mode
}

/** Parses a whole number of users; `default` is null. */
export function parseCap(text: string): number | null {
  if (text === 'default') return null
  if (/^[1-9][0-9]{0,6}$/.test(text) && Number(text) <= endUserCapMax) return Number(text)
  throw new DomainError(
    'REQUEST_INVALID',
    `endUserCap must be a whole number from 1 to ${endUserCapMax}, or default`,
  )
}

const percentSyntax = /^(0|[1-9][0-9]?|100)(?:\.([0-9]{1,2}))?$/

/** Parses a percentage to hundredths of a percent; `none` is null. */
export function parsePercent(text: string): bigint | null {
  if (text === 'none') return null
  const [, whole, fraction = ''] = percentSyntax.exec(text) ?? []
  const basisPoints = whole === undefined ? null : BigInt(whole + fraction.padEnd(2, '0'))
  if (basisPoints === null || basisPoints > 10_000n)
    throw new DomainError(
      'REQUEST_INVALID',
      'platformCutPercent must be a decimal with at most two places from 0 to 100, or none',
    )
  return basisPoints
}

/** Formats hundredths of a percent as a decimal without trailing zeros; undefined for null. */
export const formatPercent = (basisPoints: bigint | null): string | undefined =>
  basisPoints === null ? undefined : String(Number(basisPoints) / 100)
