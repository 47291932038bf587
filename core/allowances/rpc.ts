import type * as pb from '../../proto/gen/ts-proto/tollgate/allowances/v1/allowances.ts'
import { Scope } from '../../proto/scopes.ts'
import { actorOf, type RequireMetering, m2m, m2mBasic, operator, endUser } from '../rpc/callers.ts'
import { parseIdempotencyKey } from '../platform/idempotency.ts'
import { type Handlers, rpc } from '../rpc/serve.ts'
import type { Adjustments } from './adjustments.ts'
import type { Allowances } from './service.ts'

interface Deps {
  readonly allowances: Allowances
  readonly adjustments: Adjustments
  readonly requireMetering: RequireMetering
}

export function createAllowancesRpc({ allowances, adjustments, requireMetering }: Deps) {
  const allowanceService: Handlers<pb.AllowanceServiceServer> = {
    getAllowance: rpc(
      requireMetering(m2m(Scope.usersRead)),
      async (request: pb.GetAllowanceRequest, caller) => ({
        allowance: await allowances.read(caller, request.externalUserId),
      }),
    ),
    createGrant: rpc(
      requireMetering(m2m(Scope.usersWrite)),
      async (request: pb.CreateGrantRequest, caller, context) =>
        allowances.credit(
          caller,
          {
            externalUserId: request.externalUserId,
            amountUsdMicros: request.amountUsdMicros,
            source: request.source,
            featureKey: request.featureKey,
            idempotencyKey: parseIdempotencyKey(request.idempotencyKey),
          },
          actorOf(caller, context),
        ),
    ),
    createAdjustment: rpc(
      operator(),
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
    getBalance: rpc(requireMetering(m2mBasic()), async (request: pb.GetBalanceRequest, caller) => ({
      balance: await allowances.balanceOf(caller, request.externalUserId, request.asOf),
    })),
    getOwnBalance: rpc(
      requireMetering(endUser()),
      async (request: pb.GetOwnBalanceRequest, caller) => ({
        balance: await allowances.balance(caller, request.asOf),
      }),
    ),
  }
  return { allowanceService }
}
