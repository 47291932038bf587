import type * as pb from '../../proto/gen/ts-proto/tollgate/allowances/v1/allowances.ts'
import { Scope } from '../../proto/scopes.ts'
import {
  type M2mCaller,
  toActor,
  type RequireMetering,
  m2m,
  m2mBasic,
  endUser,
  operator,
  operatorActor,
  operatorWrite,
  platformAdmin,
} from '../rpc/callers.ts'
import { DomainError } from '../../proto/errors.ts'
import type * as quotas from '../../proto/gen/ts-proto/tollgate/allowances/v1/quotas.ts'
import { type UsdMicros, parseInteger, usdMicros } from '../lib/money.ts'
import type { NetworkQuota } from './exposure/quota.ts'
import type { CreditQuota } from './quota.ts'
import { parseIdempotencyKey } from '../platform/idempotency.ts'
import { batchedRpc } from '../rpc/batched.ts'
import { type Context, type Handlers, rpc } from '../rpc/serve.ts'
import type { Adjustments } from './adjustments.ts'
import type { AppId } from '../platform/ids.ts'
import type { Allowances, CreditRequest } from './service.ts'

export function createCreditQuotaRpc(quota: CreditQuota) {
  const creditQuotaService: Handlers<quotas.CreditQuotaServiceServer> = {
    getCreditQuota: rpc(platformAdmin(), async ({ clientId }: quotas.GetCreditQuotaRequest) =>
      quota.read(clientId),
    ),
    setCreditQuota: rpc(
      platformAdmin(),
      async (request: quotas.SetCreditQuotaRequest, { accountId }, { correlationId }) =>
        quota.change(request.clientId, parseMax(request.maxUsdMicros), {
          name: accountId,
          correlationId,
        }),
    ),
    readCreditQuota: rpc(operator(), async ({ clientId }: quotas.ReadCreditQuotaRequest) =>
      quota.read(clientId),
    ),
    replaceCreditQuota: rpc(
      operatorWrite(),
      async (request: quotas.ReplaceCreditQuotaRequest, _, { correlationId }) =>
        quota.change(request.clientId, parseMax(request.maxUsdMicros), {
          name: 'operator',
          correlationId,
        }),
    ),
  }
  return { creditQuotaService }
}

export function createNetworkQuotaRpc(quota: NetworkQuota) {
  const ofAccount = ({ email }: { readonly email: string }) => ({ email, clientId: '' })
  const networkQuotaService: Handlers<quotas.NetworkQuotaServiceServer> = {
    getNetworkQuota: rpc(platformAdmin(), async (request: quotas.GetNetworkQuotaRequest) => ({
      quota: await quota.read(ofAccount(request)),
    })),
    setNetworkQuota: rpc(
      platformAdmin(),
      async (request: quotas.SetNetworkQuotaRequest, { accountId }, { correlationId }) => ({
        quota: await quota.change(ofAccount(request), parseMax(request.maxUsdMicros), {
          name: accountId,
          correlationId,
        }),
      }),
    ),
    readNetworkQuota: rpc(operator(), async (request: quotas.ReadNetworkQuotaRequest) => ({
      quota: await quota.read(request),
    })),
    replaceNetworkQuota: rpc(
      operatorWrite(),
      async (request: quotas.ReplaceNetworkQuotaRequest, _, { correlationId }) => ({
        quota: await quota.change(request, parseMax(request.maxUsdMicros), {
          name: 'operator',
          correlationId,
        }),
      }),
    ),
    listReachedNetworkQuotas: rpc(operator(), async () => ({ quotas: await quota.listReached() })),
  }
  return { networkQuotaService }
}

function parseMax(text: string | undefined): UsdMicros | null {
  if (text === undefined) return null
  const value = parseInteger(text)
  if (value === null || value < 0n || value > 10n ** 15n)
    throw new DomainError(
      'AMOUNT_INVALID',
      'maxUsdMicros must be a whole number of USD micros, at most 10^15',
    )
  return usdMicros(value)
}

const parseCredit = (request: pb.CreateGrantRequest): CreditRequest => ({
  externalUserId: request.externalUserId,
  amountUsdMicros: request.amountUsdMicros,
  source: request.source,
  featureKey: request.featureKey,
  idempotencyKey: parseIdempotencyKey(request.idempotencyKey),
})

/** Allowances of any app's users, for operators. */
export function createOperatorAllowancesRpc({ allowances, appOf }: OperatorDeps) {
  const operatorAllowanceService: Handlers<pb.OperatorAllowanceServiceServer> = {
    readAllowance: rpc(operator(), async (request: pb.ReadAllowanceRequest) => ({
      allowance: await allowances.read(await appOf(request.clientId), request.externalUserId),
    })),
    giveGrant: rpc(operatorWrite(), async (request: pb.GiveGrantRequest, _, context) => {
      const appId = await appOf(request.clientId)
      const idempotencyScope = `operator:grants:${appId}`
      const actor = operatorActor(context)
      return allowances.credit({ appId, actor, idempotencyScope }, parseCredit(request))
    }),
  }
  return { operatorAllowanceService }
}

interface OperatorDeps {
  readonly allowances: Pick<Allowances, 'read' | 'credit'>
  /** Finds the app of a public client id. Throws NOT_FOUND if it is unknown. */
  readonly appOf: (clientId: string) => Promise<AppId>
}

interface Deps {
  readonly allowances: Allowances
  readonly adjustments: Adjustments
  readonly requireMetering: RequireMetering
}

const service = 'tollgate.allowances.v1.AllowanceService'

export function createAllowancesRpc({ allowances, adjustments, requireMetering }: Deps) {
  const crediting = requireMetering(m2m(Scope.usersWrite))
  const credit = async (request: pb.CreateGrantRequest, caller: M2mCaller, context: Context) =>
    allowances.credit(
      {
        appId: caller.appId,
        actor: toActor(caller, context),
        idempotencyScope: `${caller.m2mClientId}:grants`,
      },
      parseCredit(request),
    )
  const reading = requireMetering(m2mBasic())
  const read = async ({ externalUserId, asOf }: pb.GetBalanceRequest, { appId }: M2mCaller) => ({
    balance: await allowances.balance({ appId, externalUserId }, asOf),
  })
  const allowanceService: Handlers<pb.AllowanceServiceServer> = {
    getAllowance: rpc(
      requireMetering(m2m(Scope.usersRead)),
      async (request: pb.GetAllowanceRequest, caller) => ({
        allowance: await allowances.read(caller.appId, request.externalUserId),
      }),
    ),
    createGrant: rpc(crediting, credit),
    createGrants: batchedRpc(`${service}/CreateGrant`, crediting, credit),
    createAdjustment: rpc(
      operatorWrite(),
      async (request: pb.CreateAdjustmentRequest, _caller, { correlationId }) =>
        adjustments.adjust({
          clientId: request.clientId,
          externalUserId: request.externalUserId,
          amountUsdMicros: request.amountUsdMicros,
          reason: request.reason,
          author: request.author,
          eventId: request.eventId,
          uncovered: request.uncovered,
          idempotencyKey: parseIdempotencyKey(request.idempotencyKey),
          correlationId,
        }),
    ),
    getBalance: rpc(reading, read),
    getBalances: batchedRpc(`${service}/GetBalance`, reading, read),
    getOwnBalance: rpc(
      requireMetering(endUser()),
      async (request: pb.GetOwnBalanceRequest, caller) => ({
        balance: await allowances.balance(caller, request.asOf),
      }),
    ),
  }
  return { allowanceService }
}
