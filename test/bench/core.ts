import { createLedger } from '../../core/balances/ledger/ledger.ts'
import { createCreditQuota } from '../../core/balances/credit/quota.ts'
import { createAllowances } from '../../core/balances/credit/allowances.ts'
import type { M2mCaller } from '../../core/rpc/callers.ts'
import { createIdempotency } from '../../core/shared/idempotency.ts'
import { createApps } from '../../core/identity/apps/apps.ts'
import { createUsers } from '../../core/identity/users/users.ts'
import { type UserId, externalUserId, isClientId, isM2mClientId } from '../../core/shared/ids.ts'
import { createGrants } from '../../core/shared/lineage/grants.ts'
import { createInvalidations } from '../../core/shared/invalidations.ts'
import { createEnvReader } from '../../core/lib/env.ts'
import { silentLog } from '../../core/lib/log.ts'
import { createMetrics } from '../../core/lib/metrics.ts'
import { usdMicros } from '../../core/lib/money.ts'
import { createPool } from '../../core/lib/sql.ts'
import { systemNow as now } from '../../core/lib/time.ts'
import { readMeteringConfig } from '../../core/metering/config.ts'
import { createUnpricedCount } from '../../core/metering/rates/unpriced.ts'
import { createMetering } from '../../core/metering/service.ts'
import type { EventSource } from '../../core/metering/collector/collector.ts'
import { createCuts } from '../../core/billing/cuts.ts'
import { planReads } from '../../core/plans/offers/reads.ts'
import { createPlans } from '../../core/plans/service.ts'
import { createSealing } from '../../core/shared/sealing/sealing.ts'
import { createSecrets } from '../../core/shared/secrets.ts'
import { createUsage } from '../../core/usage/service.ts'
import { m2mScopes, publicScopes } from '../../proto/scopes.ts'

const statementTimeoutMs = 10_000
// More than any run can spend, so that charges are measured and not refusals.
const included = usdMicros(10n ** 12n)

/**
 * Wires core's services on the database at `url` as core/app.ts does, without a network between.
 */
export function wireCore(url: string) {
  const log = silentLog()
  const pool = createPool({ url, max: 8, name: 'tollgate-bench', statementTimeoutMs })
  // The database is dropped while idle connections are open.
  pool.on('error', () => undefined)
  const ledger = createLedger()
  const plans = createPlans({ ledger })
  const invalidations = createInvalidations({ redis: null, tombstoneSeconds: 360, log })
  const secrets = createSecrets({
    current: 'bench',
    byId: new Map([['bench', Buffer.alloc(32, 1)]]),
  })
  const apps = createApps({
    pool,
    plans,
    secrets,
    now,
    quota: { requireRoom: async () => {} },
    ownByPlatform: async () => {},
    putOwner: async () => {},
  })
  const grants = createGrants({ pool, invalidations, now })
  const users = createUsers({
    pool,
    plans,
    invalidations,
    grants,
    credentialIssuers: [],
    log,
    now,
  })
  const usage = createUsage({ pool, users, now })
  const idempotency = createIdempotency({ pool, sealing: createSealing(['x'.repeat(32)]), now })
  const allowances = createAllowances({
    pool,
    ledger,
    users,
    idempotency,
    invalidations,
    quota: createCreditQuota({
      pool,
      now,
      isConnected: async () => false,
      defaultMax: usdMicros(10n ** 15n),
    }),
    countUnpriced: createUnpricedCount(pool),
    requireFeature: async () => {},
    log,
    now,
  })

  /** Creates an app. Returns the caller for its own M2M client. */
  async function createApp(): Promise<M2mCaller> {
    const { id, clientId, m2mClientId } = await apps.create({
      name: 'Bench',
      included,
      isPlatformOwned: false,
    })
    if (!isClientId(clientId) || !isM2mClientId(m2mClientId)) throw new Error('malformed client id')
    return {
      kind: 'm2m',
      appId: id,
      clientId,
      m2mClientId,
      scopes: m2mScopes,
      publicScopes,
      grants: [],
    }
  }

  /** Creates the collector as in production, with a fixed rate and another stream. */
  function createCollecting(eventSource: EventSource) {
    const config = readMeteringConfig(createEnvReader({ RATE_FIXED: '3000' }))
    const metrics = createMetrics('bench')
    return createMetering({
      pool,
      users,
      ledger,
      plans: planReads,
      cuts: createCuts({ pool, now }),
      invalidations,
      config,
      eventSource,
      log,
      metrics,
      now,
    })
  }

  /** Returns the id of the user with that name, and creates the user if needed. */
  async function userId({ appId }: M2mCaller, name: string): Promise<UserId> {
    const upserted = await users.upsert(
      appId,
      { externalUserId: externalUserId(name) },
      { name: 'bench' },
    )
    return upserted.user.id
  }

  async function stop(): Promise<void> {
    invalidations.stop()
    await pool.end()
  }

  return { pool, allowances, usage, createApp, userId, createCollecting, stop }
}

export type Wired = ReturnType<typeof wireCore>
