import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type CoreClient, connectCore } from '../../../deploy/cli/client.ts'
import { type BooksWorld, startBooks, tollgate } from '../../core/books/support.ts'
import { begin, serviceToken } from '../../core/support.ts'

const hour = 3_600_000
/** At 3,000 dollars for one ETH. */
const threeDollarsWei = 10n ** 15n

let world: BooksWorld
let operator: CoreClient
let folder: string
beforeAll(async () => {
  world = await startBooks()
  operator = connectCore({ target: world.core.target, token: serviceToken })
  folder = await mkdtemp(join(tmpdir(), 'tollgate-whatif-'))
  await spend()
})
afterAll(async () => {
  await rm(folder, { recursive: true, force: true })
  operator.close()
  await world.stop()
})

const of = (externalUserId: string) => ({ clientId: world.app.clientId, externalUserId })
const atHour = (hours: number): void => world.clock.set(new Date(begin.getTime() + hours * hour))
const use = (user: string, times = 1n) =>
  world.ingest({
    auth_id: `${world.app.clientId}:${user}`,
    computed_fee: String(times * threeDollarsWei),
    current_time: world.clock.now().toISOString(),
  })

/** Plays a day of three users, with a platform cut, a top-up and a change of plan. */
async function spend(): Promise<void> {
  const app = world.as(world.app.basic)
  for (const user of ['ada', 'bob', 'cyd']) await app.upsertUser(of(user))
  atHour(1)
  await use('ada')
  await operator.billing.updateBillingSettings({
    clientId: world.app.clientId,
    billingMode: undefined,
    endUserCap: undefined,
    isPlatformOwned: undefined,
    servesEveryApp: undefined,
    platformCutPercent: '12.5',
  })
  atHour(3)
  await use('ada')
  await app.createGrant({ ...of('bob'), amountUsdMicros: '3000000', source: 'manual' })
  atHour(4)
  await use('bob', 2n)
  const mid = { name: 'Mid', type: 'usage', includedUsdMicros: '2000000' }
  const { plan } = await operator.plans.createPlan({
    clientId: world.app.clientId,
    planJson: JSON.stringify({ ...mid, overageRateUsd: '0.000002' }),
  })
  await operator.subscriptions.updateSubscription({
    ...of('cyd'),
    planId: plan?.id ?? '',
    timing: 'immediate',
    idempotencyKey: undefined,
  })
  atHour(6)
  await use('cyd')
  atHour(7)
}

async function whatif(drafts: object, ...more: string[]): Promise<{ code: number; text: string }> {
  const file = join(folder, 'drafts.json')
  await writeFile(file, JSON.stringify(drafts))
  const range = ['--from', '2026-03-10', '--to', '2026-03-11']
  return tollgate('whatif', '--app', world.app.clientId, ...range, '--plans', file, ...more)
}

const pro = {
  plans: [
    { name: 'Pro', type: 'usage', includedUsdMicros: '6000000', overageRateUsd: '0.0000015' },
  ],
}

describe('tollgate whatif', () => {
  it('replays a day with a platform cut, a top-up and a change of plan', async () => {
    const { code, text } = await whatif(pro, '--json')
    expect(code).toBe(0)
    const answer: unknown = JSON.parse(text)
    const figures = {
      users: 3,
      tickets: '4',
      unpricedTickets: '0',
      networkCostUsdExact: '15',
      // From the three tickets after the cut was set.
      platformCutUsdExact: '1.5',
      today: { revenueUsdExact: '18', marginUsdExact: '1.5', overageUsdExact: '5', usersRunOut: 2 },
      // One and a half times the network price; bob's credit pays the rest of his.
      whatIf: {
        revenueUsdExact: '22.5',
        marginUsdExact: '6',
        overageUsdExact: '3',
        usersRunOut: 1,
      },
      usersPayingMore: 2,
      usersPayingLess: 1,
      usersPayingSame: 0,
    }
    expect(answer).toMatchObject({
      total: figures,
      plans: [{ ...figures, plan: 'Pro', isDraft: true }],
      runOuts: [{ externalUserId: 'ada', plan: 'Pro' }],
    })
  })

  it('shows the same as a table and as CSV, including plans that users stay on', async () => {
    const some = { ...pro, assign: { plans: { Mid: 'Pro' } } }
    const { text: csv } = await whatif(some, '--csv')
    const [head = '', ...lines] = csv.trim().split('\n')
    const names = head.split(',')
    const table = lines.map((line) => {
      const cells = line.split(',')
      return Object.fromEntries(names.map((name, i) => [name, cells[i]]))
    })
    expect(table).toMatchObject([
      { plan: 'Pro', draft: 'yes', users: '1', revenue_today: '6', revenue: '4.5', pay_less: '1' },
      {
        plan: 'Starter',
        draft: 'no',
        users: '2',
        revenue_today: '12',
        revenue: '12',
        pay_same: '2',
      },
      { plan: '(all)', users: '3', revenue_today: '18', revenue: '16.5', platform_cut: '1.5' },
    ])
    const { text } = await whatif(some)
    expect(text).toMatch(/Pro \(draft\).*6\.00 -> 4\.50/)
    expect(text).toMatch(/\(all\).*18\.00 -> 16\.50/)
  })

  it('equals the booked amounts when the drafts are the current plans', async () => {
    const mid = { name: 'Mid 2', includedUsdMicros: '2000000', overageRateUsd: '0.000002' }
    const { text } = await whatif({ plans: [mid], assign: { plans: { Mid: 'Mid 2' } } }, '--json')
    const answer = JSON.parse(text) as { total: Record<string, Record<string, unknown>> }
    const { today, whatIf } = answer.total
    expect(whatIf).toMatchObject({
      revenueUsdExact: today?.['revenueUsdExact'],
      marginUsdExact: today?.['marginUsdExact'],
    })
    const [booked] = await world.rows(
      `select (sum(coalesce(retail_attos, cost_attos)) / 10::numeric ^ 18)::text as retail, (sum(platform_fee_attos) / 10::numeric ^ 18)::text as cut
       from tickets`,
    )
    expect(Number(booked?.['retail'])).toBe(Number(today?.['revenueUsdExact']))
    expect(Number(booked?.['cut'])).toBe(1.5)
  })

  it.each([
    ['an unknown app', ['--app', 'app_000000000000000000000000'], /no app has this client id/],
    ['an empty range', ['--to', '2026-03-09'], /from must be before to/],
    ['both --json and --csv', ['--json', '--csv'], /--json or --csv, not both/],
    ['a missing file', ['--plans', '/nowhere.json'], /nowhere.json cannot be read/],
  ])('reports an error for %s', async (_, more, message) => {
    const { code, text } = await whatif(pro, ...more)
    expect(code).not.toBe(0)
    expect(text).toMatch(message)
  })
})
