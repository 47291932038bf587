import type * as pb from '../../proto/gen/ts-proto/tollgate/balances/v1/allowances.ts'
import { Scope } from '../../proto/scopes.ts'
import {
  type AppOperatorCaller,
  type M2mCaller,
  type MemberCaller,
  callerName,
  idempotencyScope,
  toActor,
} from '../rpc/callers.ts'
import {
  type RequireMetering,
  m2m,
  m2mBasic,
  endUser,
  appReader,
  appOperatorWrite,
  operator,
  operatorWrite,
  orMember,
  orOperator,
  orSelf,
  platformAdmin,
} from '../rpc/guards.ts'
import { DomainError } from '../../proto/errors.ts'
import type * as quotas from '../../proto/gen/ts-proto/tollgate/balances/v1/quotas.ts'
import { type UsdMicros, parseInteger, usdMicros } from '../lib/money.ts'
import type { NetworkQuota } from './exposure/quota.ts'
import type { CreditQuota } from './credit/quota.ts'
import { parseIdempotencyKey } from '../shared/idempotency.ts'
import { batchedRpc } from '../rpc/batched.ts'
import { type Context, type Handlers, rpc } from '../rpc/serve.ts'
import type { Adjustments } from './credit/adjustments.ts'
import type { Allowances, CreditRequest } from './credit/allowances.ts'

export function createCreditQuotaRpc(quota: CreditQuota) {
  const creditQuotaService: Handlers<quotas.CreditQuotaServiceServer> = {
    getCreditQuota: rpc(
      orOperator(platformAdmin(), operator()),
      async ({ clientId }: quotas.GetCreditQuotaRequest) => quota.read(clientId),
    ),
    updateCreditQuota: rpc(
      orOperator(platformAdmin(), operatorWrite()),
      async (request: quotas.UpdateCreditQuotaRequest, caller, { correlationId }) =>
        quota.change(request.clientId, parseMax(request.maxUsdMicros), {
          name: callerName(caller),
          correlationId,
        }),
    ),
  }
  return { creditQuotaService }
}

export function createNetworkQuotaRpc(quota: NetworkQuota) {
  const networkQuotaService: Handlers<quotas.NetworkQuotaServiceServer> = {
    getNetworkQuota: rpc(
      orOperator(platformAdmin(), operator()),
      async (request: quotas.GetNetworkQuotaRequest) => ({ quota: await quota.read(request) }),
    ),
    updateNetworkQuota: rpc(
      orOperator(platformAdmin(), operatorWrite()),
      async (_request: quotas.UpdateNetworkQuotaRequest): Promise<never> => {
        throw new DomainError(
          'CONFLICT',
          "the owner's account bounds what its apps cost: give it credit, raise its ceiling, or let it take an owner plan",
        )
      },
    ),
    listReachedNetworkQuotas: rpc(orOperator(platformAdmin(), operator()), async () => ({
      quotas: await quota.listReached(),
    })),
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

interface Deps {
  readonly allowances: Allowances
  readonly adjustments: Adjustments
  readonly requireMetering: RequireMetering
}

const service = 'tollgate.balances.v1.AllowanceService'

export function createAllowancesRpc({ allowances, adjustments, requireMetering }: Deps) {
  const crediting = requireMetering(m2m(Scope.usersWrite))
  const credit = async (
    request: pb.CreateGrantRequest,
    caller: M2mCaller | MemberCaller | AppOperatorCaller,
    context: Context,
  ) =>
    allowances.credit(
      {
        appId: caller.appId,
        actor: toActor(caller, context),
        idempotencyScope: idempotencyScope(caller, 'grants'),
      },
      parseCredit(request),
    )
  const reading = requireMetering(m2mBasic())
  const read = async (
    { externalUserId, asOf }: pb.GetBalanceRequest,
    { appId }: M2mCaller | MemberCaller | AppOperatorCaller,
  ) => ({
    balance: await allowances.balance({ appId, externalUserId }, asOf),
  })
  const allowanceService: Handlers<pb.AllowanceServiceServer> = {
    getAllowance: rpc(
      orOperator(requireMetering(orMember(m2m(Scope.usersRead), 'read')), appReader()),
      async (request: pb.GetAllowanceRequest, caller) => ({
        allowance: await allowances.read(caller.appId, request.externalUserId),
      }),
    ),
    createGrant: rpc(
      orOperator(requireMetering(orMember(m2m(Scope.usersWrite), 'edit')), appOperatorWrite()),
      credit,
    ),
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
    getBalance: rpc(orOperator(requireMetering(orMember(m2mBasic(), 'read')), appReader()), read),
    getBalances: batchedRpc(`${service}/GetBalance`, reading, read),
    getOwnBalance: rpc(
      requireMetering(orSelf(endUser())),
      async (request: pb.GetOwnBalanceRequest, caller) => ({
        balance: await allowances.balance(caller, request.asOf),
      }),
    ),
  }
  return { allowanceService }
}
