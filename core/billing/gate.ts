import { LRUCache } from 'lru-cache'
import { Counter } from 'prom-client'
import { DomainError } from '../../proto/errors.ts'
import type { Ledger } from '../balances/ledger/ledger.ts'
import type { Db } from '../lib/sql.ts'
import { startAtZero } from '../lib/metrics.ts'
import { audit } from '../shared/audit.ts'
import { findClientId } from '../shared/clients.ts'
import type { AppId, UserKey } from '../shared/ids.ts'
import type { Shared } from '../shared/shared.ts'
import type { GateMode } from './config.ts'
import type { Connections } from './processor/connections.ts'
import * as store from './store.ts'
import type { BillingMode, Settings } from './store.ts'

/** Finds the account user of an app's owner in the platform app, without creating it. */
export type FindOwnerAccount = (db: Db, app: AppId) => Promise<UserKey | null>

export interface GateDeps extends Pick<Shared, 'pool' | 'metrics' | 'log' | 'now'> {
  readonly mode: GateMode
  /** Default cap of end users per app. */
  readonly endUserCap: number
  readonly publicUrl: string
  readonly ledger: Pick<Ledger, 'readWithin' | 'spending'>
  readonly connections: Pick<Connections, 'findConnection'>
  /** Returns the owner's account in the platform app; null before its first charge. */
  readonly findOwnerAccount: FindOwnerAccount
}

/** The gate's reasons in proto/errors.ts. */
const gateReasons = [
  'OWNER_PAYMENT_METHOD_REQUIRED',
  'END_USER_CAP_REACHED',
  'STRIPE_CONNECT_REQUIRED',
  'STRIPE_CONNECT_PENDING',
] as const
export type GateReason = (typeof gateReasons)[number]

/** The plan fields that decide whether it is sold. */
export interface PlanForSale {
  readonly status: string
  /** A decimal. */
  readonly priceAmount: string
  readonly isStarterDefault: boolean
}

/** State of one side of the gate, for reads. */
export interface Admission {
  /** Null when the gate is open. */
  readonly reason: GateReason | null
  /** Whether the gate rejects for that reason or only logs it. */
  readonly isEnforced: boolean
}

export interface Activation {
  /** Cost side: new active end users. */
  readonly provisioning: Admission
  /** Revenue side: plans with a price. */
  readonly selling: Admission
}

interface Denial {
  readonly app: AppId
  readonly reason: GateReason
  readonly billingMode: BillingMode
}

const notedMs = 60_000
const notedMax = 10_000

/**
 * The activation gate (docs/billing.md): decides which apps may add end users, and which may sell.
 */
