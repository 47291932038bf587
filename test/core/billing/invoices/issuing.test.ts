import { randomUUID } from 'node:crypto'
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import type { Invoice } from '../../../../core/billing/invoices/invoice.ts'
import type { UserKey } from '../../../../core/shared/ids.ts'
import { type BooksWorld, type Event, startBooks, tollgate } from '../../books/support.ts'
import {
  attos,
  change,
  debtOf,
  dollar,
  figuresOf,
  issueAll,
  issueOne,
  ledger,
  pay,
  threeDollars,
  userOf,
} from './world.ts'

let world: BooksWorld
let sequence = 0
let user: UserKey
let name: string

beforeAll(async () => {
  world = await startBooks()
})
afterAll(() => world.stop())

const ticket = (data: Event = {}): Event => ({
  auth_id: `${world.app.clientId}:${name}`,
  session_id: `s-${(sequence += 1)}`,
  sequence_number: 0,
  computed_fee: threeDollars,
  ...data,
})

// Every test has a user whose Starter plan has paid for the first 5 USD.
beforeEach(async () => {
  name = `user-${(sequence += 1)}`
  await world.as(world.app.basic).upsertUser({ clientId: world.app.clientId, externalUserId: name })
  user = await userOf(world, world.app.clientId, name)
})

const issued = async (of: UserKey = user): Promise<Invoice> => {
  const invoice = await issueOne(world, of)
  if (!invoice) throw new Error('no invoice was issued')
  return invoice
}

const expectRightBooks = async (): Promise<void> => {
  const { text } = await tollgate('verify', '--app', world.app.clientId)
  expect(text.split('\n').filter((line) => line.startsWith('DIFFERENCE'))).toEqual([])
}

const usage = { kind: 'usage', tickets: 1n }

describe('an invoice of usage', () => {
  it('has a line per pipeline and model, with what no credit paid', async () => {
    const [a, b] = [{ model_id: 'a' }, { model_id: 'b' }]
    const earlier = new Date(world.clock.now().getTime() - 1_000).toISOString()
    await world.ingest(ticket({ ...a, current_time: earlier }), ticket(b))
    await world.ingest(ticket(a), ticket(b), ticket(b))
    const { total, debt, lines } = await figuresOf(world, await issued())
    // The included 5 USD paid for the first ticket and for 2 USD of the second.
    expect(total).toBe(10_00n)
    expect(debt).toBe(10n * dollar)
    expect(lines.map(({ kind, amount, tickets }) => ({ kind, amount, tickets }))).toEqual([
      { kind: 'usage', amount: 7n * dollar, tickets: 3n },
      { kind: 'usage', amount: 3n * dollar, tickets: 1n },
    ])
    expect(lines[0]?.description).toMatch(/, b$/)
    await expectRightBooks()
  })

  it('finds tickets that were signed long before they were booked', async () => {
    await world.ingest(ticket(), ticket())
    const early = new Date(world.clock.now().getTime() - 20 * 86_400_000).toISOString()
    await world.ingest(ticket({ current_time: early }), ticket())
    // The old ticket waits for its rate, which is recorded now.
    const invoice = await issued()
    const { lines } = await figuresOf(world, invoice)
    expect(lines.reduce((sum, { amount }) => sum + amount, 0n)).toBe(await debtOf(world, user))
  })

  it('is not issued below 0.50 USD; the amount is on a later one', async () => {
    await world.ingest(ticket(), ticket({ computed_fee: '800000000000000' }))
    expect(await debtOf(world, user)).toBe((4n * dollar) / 10n)
    expect(await issueOne(world, user)).toBeNull()
    await world.ingest(ticket({ computed_fee: '50000000000000' }))
    expect(await figuresOf(world, await issued())).toMatchObject({ total: 55n, carried: 0n })
  })

  it('covers each charge once', async () => {
    await world.ingest(ticket(), ticket(), ticket())
    const first = await issued()
    expect(await issueOne(world, user)).toBeNull()
    await world.ingest(ticket())
    const second = await issued()
    expect([first.total, second.total]).toEqual([4_00n, 3_00n])
    expect((await figuresOf(world, second)).lines).toMatchObject([
      { ...usage, amount: 3n * dollar },
    ])
  })

  it('carries parts of cents to the next invoice, and leaves them as debt when it is paid', async () => {
    await world.ingest(ticket(), ticket(), ticket({ computed_fee: '333333333333333' }))
    const first = await issued()
    const carried = (await debtOf(world, user)) - first.total * 10n ** 16n
    expect(carried).toBeGreaterThan(0n)
    await pay(world, first, randomUUID())
    expect(await debtOf(world, user)).toBe(carried)
    await world.ingest(ticket({ computed_fee: '333333333333333' }))
    const second = await issued()
    expect(await figuresOf(world, second)).toMatchObject({ carriedIn: carried })
    await pay(world, second, randomUUID())
    expect(await debtOf(world, user)).toBeLessThan(10n ** 16n)
    await expectRightBooks()
  })

  it('names corrections, returned payments and collected fees', async () => {
    await world.ingest(ticket(), ticket(), ticket())
    const at = world.clock.now()
    await change(world, user, (db, account) =>
      ledger.collect(db, account, { amount: attos(-2n * dollar), causeId: randomUUID(), at }),
    )
    const { lines, total } = await figuresOf(world, await issued())
    expect(total).toBe(6_00n)
    expect(lines).toMatchObject([
      { ...usage, tickets: 2n, amount: 4n * dollar },
      { kind: 'other', amount: 2n * dollar },
    ])
  })
})

