import type * as pb from '../../../proto/gen/ts-proto/tollgate/billing/v1/clock.ts'
import { Scope } from '../../../proto/scopes.ts'
import { formatDecimal18 } from '../../lib/money.ts'
import { later } from '../../shared/clocks/clocks.ts'
import { callerName } from '../../rpc/callers.ts'
import {
  appOperator,
  appOperatorWrite,
  m2mOrMember,
  operator,
  orOperator,
  platformAdmin,
} from '../../rpc/guards.ts'
import { type Handlers, rpc } from '../../rpc/serve.ts'
import { type AdvancedClock, type TestClock, type TestClocks, aheadMaxMs } from './clock.ts'

export function createTestClockRpc({ clocks }: { readonly clocks: TestClocks }) {
  const testClockService: Handlers<pb.TestClockServiceServer> = {
    getTestClock: rpc(
      orOperator(m2mOrMember(), appOperator()),
      async ({ clientId }: pb.GetTestClockRequest, { appId }) => ({
        clock: toClock(clientId, await clocks.read(appId)),
      }),
    ),
    advanceTestClock: rpc(
      orOperator(m2mOrMember(Scope.usersWrite, 'edit'), appOperatorWrite()),
      async ({ clientId, move }: pb.AdvanceTestClockRequest, caller, { correlationId }) => {
        const by = { name: callerName(caller), correlationId }
        const advanced = await clocks.advance(caller.appId, moveOf(move), by)
        return { advanced: toAdvanced(clientId, advanced) }
      },
    ),
    listTestClocks: rpc(
      orOperator(platformAdmin(), operator()),
      async (_request: pb.ListTestClocksRequest) => {
        const { real, clocks: moved } = await clocks.list()
        return {
          clocks: moved.map(({ aheadMs, movedAt, ...clock }) => ({
            ...clock,
            now: later(real, aheadMs).toISOString(),
            aheadMs: String(aheadMs),
            movedAt: movedAt.toISOString(),
          })),
        }
      },
    ),
  }
  return { testClockService }
}

const moveOf = (move: pb.ClockMove | undefined) => ({
  to: move?.to,
  advanceSeconds: move?.advanceSeconds,
})

const toClock = (clientId: string, { real, aheadMs }: TestClock): pb.TestClock => ({
  clientId,
  now: later(real, aheadMs).toISOString(),
  realNow: real.toISOString(),
  aheadMs: String(aheadMs),
  latest: later(real, aheadMaxMs).toISOString(),
})

const toAdvanced = (
  clientId: string,
  { clock, from, to, effects, pending }: AdvancedClock,
): pb.AdvancedClock => ({
  clock: toClock(clientId, clock),
  from: from.toISOString(),
  to: to.toISOString(),
  effects: { ...effects, expiredUsdExact: formatDecimal18(effects.expired) },
  pending,
})
