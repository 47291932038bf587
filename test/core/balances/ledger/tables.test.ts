import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { testSeed } from '../../../support/run/sizes.ts'
import { connectCore } from '../../../../deploy/cli/client.ts'
import { begin, day, serviceToken, type AppOptions } from '../../support.ts'
import {
  micro,
  core,
  app,
  ledger,
  openApp,
  grant,
  allowance,
  accountOf,
  spend,
  head,
  expectSoundBooks,
  setUpApp,
} from '../credit/world.ts'

setUpApp()

describe('ledger tables', () => {
  const attempt = (sql: string, values: unknown[]) =>
    core.sql.query(sql, values).then(
      () => 'done',
      (error: Error) => error.message,
    )

  it('reject updates and deletes', async () => {
    await grant()
    const { userId: id } = await accountOf()
    const entries = [
      `update ledger_entries set amount_attos = 1 where user_id = $1`,
      `update ledger_entries set created_at = now() where user_id = $1`,
      `delete from ledger_entries where user_id = $1`,
    ]
    for (const sql of entries)
      expect(await attempt(sql, [id])).toBe('ledger_entries is append-only')
    const columns = [
      'app_id = gen_random_uuid()',
      'user_id = gen_random_uuid()',
      'id = gen_random_uuid()',
      `kind = 'grant'`,
      `source = 'promo'`,
      `feature_key = 'x'`,
      'amount_attos = amount_attos + 1',
      'priority = 1',
      'effective_at = now()',
      'expires_at = now()',
      'created_at = now()',
    ]
    for (const column of columns)
      expect(await attempt(`update grants set ${column} where user_id = $1`, [id])).toBe(
        'grants is append-only',
      )
    expect(await attempt(`delete from grants where user_id = $1`, [id])).toBe(
      'grants is append-only',
    )
    expect(await attempt(`delete from end_users where id = $1`, [id])).toMatch(/append-only/)
  })

  it('reject amounts that do not add up', async () => {
    const { userId: id } = await accountOf()
    expect(
      await attempt(`update balances set granted_attos = granted_attos + 1 where user_id = $1`, [
        id,
      ]),
    ).toMatch(/balances_add_up/)
    expect(
      await attempt(`update balances set balance_attos = -1 where user_id = $1`, [id]),
    ).toMatch(/balances_(not_negative|add_up)/)
    expect(
      await attempt(`update grants set remaining_attos = amount_attos + 1 where user_id = $1`, [
        id,
      ]),
    ).toMatch(/grants_remaining_within/)
    expect(
      await attempt(`update grants set remaining_attos = -1 where user_id = $1`, [id]),
    ).toMatch(/grants_remaining_within/)
  })

  it('have no index on columns that each charge changes', async () => {
    const { rows } = await core.sql.query(`
      select indexname
      from pg_indexes
      where tablename in ('grants', 'balances') and indexdef ~ '(_attos|seq|_hash|_through|updated_at)\\M'`)
    expect(rows).toEqual([])
  })

  const users = ['ada', 'bob', 'eve']
  const user = fc.constantFrom(...users)
  const act = fc.oneof(
    fc.record({
      act: fc.constant('grant' as const),
      user,
      micros: fc.integer({ min: 1, max: 3_000_000 }),
      featureKey: fc.constantFrom(
        undefined,
        undefined,
        'text-to-image',
        'upscale:x4',
        'network_spend',
      ),
    }),
    fc.record({ act: fc.constant('read' as const), user }),
    fc.record({ act: fc.constant('sweep' as const) }),
    fc.record({
      act: fc.constant('charge' as const),
      tickets: fc.array(
        fc.record({
          user,
          attos: fc.bigInt({ min: 0n, max: 4n * 10n ** 18n }),
          ageMs: fc.integer({ min: -1_000, max: 40 * day }),
          pipeline: fc.constantFrom('text-to-image', 'upscale'),
          modelId: fc.constantFrom('sdxl', 'x4'),
        }),
        { minLength: 1, maxLength: 12 },
      ),
    }),
  )
  const move = fc.record({
    act: fc.constant('move' as const),
    seconds: fc.integer({ min: 1, max: 10 * 86_400 }),
  })
  type Act = typeof act extends fc.Arbitrary<infer T> ? T : never
  type Move = typeof move extends fc.Arbitrary<infer T> ? T : never
  const historyOf = <T>(acts: fc.Arbitrary<T>) =>
    fc.array(
      fc.record({
        advanceMs: fc.oneof(fc.constant(0), fc.integer({ min: 0, max: 45 * day })),
        acts: fc.array(acts, { minLength: 1, maxLength: 8 }),
      }),
      { minLength: 1, maxLength: 8 },
    )
  interface Sums {
    readonly charged: Map<string, bigint>
    readonly granted: Map<string, bigint>
  }

  async function take(one: Act, { charged, granted }: Sums): Promise<void> {
    if (one.act === 'grant') {
      granted.set(one.user, (granted.get(one.user) ?? 0n) + BigInt(one.micros))
      await grant({
        externalUserId: one.user,
        amountUsdMicros: String(one.micros),
        featureKey: one.featureKey,
      })
    } else if (one.act === 'read') await allowance(one.user)
    else if (one.act === 'sweep') await ledger.sweep(core.sql, core.clock.now())
    else {
      for (const { user: of, attos } of one.tickets)
        charged.set(of, (charged.get(of) ?? 0n) + attos)
      await spend(
        ...one.tickets.map(({ user: of, ageMs, ...rest }) => ({
          of,
          ...rest,
          signedAt: new Date(core.clock.now().getTime() - ageMs),
        })),
      )
    }
  }

  async function moveClock({ seconds }: Move): Promise<void> {
    const operator = connectCore({ target: core.core.target, token: serviceToken })
    const request = { to: undefined, advanceSeconds: seconds }
    await operator.testClocks.advanceTestClock({ clientId: app.clientId, move: request })
    operator.close()
  }

  async function allConsumed(): Promise<Sums['charged']> {
    const heads = await Promise.all(users.map((name) => head(name)))
    return new Map(heads.map(({ consumed }, i) => [users[i] ?? '', consumed]))
  }

  async function expectFold({ granted }: Pick<Sums, 'granted'>): Promise<void> {
    await expectSoundBooks()
    for (const name of users) {
      expect(await topupOf(name)).toBe((granted.get(name) ?? 0n) * micro)
      const shown = await allowance(name)
      // Each figure is rounded down separately.
      const parts = [
        shown.balanceUsdMicros,
        ...shown.featureBalances.map((one) => one.balanceUsdMicros),
      ]
      const sum = parts.reduce((total, part) => total + BigInt(part), 0n)
      const whole = (await head(name)).balance / micro
      expect(whole - sum).toBeGreaterThanOrEqual(0n)
      expect(whole - sum).toBeLessThan(BigInt(parts.length))
      expect(shown.hasAccess).toBe(shown.remainingUsdMicros !== '0')
    }
  }

  /** Runs the acts of each step concurrently, in a new app. */
  async function runHistory(
    steps: readonly { readonly advanceMs: number; readonly acts: readonly (Act | Move)[] }[],
    options: AppOptions,
  ): Promise<Sums> {
    core.clock.set(begin)
    await openApp(options, users)
    const nothing = () => new Map(users.map((name) => [name, 0n]))
    const sums = { charged: nothing(), granted: nothing() }
    for (const { advanceMs, acts } of steps) {
      core.clock.advance(advanceMs)
      await Promise.all(acts.map((one) => (one.act === 'move' ? moveClock(one) : take(one, sums))))
    }
    return sums
  }

  it(`equal the sums of their entries after any concurrent history (TEST_SEED=${testSeed})`, async () => {
    await fc.assert(
      fc.asyncProperty(historyOf(act), async (steps) => {
        const sums = await runHistory(steps, {})
        await expectFold(sums)
        expect(await allConsumed()).toEqual(sums.charged)
      }),
      { seed: testSeed, numRuns: 15 },
    )
  }, 120_000)

  it(`equal them while the clock of a test app is moved (TEST_SEED=${testSeed})`, async () => {
    const acts = fc.oneof({ weight: 5, arbitrary: act }, { weight: 1, arbitrary: move })
    await fc.assert(
      fc.asyncProperty(historyOf(acts), async (steps) => {
        const sums = await runHistory(steps, { isTest: true })
        await expectFold(sums)
        expect(await allConsumed()).toEqual(sums.charged)
      }),
      { seed: testSeed, numRuns: 4 },
    )
  }, 120_000)
})

async function topupOf(externalUserId: string): Promise<bigint> {
  const { rows } = await core.sql.query<{ topup_attos: string }>(
    'select topup_attos from balances where user_id = $1',
    [(await accountOf(externalUserId)).userId],
  )
  return BigInt(rows[0]?.topup_attos ?? '-1')
}
