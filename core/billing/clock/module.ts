import { DomainError } from '../../../proto/errors.ts'
import {
  OperatorTestClockServiceService,
  TestClockServiceService,
} from '../../../proto/gen/ts-proto/tollgate/billing/v1/clock.ts'
import { grpcService } from '../../rpc/serve.ts'
import { findApp } from '../store.ts'
import { type TestClockDeps, createTestClock } from './clock.ts'
import { createTestClockRpc } from './rpc.ts'

/** Services and upkeep of test clocks. */
export function testClockParts(deps: TestClockDeps) {
  const clocks = createTestClock(deps)
  const rpc = createTestClockRpc({
    clocks,
    findApp: async (clientId) => {
      const app = await findApp(deps.pool, clientId)
      if (app) return app
      throw new DomainError('NOT_FOUND', 'no app has this client id; ./tollgate app list shows it')
    },
  })
  return {
    services: [
      grpcService(TestClockServiceService, rpc.testClockService),
      grpcService(OperatorTestClockServiceService, rpc.operatorTestClockService),
    ],
    upkeep: [clocks.upkeep],
  }
}
