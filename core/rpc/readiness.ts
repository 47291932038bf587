import { ReadinessServiceService } from '../../proto/gen/ts-proto/tollgate/shared/v1/readiness.ts'
import type { Readiness } from '../lib/http.ts'
import type { Now } from '../lib/time.ts'
import { serviceCaller } from './guards.ts'
import { grpcService, rpc } from './serve.ts'

/**
 * Returns core's readiness to gateways, which may be unable to reach core's admin listener, and its
 * time to the processes that compare their clocks.
 */
export const readinessService = (ready: Readiness, now: Now) =>
  grpcService(ReadinessServiceService, {
    getReadiness: rpc(serviceCaller('gateway', 'sidecar'), async () => ({
      now: now().toISOString(),
      parts: Object.entries(await ready()).map(([name, state]) => ({ name, state })),
    })),
  })
