import { describe, expect, it } from 'vitest'
import { connectCore } from '../../../deploy/cli/client.ts'
import { attos, startSidecar } from '../balances/escrow/granting.ts'
import { serviceToken } from '../support.ts'
import { tollgate } from './support.ts'
import { world, verify, found, setUpBooks } from './verify-world.ts'

setUpBooks()

describe('tollgate verify', () => {
  it('accepts right books and reports how much it checked', async () => {
    const { code, text } = await verify()
    expect(text).toContain(`${world.app.clientId}  3 of 3 users, no difference`)
    // The platform app has no users here.
    expect(text).toContain('2 apps and 3 users checked: the books are right.')
    expect(code).toBe(0)
    expect(JSON.parse((await verify('--app', world.app.clientId, '--json')).text)).toEqual({
      ok: true,
      apps: 1,
      users: 3,
      differences: [],
    })
  })

  it('reports the hour, the column and the amount of a difference', async () => {
    expect(
      await found(
        `update usage_hourly set fee_wei = fee_wei + 3, billable_secs = billable_secs - 0.25 where fee_wei > 5`,
        `update usage_hourly set fee_wei = fee_wei - 3, billable_secs = billable_secs + 0.25 where fee_wei > 5`,
      ),
    ).toEqual([
      expect.stringMatching(
        /^DIFFERENCE usage_hourly app_\w+ user=[\w-]+ \(ada\) hour=2026-03-10T12:00:00Z model_id=unknown pipeline=live: fee_wei is 3000000000000011, should be 3000000000000008, by \+3$/,
      ),
      expect.stringContaining('billable_secs is 21.5, should be 21.75, by -0.25'),
    ])
  })

  it('reports a missing row, and a row without tickets', async () => {
    const gone = await found(
      `create table kept as select * from usage_hourly; delete from usage_hourly where fee_wei = 5`,
      `insert into usage_hourly select * from kept where fee_wei = 5; drop table kept`,
    )
    expect(gone).toContainEqual(
      expect.stringContaining(
        '(bob) hour=2026-03-10T12:00:00Z model_id=unknown pipeline=live: fee_wei is missing, should be 5, by -5',
      ),
    )
    const extra = await found(
      `insert into usage_hourly select app_id, user_id, hour, 'ghost', model_id, 1, 0, 9, 9, 0, 0 from usage_hourly where fee_wei = 5`,
      `delete from usage_hourly where pipeline = 'ghost'`,
    )
    expect(extra).toContainEqual(
      expect.stringContaining('pipeline=ghost: fee_wei is 9, should be missing, by +9'),
    )
  })

  it('checks sessions with their sequence numbers', async () => {
    expect(
      await found(
        `update ticket_sessions set seen = '{[0,5)}', gapped = false where session_id = 'a'`,
        `update ticket_sessions set seen = '{[0,2),[3,5)}', gapped = true where session_id = 'a'`,
      ),
    ).toEqual([
      expect.stringContaining('session_id=a: seen is {[0,5)}, should be {[0,2),[3,5)}'),
      expect.stringContaining('gapped is false, should be true'),
      expect.stringContaining('seen_md5'),
    ])
  })

  it('checks charges against the tickets that name them', async () => {
    const differences = await found(
      `update tickets set charge_id = '00000000-0000-4000-8000-000000000001' where sequence_number = 4`,
      `update tickets t set charge_id = e.cause_id from ledger_entries e where t.sequence_number = 4 and e.kind = 'charge' and e.overage_attos > 0`,
    )
    expect(differences).toContainEqual(
      expect.stringMatching(
        /charges .*charge_id=00000000-0000-4000-8000-000000000001: cost_attos is missing, should be 6000000000000000000, by -6000000000000000000/,
      ),
    )
    expect(differences).toContainEqual(
      expect.stringMatching(
        /charges .*: cost_attos is 6000000000000000000, should be missing, by \+6000000000000000000/,
      ),
    )
  })

  it('checks each entry against the previous one, and balances against the fold', async () => {
    expect(
      await found(
        `update ledger_entries set balance_after_attos = balance_after_attos + 1 where seq = 1 and user_id = (select id from end_users where external_user_id = 'bob')`,
        `update ledger_entries set balance_after_attos = balance_after_attos - 1 where seq = 1 and user_id = (select id from end_users where external_user_id = 'bob')`,
      ),
    ).toEqual([
      expect.stringMatching(
        /ledger_entries .*\(bob\) seq=1: balance_after_attos is 5000000000000000001, should be 5000000000000000000, by \+1/,
      ),
      expect.stringMatching(/ledger_entries .*\(bob\) seq=2: balance_after_attos is .* by -1$/),
      expect.stringMatching(/ledger_entries .*\(bob\) seq=1: hash is [0-9a-f]{64}, should be /),
    ])
    expect(
      await found(
        `update balances set granted_attos = granted_attos + 7, balance_attos = balance_attos + 7 where consumed_attos = 0`,
        `update balances set granted_attos = granted_attos - 7, balance_attos = balance_attos - 7 where consumed_attos = 0`,
      ),
    ).toEqual([
      expect.stringMatching(
        /balances .*\(idle\): balance_attos is 5000000000000000007, should be 5000000000000000000, by \+7/,
      ),
      expect.stringContaining('granted_attos is 5000000000000000007'),
      expect.stringMatching(
        /grants .*remaining_attos is 5000000000000000000, should be 5000000000000000007, by -7/,
      ),
    ])
  })

  it('checks lent and pending amounts against leases and authorisations', async () => {
    const sidecar = await startSidecar(world.as())
    await sidecar.lend(world.app, 'idle', { boundUsdAttos: attos(0.1) })
    await sidecar.reserve(world.app, 'idle', { bound: 0.3 })
    expect(
      await found(
        `update balances set lent_attos = lent_attos + 2, pending_attos = pending_attos - 3 where lent_attos > 0`,
        `update balances set lent_attos = lent_attos - 2, pending_attos = pending_attos + 3 where lent_attos > 0`,
      ),
    ).toEqual([
      expect.stringMatching(
        /balances .*\(idle\): lent_attos is 400000000000000002, should be 400000000000000000, by \+2/,
      ),
      expect.stringMatching(/pending_attos is .* by -3$/),
    ])
    // The hold is deleted from both table and balance, but the session's totals still have the
    // call.
    expect(
      await found(
        `create table kept as select * from authorisations; create table kept_balances as select * from balances;
         update balances b set pending_attos = pending_attos - a.bound_attos from authorisations a where a.user_id = b.user_id;
         delete from authorisations`,
        `insert into authorisations overriding system value select * from kept;
         delete from balances; insert into balances select * from kept_balances; drop table kept, kept_balances`,
      ),
    ).toEqual([
      expect.stringMatching(
        /authorisations .*\(idle\) session_id=[\w-]+: held_calls is 0, should be 1, by -1$/,
      ),
    ])
    expect((await verify()).code).toBe(0)
  })

  it('checks that granted amounts are consumed, remaining, expired or adjusted', async () => {
    expect(
      await found(
        `update grants set remaining_attos = remaining_attos - 9 where remaining_attos = 5000000000000000000`,
        `update grants set remaining_attos = remaining_attos + 9 where remaining_attos = 4999999999999999991`,
      ),
    ).toEqual([
      expect.stringMatching(
        /grants .*remaining_attos is 4999999999999999991, should be 5000000000000000000, by -9/,
      ),
      expect.stringMatching(
        /grants .* id=[\w-]+: remaining_attos is 4999999999999999991, should be 5000000000000000000, by -9/,
      ),
    ])
    expect(
      await found(
        `update grants set amount_attos = amount_attos + 1 where kind = 'grant'`,
        `update grants set amount_attos = amount_attos - 1 where kind = 'grant'`,
      ),
    ).toContainEqual(
      expect.stringMatching(
        /grants .*cause_id=[\w-]+: booked_attos is 250000000000000000, should be 250000000000000001, by -1/,
      ),
    )
  })

  it('checks the price of every ticket by its fee and its rate', async () => {
    const differences = await found(
      `update tickets set cost_attos = cost_attos + 1 where sequence_number = 3`,
      `update tickets set cost_attos = cost_attos - 1 where sequence_number = 3`,
    )
    expect(differences).toContainEqual(
      expect.stringMatching(/prices .*event_id=[\w-]+: cost_attos is 3001, should be 3000, by \+1/),
    )
    expect(
      await found(
        `update rates set observed_at = observed_at + interval '1 year'`,
        `update rates set observed_at = observed_at - interval '1 year'`,
      ),
    ).toContainEqual(expect.stringContaining('rate_not_later_than_ticket is false, should be true'))
  })

  it('checks that tickets and envelopes match', async () => {
    expect(
      await found(
        `create table kept as select * from envelopes; delete from envelopes where key = (select event_id::uuid from tickets where sequence_number = 3)`,
        `insert into envelopes select * from kept on conflict do nothing; drop table kept`,
      ),
    ).toEqual([
      expect.stringMatching(/envelopes .*event_id=[\w-]+: entered is missing, should be true/),
      expect.stringMatching(/ledger_entries .* seq=\d: tickets_hash is [0-9a-f]{64}, should be /),
      expect.stringContaining('DIFFERENCE envelopes: count is 4, should be 5, by -1'),
    ])
    expect(
      await found(
        `insert into envelopes values ('00000000-0000-4000-8000-00000000000f', '00000000-0000-4000-8000-000000000000')`,
        `delete from envelopes where key = '00000000-0000-4000-8000-00000000000f'`,
      ),
    ).toEqual(['DIFFERENCE envelopes: count is 6, should be 5, by +1'])
  })

  it('stays right with parallel apps and concurrent ingest', async () => {
    const others = await Promise.all(Array.from({ length: 6 }, () => world.newApp()))
    const stop = new AbortController()
    const ingesting = (async () => {
      for (let turn = 0; !stop.signal.aborted; turn++) {
        await world.ingest(
          ...others.map(({ clientId }, i) => ({
            auth_id: `${clientId}:user-${turn % 3}`,
            session_id: `live-${i}`,
            sequence_number: turn,
            computed_fee: String(10n ** 15n),
          })),
        )
      }
    })()
    const core = connectCore({ target: world.core.target, token: serviceToken })
    const found: string[] = []
    let apps = 0
    for (let round = 0; round < 6; round++) {
      for await (const { kind, clientId, difference } of core.books.verifyBooks({
        clientId: undefined,
      })) {
        if (kind === 'done' && clientId !== '') apps += 1
        if (difference) found.push(difference.check)
      }
    }
    stop.abort()
    await ingesting
    core.close()
    // Six apps, the world's and the platform app.
    expect(apps).toBe(6 * 8)
    expect(found.filter((check) => check !== 'ticket_sessions')).toEqual([])
    await tollgate('rebuild')
    expect((await verify()).text).toContain('8 apps and')
    expect((await verify()).code).toBe(0)
  })

  it('rejects an unknown app and unknown options', async () => {
    expect(await verify('--app', `app_${'0'.repeat(24)}`)).toEqual({
      code: 1,
      text: 'tollgate: no app has this client id\n',
    })
    expect((await verify('--all')).code).toBe(2)
    expect((await verify('now')).code).toBe(2)
    expect((await verify('--help')).text).toContain('tollgate verify [--app ID]')
  })

  it('stops reporting after a thousand differences per app', async () => {
    const { text } = await (async () => {
      await world.damage(`insert into usage_hourly select app_id, user_id, hour - make_interval(hours => n), pipeline, model_id, 1, 0, 1, 1, 1, 0
        from usage_hourly, generate_series(1, 1500) n where fee_wei = 5`)
      try {
        return await verify('--json')
      } finally {
        await world.damage(`delete from usage_hourly where fee_wei = 1`)
      }
    })()
    expect(JSON.parse(text).differences).toHaveLength(1_000)
  })
})
