import { DomainError } from '../../proto/errors.ts'
import { type UsdAttos, microsDown, microsToAttos, usdAttos } from '../lib/money.ts'
import type { UsdMicros } from '../lib/money.ts'
import { type Db, type Pool, tx } from '../lib/sql.ts'
import type { Now } from '../lib/time.ts'
import { findApp } from '../platform/clients.ts'
import { audit } from '../platform/audit.ts'
import type { AppId } from '../platform/ids.ts'
import * as store from './quota-store.ts'

export interface CreditQuotaDeps {
  readonly pool: Pool
  /** For apps to which nobody gave another quota. */
  readonly defaultMax: UsdMicros
  readonly now: Now
}

/** Who changes a quota, and in which request. */
export interface QuotaActor {
  readonly name: string
  readonly correlationId: string
}

/**
 * How much credit an app may have given its users through the API that they have not spent (docs/decisions/42.md). No app has
 * a payment processor yet, so it holds for all. Each credit adds to an upper bound in one row per app; only when the bound
 * would exceed the quota is the sum counted anew, under the lock of that row.
 */
export function createCreditQuota({ pool, defaultMax, now }: CreditQuotaDeps) {
  const fallback = microsToAttos(defaultMax)

  /**
   * Counts a credit that this transaction has given. The last statement of it, because it locks the app's row until the
   * commit. CONFLICT, with the name of the quota, when the app has given as much as it may.
   */
  async function count(db: Db, app: AppId, amount: UsdAttos): Promise<void> {
    const at = now()
    if (await store.raiseBound(db, app, { amount, fallback, at })) return
    const max = (await store.lockQuota(db, app, at)) ?? fallback
    const sum = await store.outstandingCredit(db, app, at)
    if (sum > max)
      throw new DomainError(
        'CONFLICT',
        `quota manual credit per app: its users would have ${usd(sum)} of ${usd(max)} USD unspent; a platform admin can raise it`,
      )
    await store.setBound(db, app, sum)
  }

  /** What the app may have given, and what its users have not spent of it. NOT_FOUND for an unknown app. */
  async function read(clientId: string) {
    const app = await getApp(pool, clientId)
    const max = (await store.findLimit(pool, app)) ?? fallback
    const sum = await store.outstandingCredit(pool, app, now())
    return { clientId, maxUsdMicros: micros(max), outstandingUsdMicros: micros(sum) }
  }

  /** Gives the app another quota, or with null the deployment's. */
  async function change(clientId: string, max: UsdMicros | null, actor: QuotaActor) {
    await tx(pool, async (db) => {
      const at = now()
      const app = await getApp(db, clientId)
      const before = (await store.lockQuota(db, app, at)) ?? fallback
      await store.setLimit(db, app, max === null ? null : microsToAttos(max))
      await audit(db, {
        appId: app,
        actor: actor.name,
        action: 'quota_changed',
        status: 'success',
        correlationId: actor.correlationId,
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
