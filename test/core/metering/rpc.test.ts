import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { DomainError } from '../../../proto/errors.ts'
import { silentLog } from '../../../core/lib/log.ts'
import { createMetrics } from '../../../core/lib/metrics.ts'
import { createMeteringRpc } from '../../../core/metering/rpc.ts'
import type { Rpc } from '../../../core/rpc/serve.ts'
import { createWorld, envelope, type World } from './harness.ts'

const nobody = async (): Promise<never> => {
  throw new DomainError('CREDENTIAL_INVALID', 'nobody')
}
const deps = {
  authenticator: {
    m2mByBasic: nobody,
    m2mByToken: nobody,
    userByToken: nobody,
    actorByToken: nobody,
    userByBuilderKey: nobody,
    provisionerByBasic: nobody,
    accountBySession: nobody,
    memberOf: nobody,
    userOfAccount: nobody,
    appOf: nobody,
  },
  log: silentLog(),
  metrics: createMetrics('test'),
  settle: () => Promise.reject(new Error('not one of many')),
}

function call<Request, Response>(
  handler: Rpc<Request, Response>,
  request: Request,
): Promise<Response> {
  const credentials = {
    authorization: undefined,
    session: undefined,
    self: undefined,
    operator: undefined,
    isOperator: true,
  }
  return handler.unary(
    { request, credentials, context: { correlationId: 'c', signal: AbortSignal.timeout(10_000) } },
    deps,
  )
}

let world: World
let rpc: ReturnType<typeof createMeteringRpc>['meteringService']
beforeAll(async () => {
  world = await createWorld()
  rpc = createMeteringRpc({ metering: world.metering({ fixed: false }) }).meteringService
})
afterAll(() => world.stop())

describe('metering service', () => {
  it("records an operator's rate, then ingests events and returns their outcomes", async () => {
    expect((await call(rpc.getMeteringStatus, {})).usableRate).toBeUndefined()
    expect(await call(rpc.recordRate, { usdPerEth: '3000.50', source: 'desk' })).toEqual({
      rate: { usdPerEth: '3000.5', source: 'manual:desk', observedAt: '2026-09-14T10:20:00.000Z' },
    })
    const event = envelope({
      auth_id: `${world.app.clientId}:ada`,
      current_time: '2026-09-14T10:21:00Z',
    })
    const envelopes = [
      event,
      event,
      envelope(),
      envelope({}, { type: 'stream_trace' }),
      Buffer.from('{'),
    ]
    expect(await call(rpc.ingestEvents, { envelopes })).toEqual({
      tickets: 1,
      duplicates: 1,
      ignored: 1,
      quarantined: 2,
    })
    expect(await call(rpc.ingestEvents, { envelopes: [] })).toEqual({
      tickets: 0,
      duplicates: 0,
      ignored: 0,
      quarantined: 0,
    })
    expect(await call(rpc.getMeteringStatus, {})).toEqual({
      streams: [
        {
          source: 'direct',
          partition: 0,
          nextOffset: '5',
          tickets: '1',
          duplicates: '1',
          ignored: '1',
          quarantined: '2',
          newestAt: '2026-09-14T10:20:00.000Z',
          bookedAt: '2026-09-14T10:20:00.000Z',
          stalled: false,
        },
      ],
      unpricedTickets: '0',
      quarantinedEvents: '2',
      newestTicket: {
        signedAt: '2026-09-14T10:21:00.000Z',
        receivedAt: '2026-09-14T10:20:00.000Z',
      },
      usableRate: {
        usdPerEth: '3000.5',
        source: 'manual:desk',
        observedAt: '2026-09-14T10:20:00.000Z',
      },
    })
  })

  it('prices unpriced tickets by a later-recorded rate of their time, but no priced tickets', async () => {
    const metering = world.metering({ fixed: false })
    const own = createMeteringRpc({ metering }).meteringService
    const signed = [
      '2026-09-13T08:59:59.999Z',
      '2026-09-13T09:00:00Z',
      '2026-09-14T09:00:00Z',
      '2026-09-14T09:00:00.001Z',
    ]
    const envelopes = signed.map((current_time, sequence_number) =>
      envelope({
        auth_id: `${world.app.clientId}:bob`,
        computed_fee: '7',
        current_time,
        sequence_number,
      }),
    )
    await call(own.ingestEvents, { envelopes })
    const costs = async () =>
      (
        await world.pool.query<{ cost_attos: string | null }>(
          `select cost_attos from tickets where fee_wei = 7 order by signed_at`,
        )
      ).rows.map((row) => row.cost_attos)
    expect(await costs()).toEqual([null, null, null, null])
    await metering.start()
    try {
      const at = { usdPerEth: '2', source: 'desk', observedAt: '2026-09-13T09:00:00Z' }
      expect(await call(own.recordRate, at)).toMatchObject({
        rate: { usdPerEth: '2', observedAt: '2026-09-13T09:00:00.000Z' },
      })
      await expect.poll(costs).toEqual([null, '14', '14', null])
      await call(own.recordRate, { ...at, usdPerEth: '9', observedAt: '2026-09-13T09:05:00Z' })
      await expect.poll(costs).toEqual([null, '14', '14', '63'])
    } finally {
      await metering.stop()
    }
    expect(
      await call(own.recordRate, {
        usdPerEth: '1',
        source: 'desk',
        observedAt: '2027-01-01T00:00:00Z',
      }).catch((error: DomainError) => error.reason),
    ).toBe('REQUEST_INVALID')
  })

  it('rejects more than 1000 envelopes and malformed rates', async () => {
    await expect(
      call(rpc.ingestEvents, { envelopes: Array.from({ length: 1_001 }, () => Buffer.from('{}')) }),
    ).rejects.toMatchObject({ reason: 'REQUEST_INVALID' })
    await expect(call(rpc.recordRate, { usdPerEth: '0', source: 'desk' })).rejects.toMatchObject({
      reason: 'REQUEST_INVALID',
    })
  })
})
