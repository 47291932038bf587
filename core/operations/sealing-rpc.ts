import type * as pb from '../../proto/gen/ts-proto/tollgate/shared/v1/sealing.ts'
import { operator, operatorWrite } from '../rpc/guards.ts'
import { type Handlers, rpc } from '../rpc/serve.ts'
import type { Rewrap } from '../shared/sealing/rewrap.ts'

export function createSealingRpc({ rewrap, count }: Rewrap) {
  const sealingService: Handlers<pb.SealingServiceServer> = {
    rewrap: rpc(
      operatorWrite('repeated'),
      ({ cursor }: pb.RewrapRequest, _caller, { correlationId }) => rewrap(cursor, correlationId),
    ),
    countSealed: rpc(operator(), (_request: pb.CountSealedRequest) => count()),
  }
  return { sealingService }
}
