import type * as pb from '../../proto/gen/ts-proto/tollgate/allowances/v1/allowances.ts'
import { type Metered, m2m, m2mBasic, operator, user } from '../rpc/callers.ts'
import { parseIdempotencyKey } from '../platform/idempotency.ts'
import { actor } from '../identity/rpc.ts'
import { type Handlers, rpc } from '../rpc/serve.ts'
import type { Adjustments } from './adjustments.ts'
import type { Allowances } from './service.ts'

interface Deps {
  readonly allowances: Allowances
  readonly adjustments: Adjustments
  readonly metered: Metered
}

export function createAllowancesRpc({ allowances, adjustments, metered }: Deps) {
  const allowanceService: Handlers<pb.AllowanceServiceServer> = {
    getAllowance: rpc(
      metered(m2m('users:read')),
      async (request: pb.GetAllowanceRequest, caller) => ({
        allowance: await allowances.read(caller, request.externalUserId),
      }),
    ),
    createGrant: rpc(
      metered(m2m('users:write')),
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
          actor(caller, context),
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
    getBalance: rpc(metered(m2mBasic()), async (request: pb.GetBalanceRequest, caller) => ({
      balance: await allowances.balanceOf(caller, request.externalUserId, request.asOf),
    })),
    getOwnBalance: rpc(metered(user()), async (request: pb.GetOwnBalanceRequest, caller) => ({
      balance: await allowances.balance(caller, request.asOf),
    })),
  }
  return { allowanceService }
}
