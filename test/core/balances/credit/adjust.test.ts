import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { connectCore } from '../../../../deploy/cli/client.ts'
import { type Rpcs, atOnce, begin, outcome, refusal, serviceToken } from '../../support.ts'
import { type BooksWorld, startBooks, tollgate } from '../../books/support.ts'

let world: BooksWorld
let core: ReturnType<typeof connectCore>
let m2m: Rpcs
let user = ''
let users = 0
beforeAll(async () => {
  world = await startBooks()
  core = connectCore({ target: world.core.target, token: serviceToken })
  m2m = world.as(world.app.basic)
})
afterAll(async () => {
  core.close()
  await world.stop()
})
beforeEach(async () => {
  user = `user-${users++}`
  await m2m.upsertUser({ clientId: world.app.clientId, externalUserId: user })
})

const who = () => ({ clientId: world.app.clientId, externalUserId: user })
const run = (...argv: string[]) =>
  tollgate('adjust', '--app', world.app.clientId, '--user', user, '--author', 'grace', ...argv)
const adjust = (
  amountUsdMicros: string,
  more: Partial<Parameters<typeof core.allowances.createAdjustment>[0]> = {},
) =>
  core.allowances.createAdjustment({
    ...who(),
    amountUsdMicros,
    reason: 'r',
    author: 'a',
    eventId: undefined,
    uncovered: undefined,
    idempotencyKey: undefined,
    ...more,
  })
const balance = async () => (await m2m.getBalance(who())).balance
const spend = (id: string, fee: string, more: object = {}) =>
  world.ingest({
    id,
    auth_id: `${world.app.clientId}:${user}`,
    computed_fee: fee,
    session_id: user,
    ...more,
  })
const head = async () =>
  (
    await world.rows(
      `select b.granted_attos, b.adjusted_attos, b.balance_attos, b.overage_attos
  from balances b join end_users u on u.app_id = b.app_id and u.id = b.user_id where u.external_user_id = $1`,
      [user],
    )
  )[0]
const attos = (micros: number) => `${micros}000000000000`

