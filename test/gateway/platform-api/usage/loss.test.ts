import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest'
import { main } from '../../../../deploy/cli/main.ts'
import { serviceToken } from '../../../core/support.ts'
import { envelope } from '../../../core/metering/harness.ts'
import { type Real, type RealApp, startReal } from '../../real.ts'
import { type Harness, asRecord, startHarness } from '../../support.ts'
import { clientId } from '../../../fakes/gateway-core.ts'

const path = (of: string) => `/api/v1/builder/apps/${of}/usage/loss`

describe('the answer about losses', () => {
  let harness: Harness
  beforeAll(async () => {
    harness = await startHarness()
  })
  afterAll(() => harness.stop())
  beforeEach(() => harness.core.reset())

  it('has totals and sessions in the documented shape', async () => {
    const { status, body } = await harness.ask(
      'GET',
      `${path(clientId)}?startDate=2026-01-01&limit=5&cursor=c`,
    )
    expect(status).toBe(200)
    expect(harness.core.last()).toMatchObject({
      rpc: 'listLoss',
      request: { clientId, startDate: '2026-01-01', limit: 5, cursor: 'c' },
    })
    expect(body).toEqual({
      clientId,
      period: { start: '2026-01-02T03:04:05.000Z', end: null },
      totals: {
        sessionCount: 1,
        lostCount: 3,
        currency: 'USD',
        estimatedUsdMicros: '7',
        forkedCount: 1,
        lateCount: 2,
      },
      sessions: [
        {
          externalUserId: 'ada',
          manifestId: 'm-1',
          sessionId: '9f86d081',
          startedAt: '2026-01-02T03:04:05.000Z',
          endedAt: '2026-01-02T03:04:05.000Z',
          requestCount: 5,
          lostCount: 3,
          forkedCount: 1,
          lateCount: 0,
          currency: 'USD',
          estimatedUsdMicros: '7',
          missing: [{ first: '2', last: '4' }],
          missingMore: false,
        },
      ],
      nextCursor: 'next',
    })
  })

  it.each(['?limit=1001', '?startDate=1&startDate=2'])('refuses %s', async (query) => {
    expect((await harness.ask('GET', path(clientId) + query)).status).toBe(400)
  })
})

describe('lost tickets', () => {
  let real: Real
  let app: RealApp
  beforeAll(async () => {
    real = await startReal()
    app = await real.newApp('acme')
    vi.stubEnv('CORE_TARGET', real.core.core.target)
    vi.stubEnv('CORE_TOKEN', serviceToken)
    await real.core.as().ingestEvents({
      envelopes: [0, 1, 4].map((sequence_number) =>
        envelope({
          auth_id: `${app.clientId}:ada`,
          sequence_number,
          current_time: real.core.clock.now().toISOString(),
          computed_fee: '1000000000',
        }),
      ),
    })
    // As the loss watch leaves it a grace time later.
    await real.core.sql.query(
      `update ticket_sessions set lost = '{[2,4)}', lost_count = 2, watched = false, irregular = true`,
    )
  })
  afterAll(async () => {
    vi.unstubAllEnvs()
    await real.stop()
  })
  afterEach(() => vi.restoreAllMocks())

  it('are reported to the app by REST', async () => {
    const response = await fetch(real.url + path(app.clientId), {
      headers: { authorization: app.basic },
    })
    expect(asRecord(await response.json())).toMatchObject({
      totals: { sessionCount: 1, lostCount: 2, estimatedUsdMicros: '6' },
      sessions: [
        {
          externalUserId: 'ada',
          sessionId: '9f86d081',
          requestCount: 3,
          missing: [{ first: '2', last: '3' }],
        },
      ],
    })
  })

  it('are reported to the operator by the command line', async () => {
    expect(await tollgate('loss')).toEqual([
      0,
      expect.stringMatching(
        new RegExp(`${app.clientId} +1 +2 +0\\.000006 +0 +0\\nall +1 +2 +0\\.000006`),
      ),
    ])
    expect(await tollgate('loss', '--app', app.clientId)).toEqual([
      0,
      expect.stringMatching(/9f86d081 +ada +\S+ +3 +2 +0\.000006 +0 +2-3/),
    ])
    const [, json] = await tollgate('loss', '--json', '--from', '2026-03-01', '--to', '2026-03-31')
    expect(JSON.parse(json)).toMatchObject({ totals: { lostCount: '2' }, unattributedEvents: '0' })
    expect(await tollgate('loss', '--app', `app_${'0'.repeat(24)}`)).toEqual([
      1,
      expect.stringContaining('no such app'),
    ])
    expect((await tollgate('loss', 'all'))[0]).toBe(2)
  })

  /** How the command ended, and what it printed. */
  async function tollgate(...argv: string[]): Promise<[number, string]> {
    const printed: string[] = []
    const keep = (chunk: unknown) => printed.push(String(chunk)) > 0
    vi.spyOn(process.stdout, 'write').mockImplementation(keep)
    vi.spyOn(process.stderr, 'write').mockImplementation(keep)
    const code = await main(argv)
    vi.restoreAllMocks()
    return [code, printed.join('')]
  }
})
