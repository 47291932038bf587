import type { ServiceDefinition } from '@grpc/grpc-js'
import * as allowances from '../../../proto/gen/ts-proto/tollgate/balances/v1/allowances.ts'
import type * as escrow from '../../../proto/gen/ts-proto/tollgate/balances/v1/escrow.ts'
import * as limits from '../../../proto/gen/ts-proto/tollgate/balances/v1/limits.ts'
import * as quotas from '../../../proto/gen/ts-proto/tollgate/balances/v1/quotas.ts'
import { at } from './identity.ts'

const grant: allowances.Grant = {
  id: 'g-1',
  amountUsdMicros: '5000000',
  source: 'plan_adjustment',
  createdAt: at,
  featureKey: undefined,
  expiresAt: undefined,
  remainingUsdMicros: '4999990',
}

const allowance: allowances.Allowance = {
  externalUserId: 'ada',
  balanceUsdMicros: '4999990',
  consumedUsdMicros: '10',
  lifetimeGrantedUsdMicros: '5000000',
  grants: [grant],
  remainingUsdMicros: '4999980',
  hasAccess: true,
  canSpend: true,
  spendRefusal: '',
  featureBalances: [{ featureKey: 'live', balanceUsdMicros: '7' }],
}

const balance: allowances.Balance = {
  externalUserId: 'ada',
  balanceUsdMicros: '4999990',
  remainingUsdMicros: '4999980',
  consumedUsdMicros: '10',
  lifetimeGrantedUsdMicros: '5000000',
  hasAccess: true,
  unpricedTickets: '2',
  featureBalances: [],
}

const limit: limits.Limits = {
  usdMicrosPerDay: '2000000',
  usdMicrosPerSession: undefined,
  callsPerMinute: 60,
  concurrentSessions: undefined,
  maxPrices: [{ type: 'live', app: '', maxWei: '1300' }],
}

export const answers = {
  getAllowance: { allowance } satisfies allowances.GetAllowanceResponse,
  createGrant: {
    allowance,
    grant: { ...grant, source: 'manual' },
  } satisfies allowances.CreateGrantResponse,
  getBalance: { balance } satisfies allowances.GetBalanceResponse,
  getOwnBalance: { balance } satisfies allowances.GetOwnBalanceResponse,
  getLimits: { limits: limit } satisfies limits.GetLimitsResponse,
  updateLimits: { limits: limit } satisfies limits.UpdateLimitsResponse,
  deleteLimits: {} satisfies limits.DeleteLimitsResponse,
  listReachedNetworkQuotas: { quotas: [] } satisfies quotas.ListReachedNetworkQuotasResponse,
  listSidecars: {
    sidecars: [
      {
        id: 'sidecar-1',
        seenAt: at,
        stopped: false,
        lastAuthorisedAt: at,
        bookedThrough: undefined,
        secondsBehind: 61,
        stalled: true,
      },
    ],
  } satisfies escrow.ListSidecarsResponse,
}

export const services: ServiceDefinition[] = [
  allowances.AllowanceServiceService,
  limits.LimitServiceService,
  quotas.CreditQuotaServiceService,
  quotas.NetworkQuotaServiceService,
]
