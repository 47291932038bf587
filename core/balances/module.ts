import { AllowanceServiceService } from '../../proto/gen/ts-proto/tollgate/balances/v1/allowances.ts'
import { LimitServiceService } from '../../proto/gen/ts-proto/tollgate/balances/v1/limits.ts'
import type { IdentityApi } from '../identity/module.ts'
import type { BackendApi } from '../metering/backend/module.ts'
import type { MeteringApi } from '../metering/module.ts'
import type { PlansApi } from '../plans/module.ts'
import type { Shared } from '../shared/shared.ts'
import { grpcService } from '../rpc/serve.ts'
import {
  CreditQuotaServiceService,
  NetworkQuotaServiceService,
} from '../../proto/gen/ts-proto/tollgate/balances/v1/quotas.ts'
import { createAdjustments } from './credit/adjustments.ts'
import type { EscrowConfig } from './config.ts'
import { createEscrowModule } from './escrow/module.ts'
import type { Ledger } from './ledger/ledger.ts'
import { createLimitsRpc } from './limits/rpc.ts'
import { createLimits } from './limits/service.ts'
import { createNetworkQuota } from './exposure/quota.ts'
import { type CreditQuota, type IsConnected, createCreditQuota } from './credit/quota.ts'
import { createAllowancesRpc, createCreditQuotaRpc, createNetworkQuotaRpc } from './rpc.ts'
import { createAllowances } from './credit/allowances.ts'
import { createTopUps } from './credit/top-ups.ts'

export interface AllowancesOthers {
  readonly config: EscrowConfig
  /** Created before all modules, because metering and plans also write to it. */
  readonly ledger: Ledger
  readonly backend: BackendApi
  readonly plans: PlansApi
  readonly identity: IdentityApi
  readonly metering: MeteringApi
  readonly connections: { readonly isConnected: IsConnected }
}

const sweepsMax = 100
const renewRoundMs = 30_000

/** Allowances of users, their balances, and corrections by operators. */
export function createAllowancesModule(
  shared: Shared,
  { config, ledger, backend, plans, identity: { users }, metering, connections }: AllowancesOthers,
) {
  const { pool, log, now, clocks, idempotency, invalidations } = shared
  const deps = { pool, ledger, users, idempotency, invalidations, log, now }
  const quota = createCreditQuota({ pool, now, ...connections, defaultMax: config.manualCreditMax })
  const allowances = createAllowances({
    ...deps,
    clocks,
    quota,
    countUnpriced: metering.countUnpriced,
    requireFeature: plans.requireFeature,
    emitCredits: backend.emitter?.emitCredits,
  })
  const adjustments = createAdjustments(deps)
  const topUps = createTopUps({ ...deps, emitCredits: backend.emitter?.emitCredits })
  const { requireMetering } = backend
  const escrow = createEscrowModule(shared, { config, accounts: ledger, users, metering })
  const limits = createLimits({ pool, users, recall: escrow.api.recall, invalidations, log, now })
  const { limitService } = createLimitsRpc({ limits })

  async function renewPeriods(): Promise<void> {
    const end = performance.now() + renewRoundMs
    while (performance.now() < end) if ((await ledger.renew(pool, now())) === 0) return
  }

  async function expireCredits(): Promise<void> {
    for (let i = 0; i < sweepsMax; i++) if ((await ledger.sweep(pool, now())) === 0) return
  }

  return {
    api: { ...allowances, topUps },
    services: [
      grpcService(
        AllowanceServiceService,
        createAllowancesRpc({ allowances, adjustments, requireMetering }).allowanceService,
      ),
      ...quotaServices(shared, { ledger, quota }),
      grpcService(LimitServiceService, limitService),
      ...escrow.services,
    ],
    lifecycle: escrow.lifecycle,
    upkeep: [renewPeriods, expireCredits, limits.forgetOld, ...escrow.upkeep],
  }
}

function quotaServices(
  { pool, now }: Shared,
  {
    ledger: { exposures },
    quota,
  }: Pick<AllowancesOthers, 'ledger'> & { readonly quota: CreditQuota },
) {
  const network = createNetworkQuota({ pool, now, exposures })
  return [
    grpcService(CreditQuotaServiceService, createCreditQuotaRpc(quota).creditQuotaService),
    grpcService(NetworkQuotaServiceService, createNetworkQuotaRpc(network).networkQuotaService),
  ]
}
