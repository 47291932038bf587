import { randomUUID } from 'node:crypto'
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import type { Invoice } from '../../../../core/billing/invoices/invoice.ts'
import { findEndedPeriods } from '../../../../core/billing/invoices/overage-store.ts'
import type { UserKey } from '../../../../core/shared/ids.ts'
import { freeTerms, type PlanTerms } from '../../../../core/plans/offers/plan.ts'
import { insertPlan } from '../../../../core/plans/offers/store.ts'
import { connectCore } from '../../../../deploy/cli/client.ts'
import { explaining } from '../../../support/usage/explaining.ts'
import { type BooksWorld, type Event, startBooks, tollgate } from '../../books/support.ts'
import { begin, day, serviceToken } from '../../support.ts'
import { dollar, figuresOf, issueOne, pay, threeDollars, userOf } from './world.ts'

let world: BooksWorld
let operator: ReturnType<typeof connectCore>
let named = 0
let user: UserKey
let externalUserId: string

beforeAll(async () => {
  world = await startBooks()
  operator = connectCore({ target: world.core.target, token: serviceToken })
})
afterAll(async () => {
  operator.close()
  await world.stop()
})
beforeEach(async () => {
  externalUserId = `user-${(named += 1)}`
  const { clientId, basic } = world.app
  await world.as(basic).upsertUser({ clientId, externalUserId })
  user = await userOf(world, clientId, externalUserId)
})

const ticket = (data: Event = {}): Event => ({
  auth_id: `${world.app.clientId}:${externalUserId}`,
  session_id: `s-${(named += 1)}`,
  sequence_number: 0,
  computed_fee: threeDollars,
  current_time: world.clock.now().toISOString(),
  ...data,
})

/** Puts the user on a new weekly plan, as an operator does. */
async function join(terms: Partial<PlanTerms>): Promise<void> {
  const id = randomUUID()
  const kind = { status: 'active', isStarterDefault: false, isNetworkDefault: false } as const
  await insertPlan(
    world.sql,
    { appId: user.appId, id, name: `Plan ${named}`, ...kind },
    { terms: { ...freeTerms, billingCycle: 'weekly', ...terms }, at: begin },
  )
  await operator.subscriptions.updateSubscription({
    clientId: world.app.clientId,
    externalUserId,
    planId: id,
    timing: 'immediate',
  })
  world.clock.advance(60_000)
}

const issued = async (): Promise<Invoice> => {
  const invoice = await issueOne(world, user, { reason: 'period' })
  if (!invoice) throw new Error('no invoice was issued')
  return invoice
}

const linesOf = async (invoice: Invoice, kind: string) =>
  (await figuresOf(world, invoice)).lines.filter((line) => line.kind === kind)

const expectRightBooks = async (): Promise<void> => {
  const { text } = await tollgate('verify', '--app', world.app.clientId)
  expect(text.split('\n').filter((line) => line.startsWith('DIFFERENCE'))).toEqual([])
}

// An hour more, so that late tickets of the old period are there.
const week = 7 * day + 3_600_000
const sold = { type: 'subscription', priceAmount: '29.00', includedUnits: 100n } as const

describe('the price of a period', () => {
  it('is invoiced once for each period after the first, which an operator settles', async () => {
    await join({ ...sold, overageRateWei: 0n })
    expect(await issueOne(world, user)).toBeNull()
    world.clock.advance(week)
    const first = await issued()
    expect(first.total).toBe(29_00n)
    expect(await linesOf(first, 'subscription')).toMatchObject([{ amount: 29n * dollar }])
    expect(await issueOne(world, user)).toBeNull()
    await pay(world, first, randomUUID())
    world.clock.advance(2 * week)
    // The user was inactive for a week, and enters only the running period.
    expect((await issued()).total).toBe(29_00n)
    await expectRightBooks()
  })

  it('is on the invoice of the usage of the period before, whose late tickets are named', async () => {
    await join({ ...sold, overageRateWei: 0n })
    const late = world.clock.now().toISOString()
    await world.ingest(ticket())
    world.clock.advance(week)
    expect((await issued()).total).toBe(32_00n)
    await world.ingest(ticket({ current_time: late }), ticket())
    const next = await issued()
    expect(next.total).toBe(6_00n)
    expect(await linesOf(next, 'other')).toMatchObject([
      { description: expect.stringMatching(/^Late usage/), amount: 3n * dollar },
    ])
  })
})

describe('units beyond the included ones', () => {
  const overageRateWei = 10n ** 13n
  /** At 3000 USD per ETH. */
  const unit = (3000n * dollar) / 10n ** 5n

  it('are charged when the period has ended, at the rates of the last tickets', async () => {
    await join({ ...sold, priceAmount: '0', overageRateWei, included: null })
    await world.ingest(
      ticket({ pixels: 60, computed_fee: '0' }),
      ticket({ pixels: 70, computed_fee: '0' }),
    )
    expect(await issueOne(world, user)).toBeNull()
    world.clock.advance(week)
    const invoice = await issued()
    expect(await linesOf(invoice, 'overage')).toMatchObject([{ amount: 30n * unit }])
    expect(await issueOne(world, user)).toBeNull()
  })

  it("are found without reading other users' hours", async () => {
    await join({ ...sold, priceAmount: '0', overageRateWei })
    await world.ingest(ticket({ pixels: 150, computed_fee: '0' }))
    world.clock.advance(week)
    await issued()
    const others = `insert into usage_hourly
      select (jsonb_populate_record(h, jsonb_build_object('user_id', gen_random_uuid()))).*
      from usage_hourly h, generate_series(1, 2000) where user_id = $1`
    await world.sql.query(others, [user.userId])
    await world.sql.query('analyze usage_hourly')
    const { pool, scans } = explaining(world.sql)
    const at = world.clock.now()
    expect(await findEndedPeriods(pool, [{ ...user, at, since: null }])).toMatchObject([
      { unitsMax: 150n },
    ])
    const read = scans.filter(({ on }) => on === 'usage_hourly')
    expect(read.reduce((sum, one) => sum + one.read, 0)).toBe(1)
    await world.sql.query(
      'delete from usage_hourly h where not exists (select from end_users where id = h.user_id)',
    )
  })

  it('of late tickets are charged with the difference', async () => {
    await join({ ...sold, priceAmount: '0', overageRateWei })
    const late = world.clock.now().toISOString()
    await world.ingest(ticket({ pixels: 150, computed_fee: threeDollars }))
    world.clock.advance(week)
    expect(await linesOf(await issued(), 'overage')).toMatchObject([{ amount: 50n * unit }])
    await world.ingest(ticket({ pixels: 40, current_time: late }))
    expect(await linesOf(await issued(), 'overage')).toMatchObject([{ amount: 40n * unit }])
    await expectRightBooks()
  })

  it('are not charged in a free plan, nor without an overage rate', async () => {
    await join({ type: 'usage', includedUnits: 100n, overageRateWei: null })
    await world.ingest(ticket({ pixels: 1_000, computed_fee: '0' }))
    world.clock.advance(week)
    expect(await issueOne(world, user)).toBeNull()
  })
})
