import { ReadinessServiceService } from '../../proto/gen/ts-proto/tollgate/platform/v1/readiness.ts'
import type { Readiness } from '../lib/http.ts'
import { serviceCaller } from './callers.ts'
import { grpcService, rpc } from './serve.ts'

/** Returns core's readiness to gateways, which may be unable to reach core's admin listener. */
export const readinessService = (ready: Readiness) =>
  grpcService(ReadinessServiceService, {
    getReadiness: rpc(serviceCaller('gateway'), async () => ({
      parts: Object.entries(await ready()).map(([name, state]) => ({ name, state })),
    })),
  })
