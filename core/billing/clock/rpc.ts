import type * as pb from '../../../proto/gen/ts-proto/tollgate/billing/v1/clock.ts'
import { Scope } from '../../../proto/scopes.ts'
import { formatDecimal18 } from '../../lib/money.ts'
import { later } from '../../platform/clocks/clocks.ts'
import type { AppId } from '../../platform/ids.ts'
import { m2mOrMember, operator, operatorWrite } from '../../rpc/callers.ts'
import { type Handlers, rpc } from '../../rpc/serve.ts'
import { type AdvancedClock, type TestClock, type TestClocks, aheadMaxMs } from './clock.ts'

export function createTestClockRpc({
  clocks,
  findApp,
}: {
  readonly clocks: TestClocks
  /** Throws NOT_FOUND for an unknown client id. */
  readonly findApp: (clientId: string) => Promise<AppId>
}) {
  const testClockService: Handlers<pb.TestClockServiceServer> = {
    getTestClock: rpc(m2mOrMember(), async ({ clientId }: pb.GetTestClockRequest, { appId }) => ({
      clock: toClock(clientId, await clocks.read(appId)),
    })),
    advanceTestClock: rpc(
      m2mOrMember(Scope.usersWrite, 'edit'),
      async ({ clientId, move }: pb.AdvanceTestClockRequest, caller, { correlationId }) => {
        const name = caller.kind === 'm2m' ? caller.m2mClientId : caller.accountId
        const advanced = await clocks.advance(caller.appId, moveOf(move), { name, correlationId })
        return { advanced: toAdvanced(clientId, advanced) }
      },
    ),
  }
  const operatorTestClockService: Handlers<pb.OperatorTestClockServiceServer> = {
    readTestClock: rpc(operator(), async ({ clientId }: pb.ReadTestClockRequest) => ({
      clock: toClock(clientId, await clocks.read(await findApp(clientId))),
    })),
    moveTestClock: rpc(
      operatorWrite(),
      async ({ clientId, move }: pb.MoveTestClockRequest, _caller, { correlationId }) => {
        const by = { name: 'operator', correlationId }
        const advanced = await clocks.advance(await findApp(clientId), moveOf(move), by)
        return { advanced: toAdvanced(clientId, advanced) }
      },
    ),
  }
  return { testClockService, operatorTestClockService }
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
