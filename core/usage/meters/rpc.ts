import type * as pb from '../../../proto/gen/ts-proto/tollgate/usage/v1/meters.ts'
import type { BackendApi } from '../../metering/backend/module.ts'
import { actor } from '../../rpc/guards.ts'
import { type Handlers, rpc } from '../../rpc/serve.ts'
import type { Meters } from './meters.ts'

export interface MetersRpcDeps extends Pick<BackendApi, 'requireConfigured'> {
  readonly meters: Meters
}

export function createMetersRpc({ meters, requireConfigured }: MetersRpcDeps) {
  const meterService: Handlers<pb.MeterServiceServer> = {
    queryMeter: rpc(
      requireConfigured(actor()),
      async ({ meter, externalUserId, groupBy, from, to }: pb.QueryMeterRequest, caller) => ({
        externalUserId: caller.externalUserId,
        rows: await meters.query(caller, { meter, externalUserId, groupBy, from, to }),
      }),
    ),
  }
  return { meterService }
}