export function createGate(deps: GateDeps) {
  const { pool, mode, endUserCap, ledger, connections, findOwnerAccount, metrics, now } = deps
  const denials = new Counter({
    name: 'tollgate_activation_gate_denials_total',
    help: 'What the activation gate refused, or would have refused',
    labelNames: ['code', 'enforced'],
    registers: [metrics],
  })
  const code = gateReasons.map((reason) => reason.toLowerCase())
  startAtZero(denials, { code, enforced: ['true', 'false'] })
  const note = createNotes(deps)
  const isCostEnforced = mode === 'enforce'
  const isRevenueEnforced = mode === 'enforce' || mode === 'enforce_revenue'

  /**
   * Checks the app's limits after this transaction has activated end users. Throws
   * OWNER_PAYMENT_METHOD_REQUIRED, or END_USER_CAP_REACHED when the cap is exceeded; the
   * transaction must then roll back. Locks the app's settings, so that transactions count one after
   * the other. Call it last, or take no lock afterwards.
   */
  async function requireCost(db: Db, app: AppId): Promise<void> {
    if (mode === 'off') return
    const settings = isCostEnforced
      ? await store.lockSettings(db, app, now())
      : await store.findSettings(db, app)
    const reason = await costReason(db, { app, settings, more: 0 })
    if (reason) await deny(db, { app, reason, ...settings }, isCostEnforced)
  }

  /**
   * Checks for room before another domain creates one end user. Throws as `requireCost` does, but
   * only in the mode that enforces it.
   */
  async function requireRoom(db: Db, app: AppId): Promise<void> {
    if (!isCostEnforced) return
    const settings = await store.findSettings(db, app)
    const reason = await costReason(db, { app, settings, more: 1 })
    if (reason) await deny(db, { app, reason, ...settings }, true)
  }

  /**
   * Checks whether the app may sell a plan. Throws STRIPE_CONNECT_REQUIRED or _PENDING for an
   * active plan with a price when no account can take the payments.
   */
  async function requireSelling(db: Db, app: AppId, plan: PlanForSale): Promise<void> {
    if (isSold(plan)) await requireSale(db, app)
  }

  async function requireSale(db: Db, app: AppId): Promise<void> {
    if (mode === 'off') return
    const settings = await store.findSettings(db, app)
    const reason = await saleReason(db, app, settings)
    if (reason) await deny(db, { app, reason, ...settings }, isRevenueEnforced)
  }

  /** Returns what the gate would decide now for one more end user and for a plan with a price. */
  async function read(db: Db, app: AppId, settings: Settings): Promise<Activation> {
    if (mode === 'off') return { provisioning: open, selling: open }
    const [cost, sale] = [
      await costReason(db, { app, settings, more: 1 }),
      await saleReason(db, app, settings),
    ]
    return {
      provisioning: { reason: cost, isEnforced: isCostEnforced },
      selling: { reason: sale, isEnforced: isRevenueEnforced },
    }
  }

  async function costReason(
    db: Db,
    { app, settings, more }: { app: AppId; settings: Settings; more: number },
  ): Promise<GateReason | null> {
    if (settings.isPlatformOwned) return null
    if (!(await isBillable(db, app))) return 'OWNER_PAYMENT_METHOD_REQUIRED'
    const cap = settings.endUserCap ?? endUserCap
    const active = await store.countActiveUsers(db, app, cap + 1)
    return active + more > cap ? 'END_USER_CAP_REACHED' : null
  }

  // An owner who was never charged has spent nothing.
  async function isBillable(db: Db, app: AppId): Promise<boolean> {
    const owner = await findOwnerAccount(db, app)
    if (owner === null) return true
    const at = now()
    const account = await ledger.readWithin(db, owner, at)
    // Only a paid plan with a card that can be charged has a ceiling.
    return (await ledger.spending(db, account, at)).canSpend || account.ceiling > 0n
  }

  async function saleReason(
    db: Db,
    app: AppId,
    { billingMode }: Pick<Settings, 'billingMode'>,
  ): Promise<GateReason | null> {
    // The deployment's own processor account takes the payments of owners.
    if (await store.isPlatformApp(db, app)) return null
    const { status } = await connections.findConnection(db, app)
    if (billingMode !== 'merchant' || status === 'disconnected') return 'STRIPE_CONNECT_REQUIRED'
    return status === 'pending' ? 'STRIPE_CONNECT_PENDING' : null
  }

  async function deny(db: Db, denial: Denial, isEnforced: boolean): Promise<void> {
    denials.inc({ code: denial.reason.toLowerCase(), enforced: String(isEnforced) })
    note(denial, isEnforced)
    if (!isEnforced) return
    const clientId = await findClientId(db, denial.app)
    throw new DomainError(denial.reason, details[denial.reason], {
      members: {
        billingMode: denial.billingMode,
        actionUrl: `${deps.publicUrl}/apps/${clientId}/billing`,
      },
    })
  }

  /** For callers that have checked that the plan is active and has a price. */
  const selling = {
    require: (db: Db, { appId }: { readonly appId: AppId }) => requireSale(db, appId),
  }

  return {
    requireCost,
    requireRoom,
    requireSelling,
    selling,
    read: (app: AppId, settings: Settings) => read(pool, app, settings),
  }
}

export type Gate = ReturnType<typeof createGate>

const open: Admission = { reason: null, isEnforced: false }

const isSold = ({ status, priceAmount, isStarterDefault }: PlanForSale): boolean =>
  status === 'active' && !isStarterDefault && /[1-9]/.test(priceAmount)

export const details: Readonly<Record<GateReason, string>> = {
  OWNER_PAYMENT_METHOD_REQUIRED:
    "what the owner's account includes is used up, and no payment method of the owner can be charged; take an owner plan (POST …/billing/owner-plan)",
  END_USER_CAP_REACHED:
    'the app has reached its cap on active end users; deactivate one, or ask a platform admin for a higher cap',
  STRIPE_CONNECT_REQUIRED:
    'a plan with a price needs the billing mode merchant and a connected account at the payment processor',
  STRIPE_CONNECT_PENDING: 'the connected account cannot take payments yet; complete its onboarding',
}

/**
 * Writes an audit entry for the first denial of each kind per minute. Uses its own transaction,
 * because the caller's may roll back.
 */
function createNotes({ pool, log, now }: Pick<GateDeps, 'pool' | 'log' | 'now'>) {
  const noted = new LRUCache<string, true>({ max: notedMax, ttl: notedMs })
  return ({ app, reason, billingMode }: Denial, isEnforced: boolean): void => {
    const kind = `${app} ${reason}`
    if (noted.has(kind)) return
    noted.set(kind, true)
    const code = reason.toLowerCase()
    const action = isEnforced ? 'activation_gate_denied' : 'activation_gate_would_deny'
    log.info({ appId: app, code, enforced: isEnforced }, 'activation gate denies')
    void audit(pool, {
      appId: app,
      actor: 'activation_gate',
      action,
      status: isEnforced ? 'refused' : 'success',
      details: { code, billingMode },
      at: now(),
    }).catch((error: unknown) => log.error({ err: error, appId: app, code }, 'audit entry lost'))
  }
}
