import { TestClockServiceService } from '../../../proto/gen/ts-proto/tollgate/billing/v1/clock.ts'
import { grpcService } from '../../rpc/serve.ts'
import { type TestClockDeps, createTestClock } from './clock.ts'
import { createTestClockRpc } from './rpc.ts'

/** Service and upkeep of test clocks. */
export function testClockParts(deps: TestClockDeps) {
  const clocks = createTestClock(deps)
  const { testClockService } = createTestClockRpc({ clocks })
  return {
    services: [grpcService(TestClockServiceService, testClockService)],
    upkeep: [clocks.upkeep],
  }
}