describe('tollgate adjust', () => {
  it('gives money that can be spent and does not count as granted', async () => {
    expect((await run('--usd-micros', '250000', '--reason', 'outage of 9 March')).text).toMatch(
      new RegExp(`^[\\w-]{36}  0\\.25 USD; ${user} has 5\\.25 USD now\n$`),
    )
    expect(await balance()).toMatchObject({
      balanceUsdMicros: '5250000',
      lifetimeGrantedUsdMicros: '5000000',
      consumedUsdMicros: '0',
    })
    const { allowance } = await m2m.getAllowance(who())
    expect(
      allowance?.grants
        .map(({ amountUsdMicros, source }) => `${source} ${amountUsdMicros}`)
        .toSorted(),
    ).toEqual(['manual 250000', 'plan_adjustment 5000000'])
    // 1.7e15 wei are 5.10 USD: all of the included usage, and 0.10 of the adjustment.
    await spend(`${user}-1`, '1700000000000000')
    expect(await balance()).toMatchObject({
      balanceUsdMicros: '150000',
      consumedUsdMicros: '5100000',
    })
    expect(await head()).toEqual({
      granted_attos: attos(5_000_000),
      adjusted_attos: attos(250_000),
      balance_attos: attos(150_000),
      overage_attos: '0',
    })
  })

  it('takes money in burn order and records the author and the reason', async () => {
    await m2m.createGrant({ ...who(), amountUsdMicros: '1000000' })
    expect(
      (await run('--usd-micros', '-5500000', '--reason', 'a price was too low')).text,
    ).toContain(`-5.50 USD; ${user} has 0.50 USD now`)
    const { allowance } = await m2m.getAllowance(who())
    expect(allowance?.grants.map((grant) => grant.remainingUsdMicros).toSorted()).toEqual([
      '0',
      '500000',
    ])
    expect(
      await world.rows(
        `select kind, amount_attos, overage_attos from ledger_entries e join end_users u on u.id = e.user_id
      where u.external_user_id = $1 order by seq desc limit 1`,
        [user],
      ),
    ).toEqual([{ kind: 'adjustment', amount_attos: `-${attos(5_500_000)}`, overage_attos: '0' }])
    expect(
      await world.rows(
        `select actor, details ->> 'reason' as reason from audit_log where action <> 'operator_command' and details ->> 'reason' = 'a price was too low'`,
      ),
    ).toEqual([{ actor: 'operator:grace', reason: 'a price was too low' }])
  })

  it('refuses to take more than the balance unless the rest may be overage', async () => {
    expect((await run('--usd-micros=-5000001', '--reason', 'r')).text).toBe(
      'tollgate: only 5000000 of these USD micros are available; the rest could be booked as overage\n',
    )
    expect(await head()).toMatchObject({ balance_attos: attos(5_000_000), adjusted_attos: '0' })
    expect((await run('--usd-micros', '-5000001', '--reason', 'r', '--overage')).text).toContain(
      '-5.000001 USD, of which 0.000001 USD is overage;',
    )
    expect(await head()).toEqual({
      granted_attos: attos(5_000_000),
      adjusted_attos: `-${attos(5_000_001)}`,
      balance_attos: '0',
      overage_attos: attos(1),
    })
    expect(await balance()).toMatchObject({ balanceUsdMicros: '0', hasAccess: false })
  })

  it('takes feature-bound money only to correct a ticket of that feature', async () => {
    await m2m.createGrant({ ...who(), amountUsdMicros: '900000', featureKey: 'fixed' })
    await spend(`${user}-f`, '100000000000000', { pipeline: 'fixed' })
    await adjust('-5000000', { uncovered: 'overage' })
    const bound = (balanceUsdMicros: string) => [{ featureKey: 'fixed', balanceUsdMicros }]
    expect(await balance()).toMatchObject({ featureBalances: bound('900000') })
    expect(await outcome(adjust('-1'))).toBe('CONFLICT')
    await adjust('-200000', { eventId: `${user}-f` })
    expect(await balance()).toMatchObject({ featureBalances: bound('700000') })
  })

  it('gives back at most what a ticket cost', async () => {
    // 10^9 wei are 3 micros; the other 7 wei are less than one.
    await spend(`${user}-t`, '1000000007')
    expect(await outcome(adjust('5', { eventId: `${user}-t` }))).toBe('CONFLICT')
    await adjust('3', { eventId: `${user}-t` })
    expect(await atOnce(4, () => outcome(adjust('1', { eventId: `${user}-t` })))).toEqual(
      expect.arrayContaining(['OK', 'CONFLICT']),
    )
    expect(
      await world.rows(`select sum(amount_attos) from adjustments where event_id = $1`, [
        `${user}-t`,
      ]),
    ).toEqual([{ sum: '3000000021000' }])
    expect(await outcome(adjust('1', { eventId: 'nobody-s' }))).toBe('NOT_FOUND')
  })

  const credits = async () =>
    (
      await world.rows(
        `select g.kind, g.feature_key, g.remaining_attos, g.expires_at is null as endless
        from grants g join end_users u on u.app_id = g.app_id and u.id = g.user_id
        where u.external_user_id = $1 order by g.kind, g.created_at, g.feature_key`,
        [user],
      )
    ).map(({ kind, feature_key, remaining_attos }) => [kind, feature_key, remaining_attos])

  it('gives back to the credits that paid, in burn order, and gives back no overage', async () => {
    await m2m.createGrant({ ...who(), amountUsdMicros: '1000003', featureKey: 'live' })
    // 5 USD are included, plus 1.000003 for this pipeline. 7.000011 are charged, together with
    // another ticket of 0.3.
    const at = (ms: number) => new Date(begin.getTime() + ms).toISOString()
    const of = (id: string, fee: string, [sequence_number = 0, ms = 0]: readonly number[]) => ({
      id,
      auth_id: `${world.app.clientId}:${user}`,
      computed_fee: fee,
      session_id: user,
      sequence_number,
      current_time: at(ms),
    })
    await world.ingest(
      of(`${user}-a`, '100000000000000', [0, -20]),
      of(`${user}-b`, '2333337000000000', [1, -10]),
    )
    expect(await head()).toMatchObject({ balance_attos: '0', overage_attos: attos(1_300_008) })
    const refused = await refusal(adjust('7000011', { eventId: `${user}-b` }))
    expect(refused.message).toBe(
      'the ticket cost 7000011 USD micros, of which 1300008 are unpaid overage; no more than 5700003 can be given back for it',
    )
    await adjust('4600001', { eventId: `${user}-b` })
    expect(await credits()).toEqual([
      ['grant', 'live', '0'],
      ['included', null, attos(4_600_001)],
    ])
    await adjust('1100002', { eventId: `${user}-b` })
    expect(await credits()).toEqual([
      ['grant', 'live', attos(1_000_003)],
      ['included', null, attos(4_700_000)],
    ])
    expect(await outcome(adjust('1', { eventId: `${user}-b` }))).toBe('CONFLICT')
    await adjust('300000', { eventId: `${user}-a` })
    expect(await balance()).toMatchObject({
      balanceUsdMicros: '5000000',
      featureBalances: [{ featureKey: 'live', balanceUsdMicros: '1000003' }],
    })
  })

  it('gives back a credit for the same feature when the one that paid has ended', async () => {
    await spend(`${user}-old`, '777777777777')
    world.clock.set(new Date(begin.getTime() + 40 * 86_400_000))
    await adjust('2333', { eventId: `${user}-old` })
    expect(await credits()).toEqual([
      ['adjustment', null, attos(2_333)],
      ['included', null, '0'],
      ['included', null, attos(5_000_000)],
    ])
    world.clock.set(begin)
  })

  it('replays the result for a repeated key and rejects the key for another request', async () => {
    const twice = await atOnce(2, () =>
      adjust('7', { idempotencyKey: `k-${user}` }).catch(() => null),
    )
    const again = await adjust('7', { idempotencyKey: `k-${user}` })
    expect(twice.filter((one) => one !== null)).toContainEqual(again)
    expect(await balance()).toMatchObject({ balanceUsdMicros: '5000007' })
    expect(await outcome(adjust('8', { idempotencyKey: `k-${user}` }))).toBe('IDEMPOTENCY_CONFLICT')
  })

  it('loses no correction among concurrent corrections and charges', async () => {
    await Promise.all([
      ...Array.from({ length: 10 }, (_, i) =>
        adjust(String(i % 2 === 0 ? 1_000 : -400), { idempotencyKey: `${user}-${i}` }),
      ),
      ...Array.from({ length: 10 }, (_, i) =>
        spend(`${user}-c${i}`, '1000000000', { sequence_number: i }),
      ),
    ])
    expect(await balance()).toMatchObject({
      balanceUsdMicros: String(5_000_000 + 5 * 1_000 - 5 * 400 - 10 * 3),
    })
  })

  it('enters the running period before it corrects', async () => {
    world.clock.set(new Date(begin.getTime() + 40 * 86_400_000))
    await adjust('-1000000')
    expect(await balance()).toMatchObject({ balanceUsdMicros: '4000000' })
    world.clock.set(begin)
  })

  it('rejects malformed requests and unknown apps and users', async () => {
    for (const amount of [
      '0',
      '',
      '1.5',
      '+5',
      '-0',
      '01',
      '1000000000000001',
      '-1000000000000001',
      'x',
      ' 5',
    ]) {
      expect(await outcome(adjust(amount))).toBe('AMOUNT_INVALID')
    }
    expect(await outcome(adjust('1', { reason: ' ' }))).toBe('REQUEST_INVALID')
    expect(await outcome(adjust('1', { author: 'a\nb' }))).toBe('REQUEST_INVALID')
    expect(await outcome(adjust('1', { reason: 'x'.repeat(501) }))).toBe('REQUEST_INVALID')
    expect(await outcome(adjust('1', { uncovered: 'ignore' }))).toBe('REQUEST_INVALID')
    expect(await outcome(adjust('1', { clientId: `app_${'0'.repeat(24)}` }))).toBe('NOT_FOUND')
    expect(await outcome(adjust('1', { externalUserId: 'nobody' }))).toBe('NOT_FOUND')
    expect((await tollgate('adjust', '--app', 'a', '--user', 'b', '--usd-micros', '1')).code).toBe(
      2,
    )
    expect((await tollgate('adjust', '--help')).text).toContain('tollgate adjust [--app APP]')
  })

  it('leaves books that pass verify', async () => {
    await tollgate('rebuild')
    expect((await tollgate('verify')).text).toContain('the books are right')
  })

  it('rejects updates and deletes of adjustments', async () => {
    await adjust('1')
    await expect(world.sql.query('update adjustments set amount_attos = 2')).rejects.toThrow(
      'adjustments is append-only',
    )
    await expect(world.sql.query('delete from adjustments')).rejects.toThrow(
      'adjustments is append-only',
    )
  })
})
