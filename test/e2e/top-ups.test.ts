import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, beforeAll, expect, it } from 'vitest'
import type { ProcessorAccount } from '../../core/billing/processor/port.ts'
import {
  type MerchantApp,
  type Merchants,
  breakStripe,
  startMerchants,
} from '../support/deployment/merchants.ts'
import { createRandom } from '../support/random.ts'
import { readSize, testSeed } from '../support/run/sizes.ts'

const count = readSize('TEST_TOP_UPS')
const users = 20
const isLarge = count > 1_000
const kills = isLarge ? 20 : 3
const pauseMs = isLarge ? 20_000 : 3_000
/** Core asks about 20 lost events a second on a busy machine. */
const settleMs = 180_000 + count * 50
const random = createRandom(testSeed + 7)
process.stdout.write(`top-ups: TEST_SEED=${testSeed}, ${count} top-ups\n`)

let merchants: Merchants
beforeAll(async () => {
  merchants = await startMerchants()
}, 240_000)
afterAll(() => merchants.stop(), 60_000)

it('credits every paid checkout once and no other, whatever fails', async () => {
  const { sql, stripe, core } = merchants
  const { app, at } = await merchants.newMerchant(users)
  const paid = new Map<string, bigint>()
  const queue = Array.from({ length: count }, (_, i) => ({
    key: `order-${i}`,
    user: `user-${i % users}`,
    cents: BigInt(100 + random.below(20_000)),
  }))
  breakStripe(merchants, random)
  const working = { isDone: false }
  const killing = merchants.killCore(working, { kills, random, pauseMs })
  await Promise.all(
    Array.from({ length: 8 }, async () => {
      for (let next = queue.shift(); next; next = queue.shift()) {
        const sessionId = await topUp(app, next)
        if (leave(at, await processorId(sessionId))) {
          const sum = paid.get(next.user) ?? 0n
          paid.set(next.user, sum + next.cents)
        }
      }
    }),
  )
  working.isDone = true
  await killing
  // The user of a repeated request got one checkout.
  const { rows: opened } = await sql.query<{ n: number }>(
    'select count(distinct id)::int as n from checkouts where processor_id is not null',
  )
  expect(opened[0]?.n).toBe(count)
  await stripe.webhooks.idle()
  stripe.faults = () => undefined
  const expected = [...paid.values()].reduce((sum, cents) => sum + cents, 0n)
  await merchants.settleLate(async () => (await credited()) >= expected, settleMs)
  await sleep(2_000)
  expect(await credited()).toBe(expected)
  for (const [user, cents] of paid)
    expect(await balanceOf(app, user)).toBe(5_000_000n + cents * 10_000n)
  const { rows } = await sql.query<{ total: bigint }>(
    'select sum(amount_cents)::bigint as total from payments',
  )
  expect(rows[0]?.total).toBe(expected)
  expect(sumOfStripe(at)).toBe(expected)
  expect(core.crashes()).toBe(kills)
  await expect(merchants.differences()).resolves.toEqual([])
}, 5_400_000)

/** Opens a top-up and repeats the request until it is answered, as a careful client does. */
async function topUp(
  app: MerchantApp,
  { key, user, cents }: { readonly key: string; readonly user: string; readonly cents: bigint },
): Promise<string> {
  const body = JSON.stringify({ amountUsd: String(Number(cents) / 100), externalUserId: user })
  for (const end = Date.now() + 240_000; Date.now() < end;) {
    const response = await fetch(
      `${merchants.platformUrl}/api/v1/apps/${app.clientId}/billing/wallet/top-up`,
      {
        method: 'POST',
        headers: {
          authorization: app.authorization,
          'content-type': 'application/json',
          'idempotency-key': key,
        },
        body,
      },
    ).catch(() => null)
    if (response?.status === 200) {
      const { sessionId }: { sessionId: string } = JSON.parse(await response.text())
      return sessionId
    }
    if (response && ![409, 502, 503].includes(response.status))
      throw new Error(`top-up: ${response.status} ${await response.text()}`)
    await sleep(100)
  }
  throw new Error(`top-up ${key} was never answered`)
}

async function processorId(sessionId: string): Promise<string> {
  const { rows } = await merchants.sql.query<{ processor_id: string }>(
    'select processor_id from checkouts where id = $1',
    [sessionId],
  )
  return rows[0]?.processor_id ?? ''
}

/** The user pays, is declined, pays by a method that is decided later, or leaves. */
function leave(at: ProcessorAccount, id: string): boolean {
  const what = random.below(10)
  if (what < 7) merchants.stripe.payCheckout(at, id)
  else if (what === 7) {
    const outcome = random.pick(['paid', 'failed'] as const)
    merchants.stripe.payCheckout(at, id, { outcome: 'processing' })
    merchants.stripe.settleCheckout(at, id, outcome)
    return outcome === 'paid'
  } else if (what === 8) merchants.stripe.expireCheckout(at, id)
  return what < 7
}

async function credited(): Promise<bigint> {
  const { rows } = await merchants.sql.query<{ cents: bigint }>(
    `select coalesce(sum(g.amount_attos), 0)::numeric / 10::numeric ^ 16 as cents
     from grants g join payments p on p.app_id = g.app_id and p.credit_id = g.id`,
  )
  return BigInt(Math.round(Number(rows[0]?.cents ?? 0)))
}

async function balanceOf(app: MerchantApp, user: string): Promise<bigint> {
  const { allowance } = await merchants.operator.allowances.getAllowance({
    clientId: app.clientId,
    externalUserId: user,
  })
  return BigInt(allowance?.balanceUsdMicros ?? '0')
}

const sumOfStripe = (at: ProcessorAccount): bigint =>
  [...merchants.stripe.world(at).list('payment_intent')]
    .filter(({ status }) => status === 'succeeded')
    .reduce((sum, { amount }) => sum + BigInt(amount), 0n)
