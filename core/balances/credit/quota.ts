import { DomainError } from '../../../proto/errors.ts'
import { type UsdAttos, microsDown, microsToAttos, usdAttos } from '../../lib/money.ts'
import type { UsdMicros } from '../../lib/money.ts'
import { type Db, tx } from '../../lib/sql.ts'
import { findApp } from '../../shared/clients.ts'
import { auditSuccess } from '../../shared/audit.ts'
import type { AppId } from '../../shared/ids.ts'
import type { Shared } from '../../shared/shared.ts'
import * as store from './quota-store.ts'

/** The person who changes a quota, and the request. */
interface QuotaActor {
  readonly name: string
  readonly correlationId: string
}

export interface CreditQuotaDeps extends Pick<Shared, 'pool' | 'now'> {
  /** Default quota per app. */
  readonly defaultMax: UsdMicros
  readonly isConnected: IsConnected
}

/** Whether the app's account at the payment processor can take payments. */
export type IsConnected = (db: Db, app: AppId) => Promise<boolean>

/**
 * Limits the unspent credit that an app may give its users through the API, until its account at the
 * payment processor is connected (docs/decisions/42.md). Each credit raises an upper bound, stored
 * in one row per app. The exact sum is counted again only when the bound would exceed the quota,
 * under the lock of that row.
 */
export function createCreditQuota({ pool, defaultMax, now, isConnected }: CreditQuotaDeps) {
  const fallback = microsToAttos(defaultMax)

  /**
   * Counts a credit given in this transaction. Must be its last statement, because it locks the
   * app's row until commit. Throws CONFLICT, with the quota's name, if the app has reached its
   * quota.
   */
  async function count(db: Db, app: AppId, amount: UsdAttos): Promise<void> {
    const at = now()
    if (await store.raiseBound(db, app, { amount, fallback, at })) return
    const isLimited = !(await isConnected(db, app))
    // The bound stays true for the day on which the app disconnects.
    if (!isLimited && (await store.addToBound(db, app, { amount, at }))) return
    const max = (await store.lockQuota(db, app, at)) ?? fallback
    const sum = await store.outstandingCredit(db, app, at)
    if (isLimited && sum > max)
      throw new DomainError(
        'CONFLICT',
        `quota manual credit per app: its users would have ${usd(sum)} of ${usd(max)} USD unspent; a platform admin can raise it`,
      )
    await store.setBound(db, app, sum)
  }

  /** Returns the app's quota and its users' unspent credit. Throws NOT_FOUND for an unknown app. */
  async function read(clientId: string) {
    const app = await getApp(pool, clientId)
    const max = (await store.findLimit(pool, app)) ?? fallback
    const sum = await store.outstandingCredit(pool, app, now())
    return { clientId, maxUsdMicros: micros(max), outstandingUsdMicros: micros(sum) }
  }

  /** Sets the app's quota; null restores the deployment's default. */
  async function change(clientId: string, max: UsdMicros | null, actor: QuotaActor) {
    await tx(pool, async (db) => {
      const at = now()
      const app = await getApp(db, clientId)
      const before = (await store.lockQuota(db, app, at)) ?? fallback
      await store.setLimit(db, app, max === null ? null : microsToAttos(max))
      await auditSuccess(db, {
        appId: app,
        actor: { name: actor.name, context: actor },
        action: 'quota_changed',
        details: {
          quota: 'manual_credit',
          fromUsdMicros: micros(before),
          toUsdMicros: max === null ? null : max.toString(),
        },
        at,
      })
    })
    return read(clientId)
  }

  return { count, read, change }
}

export type CreditQuota = ReturnType<typeof createCreditQuota>

async function getApp(db: Db, clientId: string): Promise<AppId> {
  const app = await findApp(db, clientId)
  if (app === null) throw new DomainError('NOT_FOUND', 'there is no such app')
  return app
}

const micros = (attos: bigint): string => microsDown(usdAttos(attos)).toString()

const usd = (attos: bigint): string => (Number(microsDown(usdAttos(attos))) / 1e6).toString()
