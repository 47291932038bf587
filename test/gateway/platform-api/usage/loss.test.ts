import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest'
import { main } from '../../../../deploy/main.ts'
import { serviceToken } from '../../../core/support.ts'
import { envelope } from '../../../core/metering/harness.ts'
import { type Real, type RealApp, startReal } from '../../real.ts'
import { type Harness, asRecord, startHarness } from '../../support.ts'
import { clientId } from '../../../fakes/gateway-core/identity.ts'

const path = (of: string) => `/api/v1/builder/apps/${of}/usage/loss`

const calls = {
  currency: 'USD',
  authorisedCount: 9,
  authorisedUsdMicros: '90',
  ticketedCount: 5,
  ticketedUsdMicros: '40',
  lostCount: 1,
  lostUsdMicros: '10',
  chargedCount: 0,
  chargedUsdMicros: '0',
  releasedCount: 2,
  releasedUsdMicros: '20',
  lateCount: 1,
  lateUsdMicros: '10',
}

describe('loss report', () => {
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
      calls,
      callSessions: [
        {
          externalUserId: null,
          sessionId: '9f86d081',
          type: 'live',
          startedAt: '2026-01-02T03:04:05.000Z',
          lastAt: '2026-01-02T03:04:05.000Z',
          ...calls,
        },
      ],
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
    // The state that the loss watch leaves a grace time later.
    await real.core.sql.query(
      `update ticket_sessions set lost = '{[2,4)}', lost_count = 2, watched = false, irregular = true`,
    )
  })
  afterAll(async () => {
    vi.unstubAllEnvs()
    await real.stop()
  })
  afterEach(() => vi.restoreAllMocks())

  it('are reported with the outcome of allowed calls', async () => {
    await real.core.sql.query(
      `insert into authorised_sessions (
         app_id, user_id, session_id, session_type, started_at, last_at, start_sequence, start_seconds, start_nanos,
         top_sequence, top_seconds, top_nanos, authorised_count, authorised_attos, ticketed_count, ticketed_attos,
         lost_count, lost_attos, instance)
       select app_id, user_id, 'ab12', 'live', started_at, last_at, 0, 0, 0, 3, 0, 0, 5, 5.1e12, 3, 3e12, 2, 2e12, gen_random_uuid()
       from ticket_sessions`,
    )
    const response = await fetch(real.url + path(app.clientId), {
      headers: { authorization: app.basic },
    })
    const calls = {
      authorisedCount: 5,
      authorisedUsdMicros: '6',
      ticketedCount: 3,
      ticketedUsdMicros: '3',
      lostCount: 2,
      lostUsdMicros: '2',
      releasedCount: 0,
      lateCount: 0,
    }
    expect(asRecord(await response.json())).toMatchObject({
      calls,
      callSessions: [{ sessionId: 'ab12', externalUserId: 'ada', type: 'live', ...calls }],
    })
    const [, text] = await tollgate('loss', '--app', app.clientId)
    const cells = '5 +0\\.000006 +3 +0\\.000003 +2 +0\\.000002 +0 +0\\.00'
    expect(text).toMatch(new RegExp(`${app.clientId} +${cells}`))
    expect(text).toMatch(new RegExp(`ab12 +ada +\\S+ +${cells}`))
  })

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

  /** Returns the command's exit code and its output. */
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
