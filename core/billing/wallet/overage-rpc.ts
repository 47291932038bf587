import type * as pb from '../../../proto/gen/ts-proto/tollgate/billing/v1/overage.ts'
import { microsDown, microsUp } from '../../lib/money.ts'
import { appOperator, appOperatorWrite, m2mOrMember, orOperator } from '../../rpc/guards.ts'
import { toActor } from '../../rpc/callers.ts'
import { type Handlers, rpc } from '../../rpc/serve.ts'
import { type OverageSettings, parseCeiling } from './overage.ts'

export function createOverageRpc({ overage }: { readonly overage: OverageSettings }) {
  const overageService: Handlers<pb.OverageServiceServer> = {
    getOverage: rpc(
      orOperator(m2mOrMember(), appOperator()),
      async ({ clientId }: pb.GetOverageRequest, { appId }) => ({
        overage: toOverage(clientId, await overage.read(appId)),
      }),
    ),
    updateOverage: rpc(
      orOperator(m2mOrMember(undefined, 'edit'), appOperatorWrite()),
      async ({ clientId, ceilingUsdMicros }: pb.UpdateOverageRequest, caller, context) => {
        const ceiling = ceilingUsdMicros === undefined ? null : parseCeiling(ceilingUsdMicros)
        const changed = await overage.change(caller.appId, ceiling, toActor(caller, context))
        return { overage: toOverage(clientId, changed) }
      },
    ),
  }
  return { overageService }
}

const toOverage = (
  clientId: string,
  { ceiling, isDefault, minimum, minimumCharge }: Awaited<ReturnType<OverageSettings['read']>>,
): pb.Overage => ({
  clientId,
  ceilingUsdMicros: microsDown(ceiling).toString(),
  isDefault,
  minimumCeilingUsdMicros: microsUp(minimum).toString(),
  minimumChargeUsdMicros: microsUp(minimumCharge).toString(),
})
