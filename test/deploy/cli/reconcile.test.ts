import { beforeAll, describe, expect, it } from 'vitest'
import { type TestApp, type TestCore, until } from '../../core/support.ts'
import { type FakeOpenMeter, startOpenMeter } from '../../fakes/openmeter/openmeter.ts'
import { operate, startCli, tollgate } from './support.ts'

let fake: FakeOpenMeter
let core: TestCore
let app: TestApp
beforeAll(async () => {
  fake = await startOpenMeter()
  const cli = await startCli({ OPENMETER_URL: fake.urls.v1 })
  ;({ core, app } = cli)
  for (const [user, tickets] of [
    ['ada', 3],
    ['bob\u001b[2J', 2],
  ] as const)
    await sign(user, tickets)
  await until(async () => (await core.core.ready())['openmeter'] === 'ok')
  return async () => {
    await cli.stop()
    await fake.stop()
  }
})

/** Creates a user with this number of one-dollar tickets on 9 March, in core and in the backend. */
async function sign(user: string, tickets: number): Promise<void> {
  const id = (
    await core.sql.query(
      `insert into end_users (app_id, id, external_user_id, status, created_at, updated_at)
     select app_id, gen_random_uuid(), $2, 'active', now(), now() from clients where client_id = $1 returning id, app_id`,
      [app.clientId, user],
    )
  ).rows[0]
  await core.sql.query(
    `insert into usage_hourly (app_id, user_id, hour, pipeline, model_id, ticket_count, unpriced_count, fee_wei, cost_attos, billable_secs, pixels)
     values ($1, $2, '2026-03-09T10:00:00Z', 'live', '', $3, 1, 0, $4, 0, 0)`,
    [id.app_id, id.id, tickets + 1, `${tickets}000000000000000000`],
  )
  fake.state.ingest(
    Array.from({ length: tickets }, (_, i) => ({
      id: `${user} ${i}`,
      source: 'go-livepeer-remote-signer',
      type: 'create_signed_ticket',
      subject: `eu_${id.id}`,
      time: '2026-03-09T10:30:00Z',
      data: { client_id: app.clientId, network_fee_usd_micros: 1_000_000 },
    })),
  )
}

const days = ['--from', '2026-03-08', '--to', '2026-03-10']

describe('tollgate reconcile', () => {
  it('shows days that agree, with their users on request', async () => {
    const { code, text } = await tollgate('reconcile', ...days)
    expect(text).toMatch(
      new RegExp(`2026-03-09 +${app.clientId} +\\(all\\) +5 +5 +5\\.00 +5\\.00 +same`),
    )
    expect(text).toContain('Every user and day agrees.')
    expect(code).toBe(0)
    const all = await tollgate('reconcile', ...days, '--all', '--app', app.clientId)
    expect(all.text).toMatch(/ada +3 +3 +3\.00 +3\.00\n/)
    expect(all.text).toMatch(/bob\?\[2J +2 +2 +2\.00 +2\.00\n/)
  })

  it('shows differences, and then exits with 1', async () => {
    fake.state.events.delete('go-livepeer-remote-signer ada 1')
    const { code, text } = await tollgate('reconcile', ...days)
    expect([code, text]).toEqual([1, expect.stringMatching(/ada +3 +2 +3\.00 +2\.00 +differs\n/)])
    expect(text).toContain("Users' days that differ: 1")
    expect(text).not.toContain('bob')
    const json = JSON.parse((await tollgate('reconcile', ...days, '--json')).text)
    expect(json.days).toMatchObject([
      {
        day: '2026-03-09',
        drifting: 1,
        users: [{ externalUserId: 'ada', ownTickets: '3', backendTickets: '2', drifts: true }],
      },
    ])
  })

  it('refuses wrong options in one line', async () => {
    const bad = async (...options: string[]) => (await tollgate('reconcile', ...options)).text
    expect(await bad('--from', 'yesterday', '--to', '2026-03-10')).toContain(
      'from and to must be UTC days',
    )
    expect(await bad(...days, '--app', 'app_1')).toContain('no such app')
    expect((await tollgate('reconcile', 'now')).code).toBe(2)
    expect((await tollgate('reconcile', '--help')).text).toContain('Exits with 1')
  })

  it('is not affected by waiting or refused events', async () => {
    fake.faults = ({ path }) => (path.endsWith('/customers') ? 400 : 'none')
    expect((await tollgate('outbox', 'list')).text).toBe('Waiting rows: 0\nRows set aside: 0\n')
    await core.sql.query(
      `insert into outbox (kind, payload, item_count, attempts, last_error, due_at, set_aside_at, created_at)
       values ('openmeter.customer', '{}', 1, 8, $1, now(), '2026-03-10T11:00:00Z', '2026-03-10T10:00:00Z')`,
      ['answered 400:\u001bno'],
    )
    expect((await tollgate('outbox', 'list')).text).toMatch(
      /Rows set aside: 1\n\nid +kind +items +created +error\n\d+ +openmeter.customer +1 +2026-03-10T10:00:00.000Z +answered 400: no\n/,
    )
    expect(await operate('outbox', 'retry')).toEqual({
      code: 0,
      text: 'Rows to retry: 1\n',
    })
    expect(JSON.parse((await tollgate('outbox', 'list', '--json')).text)).toMatchObject({
      setAside: '0',
      rows: [],
    })
    expect((await tollgate('outbox')).code).toBe(2)
    expect((await tollgate('outbox', 'list', 'all')).code).toBe(2)
  })

  it('reports that OpenMeter is unavailable', async () => {
    fake.faults = () => 'lose request'
    const { code, text } = await tollgate('reconcile', ...days)
    expect([code, text]).toEqual([1, 'tollgate: the metering backend does not answer now\n'])
  })
})

describe('tollgate reconcile --processor', () => {
  it('lists open differences until an operator resolves them', async () => {
    const id = '0199b0c2-7c1e-7a42-9f51-d4f1a1b2c3d4'
    await core.sql.query(
      `insert into processor_differences (id, processor, plane, account_id, subject, problem, processor_payment_id, theirs, currency, found_at)
       values ($1, 'stripe', 'live', 'acct_1', 'payment', 'missing_here', 'pi_1', 1234, 'usd', now())`,
      [id],
    )
    const { code, text } = await tollgate('reconcile', '--processor', '--open')
    expect([code, text]).toEqual([
      1,
      expect.stringMatching(/live +acct_1 +payment +missing_here +12\.34 +pi_1/),
    ])
    const closed = await operate('processor', 'resolve', id, '--note', 'refunded by hand')
    expect([closed.code, closed.text]).toEqual([0, `${id}  resolved\n`])
    expect(await tollgate('reconcile', '--processor', '--open')).toEqual({
      code: 0,
      text: 'No open differences.\n',
    })
  })

  it('refuses to compare without a processor, and one app alone', async () => {
    const without = await tollgate('reconcile', '--processor')
    expect([without.code, without.text]).toEqual([
      1,
      expect.stringContaining('no payment processor'),
    ])
    const one = await tollgate('reconcile', '--processor', '--app', app.clientId)
    expect([one.code, one.text]).toEqual([2, expect.stringContaining('leave out')])
    const range = ['--from', '2026-01-01', '--to', '2026-01-31']
    const open = await tollgate('reconcile', '--open', ...range)
    expect([open.code, open.text]).toEqual([2, expect.stringContaining('leave out --from')])
  })
})
