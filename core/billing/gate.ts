import { LRUCache } from 'lru-cache'
import { Counter } from 'prom-client'
import { DomainError } from '../../proto/errors.ts'
import type { Ledger } from '../allowances/ledger.ts'
import type { Log } from '../lib/log.ts'
import type { Metrics } from '../lib/metrics.ts'
import type { Db, Pool } from '../lib/sql.ts'
import type { Now } from '../lib/time.ts'
import { audit } from '../platform/audit.ts'
import { findClientId } from '../platform/clients.ts'
import type { AppId, UserId } from '../platform/ids.ts'
import type { GateMode } from './config.ts'
import type { PaymentProcessor } from './processor.ts'
import * as store from './store.ts'
import type { BillingMode, Settings } from './store.ts'

export interface GateDeps {
  readonly pool: Pool
  readonly mode: GateMode
  /** For apps to which nobody gave another cap. */
  readonly endUserCap: number
  readonly publicUrl: string
  readonly ledger: Pick<Ledger, 'readWithin' | 'spendable'>
  readonly processor: PaymentProcessor
  /** The owner of the app as an end user of it; null while there is none. */
  readonly findOwner: (db: Db, app: AppId) => Promise<UserId | null>
  readonly metrics: Metrics
  readonly log: Log
  readonly now: Now
}

/** The gate's reasons, as proto/errors.ts has them. */
export type GateReason =
  | 'OWNER_PAYMENT_METHOD_REQUIRED'
  | 'END_USER_CAP_REACHED'
  | 'STRIPE_CONNECT_REQUIRED'
  | 'STRIPE_CONNECT_PENDING'

/** What a plan is sold for. */
export interface PlanForSale {
  readonly status: string
  /** A decimal. */
  readonly priceAmount: string
  readonly isStarterDefault: boolean
}

/** One side of the gate as a read shows it. */
export interface Admission {
  /** Null: nothing stands against it. */
  readonly reason: GateReason | null
  /** Whether the gate refuses for that reason, or only says that it would. */
  readonly isEnforced: boolean
}

export interface Activation {
  /** New active end users: the cost side. */
  readonly provisioning: Admission
  /** Plans at a price: the revenue side. */
  readonly selling: Admission
}

interface Denial {
  readonly app: AppId
  readonly reason: GateReason
  readonly billingMode: BillingMode
}

const notedMs = 60_000
const notedMax = 10_000

/** The activation gate (docs/billing.md): which apps may have new end users, and which may sell. */
export function createGate(deps: GateDeps) {
  const { pool, mode, endUserCap, ledger, processor, findOwner, metrics, now } = deps
  const denials = new Counter({
    name: 'tollgate_activation_gate_denials_total',
    help: 'What the activation gate refused, or would have refused',
    labelNames: ['code', 'enforced'],
    registers: [metrics],
  })
  const note = createNotes(deps)
  const isCostEnforced = mode === 'enforce'
  const isRevenueEnforced = mode === 'enforce' || mode === 'enforce_revenue'

  /**
   * Lets an app have the end users that this transaction made active. OWNER_PAYMENT_METHOD_REQUIRED, or
   * END_USER_CAP_REACHED when they are more than its cap; the transaction must not commit then. It locks the app's settings,
   * so that transactions count one after the other: it is the last statement, or what follows takes no lock.
   */
  async function requireCost(db: Db, app: AppId): Promise<void> {
    if (mode === 'off') return
    const settings = isCostEnforced
      ? await store.lockSettings(db, app, now())
      : await store.findSettings(db, app)
    const reason = await costReason(db, { app, settings, more: 0 })
    if (reason) await deny(db, { app, reason, ...settings }, isCostEnforced)
  }

  /** Before one end user more is made elsewhere: the refusals of `requireCost`, where it enforces them. */
  async function requireRoom(db: Db, app: AppId): Promise<void> {
    if (!isCostEnforced) return
    const settings = await store.findSettings(db, app)
    const reason = await costReason(db, { app, settings, more: 1 })
    if (reason) await deny(db, { app, reason, ...settings }, true)
  }

  /** Lets an app sell a plan. STRIPE_CONNECT_REQUIRED or _PENDING for an active plan at a price that no account is paid for. */
  async function requireSelling(db: Db, app: AppId, plan: PlanForSale): Promise<void> {
    if (isSold(plan)) await requireSale(db, app)
  }

  async function requireSale(db: Db, app: AppId): Promise<void> {
    if (mode === 'off') return
    const settings = await store.findSettings(db, app)
    const reason = await saleReason(app, settings)
    if (reason) await deny(db, { app, reason, ...settings }, isRevenueEnforced)
  }

  /** What the gate would say now, of one end user more and of a plan at a price. */
  async function read(db: Db, app: AppId, settings: Settings): Promise<Activation> {
    if (mode === 'off') return { provisioning: open, selling: open }
    const [cost, sale] = [
      await costReason(db, { app, settings, more: 1 }),
      await saleReason(app, settings),
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

  // An owner who is no end user of the app yet has spent nothing of it.
  async function isBillable(db: Db, app: AppId): Promise<boolean> {
    const userId = await findOwner(db, app)
    if (userId === null) return true
    const at = now()
    const account = await ledger.readWithin(db, { appId: app, userId }, at)
    return ledger.spendable(account, at) > 0n || processor.canChargeOwner(app)
  }

  async function saleReason(
    app: AppId,
    { billingMode }: Pick<Settings, 'billingMode'>,
  ): Promise<GateReason | null> {
    const { status } = await processor.connectionOf(app)
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
        actionUrl: `${deps.publicUrl}/api/v1/apps/${clientId}/billing/processor`,
      },
    })
  }

  /** For whoever knows that the plan is active and has a price. */
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
    "the owner's allowance in this app is used up, and no payment method of the owner can be charged",
  END_USER_CAP_REACHED:
    'the app has as many active end users as it may; deactivate one, or ask a platform admin for a higher cap',
  STRIPE_CONNECT_REQUIRED:
    'selling at a price needs the billing mode merchant and a connected account at the payment processor',
  STRIPE_CONNECT_PENDING:
    'the connected account may not take payments yet; complete its onboarding',
}

/** Writes an entry in the audit log for the first denial of each kind in a minute, in its own time: its transaction may roll back. */
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
