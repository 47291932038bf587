import type * as pb from '../../proto/gen/ts-proto/tollgate/allowances/v1/allowances.ts'
import { type Metered, m2m, m2mBasic, user } from '../callers.ts'
import { parseIdempotencyKey } from '../idempotency.ts'
import { actor } from '../identity/rpc.ts'
import { type Handlers, rpc } from '../serve.ts'
import type { Allowances } from './service.ts'

export function createAllowancesRpc({ allowances, metered }: { allowances: Allowances; metered: Metered }) {
  const allowanceService: Handlers<pb.AllowanceServiceServer> = {
    getAllowance: rpc(m2m('users:read'), async (request: pb.GetAllowanceRequest, caller) => ({
      allowance: await allowances.read(caller, request.externalUserId),
    })),
    createGrant: rpc(m2m('users:write'), async (request: pb.CreateGrantRequest, caller, context) =>
      allowances.grant(caller, {
        externalUserId: request.externalUserId, amountUsdMicros: request.amountUsdMicros, source: request.source,
        featureKey: request.featureKey, idempotencyKey: parseIdempotencyKey(request.idempotencyKey),
      }, actor(caller, context))),
    getBalance: rpc(metered(m2mBasic()), async (request: pb.GetBalanceRequest, caller) => ({
      balance: await allowances.balanceOf(caller, request.externalUserId),
    })),
    getOwnBalance: rpc(metered(user()), async (_request: pb.GetOwnBalanceRequest, caller) => ({
      balance: await allowances.balance(caller),
    })),
  }
  return { allowanceService }
}
