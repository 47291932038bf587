import { randomUUID } from 'node:crypto'
import { createLedger } from '../../../core/balances/ledger/ledger.ts'
import type { ProcessorAccount } from '../../../core/billing/processor/port.ts'
import { createStripeProcessor } from '../../../core/billing/processor/stripe/adapter.ts'
import { type Pool, tx } from '../../../core/lib/sql.ts'
import { usdAttos } from '../../../core/lib/money.ts'
import { systemNow } from '../../../core/lib/time.ts'
import { freeTerms } from '../../../core/plans/offers/plan.ts'
import { insertPlan } from '../../../core/plans/offers/store.ts'
import { createPlans } from '../../../core/plans/service.ts'
import { type AppId, appId as toAppId, newUserId } from '../../../core/shared/ids.ts'
import type { CoreClient } from '../../../deploy/cli/client.ts'
import { addCard } from '../../fakes/stripe/money.ts'
import type { FakeStripe } from '../../fakes/stripe/stripe.ts'
import type { FakeCustomer } from '../../fakes/stripe/world.ts'
import { userName } from '../ingest/tickets.ts'

export interface PayersOptions {
  readonly operator: CoreClient
  readonly pool: Pool
  readonly stripe: FakeStripe
  readonly users: number
}

export interface Payers {
  readonly clientId: string
  readonly at: ProcessorAccount
}

const chunk = 1_000
/** Calls that run at a time. */
const parallel = 16
const dollar = 10n ** 18n

/**
 * Creates a connected app in billing mode merchant, whose users have a card and a plan that includes
 * a cent of usage and 100 units.
 */
export async function createPayers(options: PayersOptions): Promise<Payers> {
  const { operator, pool, stripe, users } = options
  const app = await createMerchant(options)
  const plan = randomUUID()
  await insertPlan(
    pool,
    {
      appId: app.appId,
      id: plan,
      name: 'Pro',
      status: 'active',
      isStarterDefault: false,
      isNetworkDefault: false,
    },
    {
      terms: {
        ...freeTerms,
        type: 'subscription',
        included: usdAttos(dollar / 100n),
        includedUnits: 100n,
        overageRateWei: 10n ** 12n,
      },
      at: systemNow(),
    },
  )
  for (let from = 0; from < users; from += chunk) {
    const names = Array.from({ length: Math.min(chunk, users - from) }, (_, n) =>
      userName(from + n),
    )
    await insertUsers({ pool, stripe, names, ...app })
    const queue = [...names]
    const work = async (): Promise<void> => {
      for (let name = queue.shift(); name !== undefined; name = queue.shift())
        await operator.subscriptions.updateSubscription({
          clientId: app.clientId,
          externalUserId: name,
          planId: plan,
          timing: 'immediate',
          idempotencyKey: undefined,
        })
    }
    await Promise.all(Array.from({ length: parallel }, work))
  }
  return app
}

interface Merchant extends Payers {
  readonly appId: AppId
}

async function createMerchant({ operator, pool, stripe }: PayersOptions): Promise<Merchant> {
  const { clientId } = await operator.apps.createApp({ name: 'Bench', starterUsdMicros: '0' })
  await operator.billing.updateBillingSettings({
    clientId,
    billingMode: 'merchant',
    endUserCap: undefined,
    isPlatformOwned: undefined,
    servesEveryApp: undefined,
    platformCutPercent: undefined,
  })
  const { rows } = await pool.query<{ app_id: string }>(
    'select app_id from clients where client_id = $1',
    [clientId],
  )
  const appId = toAppId(rows[0]?.app_id ?? '')
  const owner = { reference: appId, email: null }
  const { createAccount } = createStripeProcessor(stripe.config, systemNow)
  const { id: account } = await createAccount('live', owner, randomUUID())
  stripe.onboard(account)
  await pool.query(
    `insert into processor_accounts (app_id, id, processor, plane, account, charges_enabled, payouts_enabled, details_submitted,
                                     created_at, connected_at, read_at)
     values ($1, $2, 'stripe', 'live', $3, true, true, true, now(), now(), now())`,
    [appId, randomUUID(), account],
  )
  return { appId, clientId, at: { plane: 'live', account } }
}

interface NewUsers extends Merchant {
  readonly pool: Pool
  readonly stripe: FakeStripe
  readonly names: readonly string[]
}

/** Creates users on the Starter plan, and their customers with cards at the fake. */
async function insertUsers({ pool, stripe, names, appId, at }: NewUsers): Promise<void> {
  const now = systemNow()
  const plans = createPlans({ ledger: createLedger() })
  const users = names.map((name) => ({ name, appId, userId: newUserId() }))
  const ids = users.map(({ userId }) => userId)
  await tx(pool, async (db) => {
    await db.query(
      `insert into end_users (app_id, id, external_user_id, status, created_at, updated_at)
       select $1, id, name, 'active', $4, $4 from unnest($2::uuid[], $3::text[]) as u (id, name)`,
      [appId, ids, names, now],
    )
    await plans.startOnStarter(db, users, now)
  })
  const world = stripe.world(at)
  const cards = users.map(({ name }) => {
    const customer = world.add<FakeCustomer>({
      ...world.head('customer'),
      description: name,
      metadata: {},
      invoice_settings: { default_payment_method: null },
    })
    const card = addCard(world, customer.id, {})
    customer.invoice_settings.default_payment_method = card.id
    return { customer: customer.id, card: card.id }
  })
  await pool.query(
    `insert into processor_customers (app_id, user_id, processor, plane, account_id, customer_id, card_id, card_brand,
                                      card_last4, card_expires_month, card_expires_year, card_read_at, created_at)
     select $1, user_id, 'stripe', 'live', $2, customer, card, 'visa', '4242', 12, 2099, $6, $6
     from unnest($3::uuid[], $4::text[], $5::text[]) as c (user_id, customer, card)`,
    [
      appId,
      at.account,
      ids,
      cards.map(({ customer }) => customer),
      cards.map(({ card }) => card),
      now,
    ],
  )
}