describe('an invoice of given prices', () => {
  const price = (amount: bigint, kind: 'subscription' | 'proration' = 'subscription') => ({
    kind,
    description: 'Team',
    amount: attos(amount),
    periodStart: world.clock.now(),
    periodEnd: new Date(world.clock.now().getTime() + 86_400_000),
  })

  it('leaves usage to the next invoice', async () => {
    await world.ingest(ticket(), ticket(), ticket())
    const prices = [price(29n * dollar), price(-dollar / 3n, 'proration')]
    const order = await issueOne(world, user, { reason: 'plan', prices, withUsage: false })
    if (!order) throw new Error('no invoice was issued')
    expect(order.total).toBe(28_66n)
    await pay(world, order, randomUUID())
    const next = await issued()
    const rest = 29n * dollar - dollar / 3n - 28_66n * 10n ** 16n
    expect((await figuresOf(world, next)).carriedIn).toBe(rest)
    expect(next.total).toBe(4_00n)
    await pay(world, next, randomUUID())
    const { carried } = await figuresOf(world, next)
    expect(await debtOf(world, user)).toBe(carried)
  })

  it('carries a credit', async () => {
    const prices = [price(-3n * dollar, 'proration')]
    const order = await issueOne(world, user, { reason: 'plan', prices, withUsage: false })
    expect(order).toMatchObject({ total: 0n })
    await world.ingest(ticket(), ticket(), ticket())
    expect(await figuresOf(world, await issued())).toMatchObject({
      total: 1_00n,
      carriedIn: -3n * dollar,
    })
  })
})

describe('numbers', () => {
  it('have no gaps when many invoices are issued and rolled back at once', async () => {
    const names = Array.from({ length: 12 }, (_, i) => `many-${(sequence += 1)}-${i}`)
    for (const one of names) {
      name = one
      await world.ingest(ticket(), ticket(), ticket())
    }
    const users = await Promise.all(names.map((one) => userOf(world, world.app.clientId, one)))
    await Promise.all(
      [users.slice(0, 4), users.slice(4, 8), users.slice(8)].map((some) => issueAll(world, some)),
    )
    const [row] = await world.rows(
      `select count(*) as count, max(number) as last, min(number) as first from invoices where kind = 'invoice'`,
    )
    expect(row).toMatchObject({ count: row?.['last'], first: '1' })
  })
})
