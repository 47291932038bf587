import { randomUUID } from 'node:crypto'
import { type Server, createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { buffer } from 'node:stream/consumers'
import { credentials } from '@grpc/grpc-js'
import { expect } from 'vitest'
import type { ProcessorAccount } from '../../../../core/billing/processor/port.ts'
import { createStripeProcessor } from '../../../../core/billing/processor/stripe/adapter.ts'
import { unary } from '../../../../core/lib/grpc.ts'
import { type UsdAttos, usdAttos } from '../../../../core/lib/money.ts'
import { freeTerms } from '../../../../core/plans/offers/plan.ts'
import { insertPlan } from '../../../../core/plans/offers/store.ts'
import type { UserKey } from '../../../../core/shared/ids.ts'
import { PaymentServiceClient } from '../../../../proto/gen/ts-proto/tollgate/billing/v1/payments.ts'
import { SubscriptionServiceClient } from '../../../../proto/gen/ts-proto/tollgate/plans/v1/subscriptions.ts'
import { serviceTokenHeader } from '../../../../proto/headers.ts'
import { createCustomers } from '../../../../core/billing/payments/customers.ts'
import { type FakeStripe, startStripe } from '../../../fakes/stripe/stripe.ts'
import { type OwnersWorld, startOwners, ticketOf } from '../../balances/ledger/owner-world.ts'
import { begin, serviceToken } from '../../support.ts'
import { threeDollars, userOf } from '../invoices/world.ts'

/** A core with Stripe's fake, merchant apps, and users with cards. */

export interface CollectionWorld extends OwnersWorld {
  readonly stripe: FakeStripe
  merchant(options?: MerchantOptions): Promise<Merchant>
  /** Creates a user on a plan, with a card unless `card` is null. */
  payer(merchant: Merchant, options?: PayerOptions): Promise<Payer>
  /** Creates a plan of type subscription. */
  plan(merchant: Merchant, priceAmount: string, included?: UsdAttos | null): Promise<string>
  /** Moves a user as the app does, so that the plan is paid. Needs an app without an owner. */
  changePlan(payer: Payer, planId: string, timing?: Timing): Promise<unknown>
  giveCard(payer: Pick<Payer, 'user' | 'at' | 'name'>, card?: Behaviour): Promise<string>
  /** Books a ticket of `count` times 3 USD. */
  spend(payer: Payer, count?: number): Promise<void>
  /** Books `count` tickets of 3 USD at once, as separate batches. */
  spendInBatches(payer: Payer, count: number): Promise<void>
  account(user: UserKey): Promise<Figures>
  collections(user: UserKey): Promise<Collection[]>
  /** Successful payments of the user at the processor, in cents. */
  taken(payer: Payer): number[]
  /** Makes the worker look again, and waits until the user has no collection in these states. */
  settled(user: UserKey, states?: readonly string[]): Promise<void>
}

type Timing = 'immediate' | 'next_billing_cycle'
type Behaviour = 'good' | 'card_declined' | 'authentication_required' | 'processing'

export interface MerchantOptions {
  readonly isTest?: boolean
  /** Whether a person owns the app. Default is no for a test app, yes for any other. */
  readonly isOwned?: boolean
}

export interface Merchant {
  readonly clientId: string
  readonly email: string
  readonly appId: UserKey['appId']
  readonly at: ProcessorAccount
  /** The credentials of an app that was created without an owner. */
  readonly basic?: string
}

export interface PayerOptions {
  readonly name?: string
  readonly type?: 'usage' | 'subscription'
  readonly threshold?: bigint | null
  readonly price?: string
  readonly card?: Behaviour | null
  /** When the plan begins. Default is `immediate`. */
  readonly timing?: Timing
}

export interface Payer {
  readonly merchant: Merchant
  readonly name: string
  readonly user: UserKey
  readonly at: ProcessorAccount
  readonly planId: string
}

export interface Figures {
  readonly overage: bigint
  readonly collected: bigint
  readonly invoiced: bigint
  readonly ceiling: bigint
}

export interface Collection {
  readonly id: string
  readonly reason: string
  readonly state: string
  readonly failures: number
  readonly failure: string | null
  readonly invoiceId: string | null
}

export const usd = (cents: number) => usdAttos(BigInt(cents) * 10n ** 16n)

export async function startCollections(): Promise<CollectionWorld> {
  const clock = { now: () => begin }
  const stripe = await startStripe({ now: () => clock.now() })
  const world = await startOwners(stripe.env)
  clock.now = world.clock.now
  const client = new PaymentServiceClient(world.core.target, credentials.createInsecure())
  const subscriptions = new SubscriptionServiceClient(
    world.core.target,
    credentials.createInsecure(),
  )
  const receive = unary(client.receiveProcessorEvent.bind(client))
  const relay = createServer((request, response) => {
    void (async () => {
      const signature = String(request.headers['stripe-signature'])
      const headers = { [serviceTokenHeader]: serviceToken }
      await receive({ body: await buffer(request), signature }, { deadlineMs: 10_000, headers })
      response.end()
    })().catch(() => response.writeHead(500).end())
  })
  await listen(relay)
  const { port } = relay.address() as AddressInfo
  for (const plane of ['live', 'test'] as const)
    for (const isConnect of [false, true])
      stripe.webhooks.add({
        url: `http://127.0.0.1:${port}`,
        secret: stripe.webhookSecrets[plane],
        plane,
        isConnect,
      })
  const processor = createStripeProcessor(stripe.config, world.clock.now)
  const customers = createCustomers({ pool: world.sql, processor, now: world.clock.now })

  async function merchant({
    isTest = false,
    isOwned = !isTest,
  }: MerchantOptions = {}): Promise<Merchant> {
    const shop = isOwned ? await world.ownedApp({ isTest }) : await unowned(isTest)
    await world.operator.billing.updateBillingSettings({
      clientId: shop.clientId,
      billingMode: 'merchant',
      endUserCap: undefined,
      isPlatformOwned: undefined,
      servesEveryApp: undefined,
      platformCutPercent: undefined,
    })
    const [row] = await world.rows('select app_id from clients where client_id = $1', [
      shop.clientId,
    ])
    const appId = row?.['app_id'] as UserKey['appId']
    const plane = isTest ? 'test' : 'live'
    const { id } = await processor.createAccount(
      plane,
      { reference: appId, email: null },
      randomUUID(),
    )
    await world.sql.query(
      `insert into processor_accounts (app_id, id, processor, plane, account, charges_enabled, payouts_enabled, details_submitted,
                                       created_at, connected_at, read_at)
       values ($1, $2, 'stripe', $3, $4, true, true, true, $5, $5, $5)`,
      [appId, randomUUID(), plane, id, world.clock.now()],
    )
    stripe.onboard(id)
    return { ...shop, appId, at: { plane, account: id } }
  }

  async function unowned(isTest: boolean) {
    const { clientId, basic } = await world.newApp({ isTest })
    return { clientId, email: '', basic }
  }

  async function payer(shop: Merchant, options: PayerOptions = {}): Promise<Payer> {
    const {
      name = 'ada',
      type = 'usage',
      threshold = null,
      price = '0.00',
      card = 'good',
      timing = 'immediate',
    } = options
    await world.as().getAccess({ clientId: shop.clientId, externalUserId: name })
    const user = await userOf(world, shop.clientId, name)
    const plan = { appId: shop.appId, id: randomUUID(), name: randomUUID() }
    const kind = { status: 'active', isStarterDefault: false, isNetworkDefault: false } as const
    const chargeThreshold = threshold === null ? null : usdAttos(threshold)
    const units = type === 'subscription' ? { includedUnits: 0n, overageRateWei: 0n } : {}
    const terms = { ...freeTerms, ...units, type, priceAmount: price, chargeThreshold }
    await insertPlan(world.sql, { ...plan, ...kind }, { terms, at: begin })
    const payer: Payer = { merchant: shop, name, user, at: shop.at, planId: plan.id }
    if (card !== null) await giveCard(payer, card)
    await world.operator.subscriptions.updateSubscription({
      clientId: shop.clientId,
      externalUserId: name,
      planId: plan.id,
      timing,
      idempotencyKey: undefined,
    })
    return payer
  }

  async function plan(
    { appId }: Merchant,
    priceAmount: string,
    included: UsdAttos | null = null,
  ): Promise<string> {
    const id = randomUUID()
    const kind = { status: 'active', isStarterDefault: false, isNetworkDefault: false } as const
    const units = { includedUnits: 0n, overageRateWei: 0n }
    const terms = { ...freeTerms, ...units, type: 'subscription', priceAmount, included } as const
    await insertPlan(world.sql, { appId, id, name: randomUUID(), ...kind }, { terms, at: begin })
    return id
  }

  function changePlan(
    { merchant: { clientId, basic = '' }, name }: Payer,
    planId: string,
    timing: Timing = 'immediate',
  ): Promise<unknown> {
    const pages = { successUrl: undefined, cancelUrl: undefined, idempotencyKey: undefined }
    return unary(subscriptions.updateSubscription.bind(subscriptions))(
      { clientId, externalUserId: name, planId, timing, ...pages },
      { deadlineMs: 15_000, headers: { [serviceTokenHeader]: serviceToken, authorization: basic } },
    )
  }

  async function giveCard(
    { user, at, name }: Pick<Payer, 'user' | 'at' | 'name'>,
    behaviour: Behaviour = 'good',
  ): Promise<string> {
    const customer = await customers.ensure({ ...user, externalUserId: name, at }, randomUUID())
    const { id } = stripe.addCard(at, customer.customerId, { behaviour })
    await expect
      .poll(async () => {
        const [row] = await world.rows(
          'select card_id from processor_customers where user_id = $1',
          [user.userId],
        )
        return row?.['card_id']
      })
      .toBe(id)
    await stripe.webhooks.idle()
    return id
  }

  async function spend(payer: Payer, count = 1): Promise<void> {
    await recordRate()
    await book(payer, { computed_fee: String(BigInt(threeDollars) * BigInt(count)) })
  }

  async function spendInBatches(payer: Payer, count: number): Promise<void> {
    await recordRate()
    await Promise.all(Array.from({ length: count }, () => book(payer)))
  }

  /** Tests move the clock by days. */
  const recordRate = () =>
    world.operator.metering.recordRate({
      usdPerEth: '3000',
      source: 'test',
      observedAt: world.clock.now().toISOString(),
    })

  const book = ({ merchant: shop, name }: Payer, more: object = {}) =>
    world.ingestBytes(
      ticketOf(shop, name, { current_time: world.clock.now().toISOString(), ...more }),
    )

  async function account({ userId }: UserKey): Promise<Figures> {
    const [row] = await world.rows('select * from balances where user_id = $1', [userId])
    const read = (name: string): bigint => BigInt(row?.[`${name}_attos`] ?? '')
    return {
      overage: read('overage'),
      collected: read('collected'),
      invoiced: read('invoiced'),
      ceiling: read('ceiling'),
    }
  }

  async function collections({ userId }: UserKey): Promise<Collection[]> {
    const rows = await world.rows(
      'select * from collections where user_id = $1 order by requested_at, id',
      [userId],
    )
    return rows.map((row) => ({
      id: row['id'] ?? '',
      reason: row['reason'] ?? '',
      state: row['state'] ?? '',
      failures: Number(row['failures']),
      failure: row['failure'] ?? null,
      invoiceId: row['invoice_id'] ?? null,
    }))
  }

  const taken = ({ user, at }: Payer): number[] =>
    [...stripe.world(at).list('payment_intent')].flatMap(({ status, metadata, amount }) =>
      status === 'succeeded' && metadata['reference']?.startsWith(user.appId) ? [amount] : [],
    )

  async function settled(
    user: UserKey,
    states: readonly string[] = ['requested', 'issued', 'charging'],
  ): Promise<void> {
    await expect
      .poll(
        async () => {
          const [row] = await world.rows(
            'select count(*) as n from collections where user_id = $1 and state = any($2) and due_at <= $3',
            [user.userId, states, new Date(world.clock.now().getTime() + leaseMs)],
          )
          return row?.['n']
        },
        { timeout: 15_000, interval: 100 },
      )
      .toBe('0')
  }

  async function stop(): Promise<void> {
    client.close()
    subscriptions.close()
    relay.close()
    await world.stop()
    await stripe.stop()
  }

  return {
    ...world,
    stripe,
    merchant,
    payer,
    plan,
    changePlan,
    giveCard,
    spend,
    spendInBatches,
    account,
    collections,
    taken,
    settled,
    stop,
  }
}

/** While a core works on a collection, it is due again after two minutes. */
const leaseMs = 121_000

const listen = (server: Server): Promise<void> =>
  new Promise((resolve) => server.listen(0, '127.0.0.1', resolve))

/** The states of a payer's collections, oldest first. */
export const states = async (world: CollectionWorld, { user }: Payer): Promise<string[]> =>
  (await world.collections(user)).map(({ state }) => state)

export async function untilStates(
  world: CollectionWorld,
  payer: Payer,
  expected: readonly string[],
): Promise<void> {
  await expect
    .poll(() => states(world, payer), { timeout: 15_000, interval: 100 })
    .toEqual(expected)
}

/** The status of a payer's subscription, and whether it is to Starter. */
export const subscription = async (world: CollectionWorld, { user }: Payer) => {
  const [row] = await world.rows(
    `select s.status, p.is_starter_default as starter from subscriptions s
     join plans p on p.app_id = s.app_id and p.id = s.plan_id where s.user_id = $1`,
    [user.userId],
  )
  return { status: row?.['status'], isStarter: row?.['starter'] === 'true' }
}
