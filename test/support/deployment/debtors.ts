import { setTimeout as sleep } from 'node:timers/promises'
import { credentials } from '@grpc/grpc-js'
import type { ProcessorAccount } from '../../../core/billing/processor/port.ts'
import { unary } from '../../../core/lib/grpc.ts'
import { AccountServiceClient } from '../../../proto/gen/ts-proto/tollgate/identity/v1/accounts.ts'
import { serviceTokenHeader } from '../../../proto/headers.ts'
import type { CardBehaviour } from '../../fakes/stripe/world.ts'
import type { Random } from '../random.ts'
import { registerSecret } from '../run/secrecy.ts'
import { type GateSigner, startSigner, weiOf } from './gate.ts'
import { type MerchantApp, type Merchants, ownerPassword, until } from './merchants.ts'
import { secret } from './parts.ts'
import { freePorts, runProcess } from './processes.ts'

/** Users and owners who spend on credit, with cards at a fake Stripe. */

/** A user of an app, or the account of its owner, who pays by card. */
export interface Debtor {
  readonly clientId: string
  readonly externalUserId: string
  readonly at: ProcessorAccount
  readonly customer: string
  /** The newest card. */
  card: { readonly id: string; readonly behaviour: CardBehaviour }
}

export interface Spender extends Debtor {
  readonly headers: readonly (readonly [string, string])[]
}

export interface Shop {
  readonly app: MerchantApp
  readonly at: ProcessorAccount
  readonly isTest: boolean
  readonly ownerEmail: string
}

/** What a user may owe, in USD micros, and the cost of a call. */
export const ceilingMicros = 5_000_000n
export const ownerCeilingMicros = 60_000_000n
export const callMicros = 370_000n

export interface Debtors {
  readonly signer: GateSigner
  newShop(users: number, options: { isTest: boolean; ownerEmail: string }): Promise<Shop>
  /** Users `user-0` and so on, each on a plan that it has taken on the processor's page. */
  takePlans(shop: Shop, behaviours: readonly CardBehaviour[]): Promise<Spender[]>
  /** The account of the shop's owner, on a paid plan of the platform. */
  takeOwnerPlan(shop: Shop, behaviour: CardBehaviour): Promise<Debtor>
  /** Replaces the debtor's card at the processor. */
  replaceCard(debtor: Debtor, behaviour: CardBehaviour): void
  stop(): Promise<void>
}

/** Starts a sidecar and a signer beside the merchants' core. */
export async function startDebtors(merchants: Merchants): Promise<Debtors> {
  const { sql, stripe, operator, platformUrl } = merchants
  const [port = 0, admin = 0] = await freePorts(2)
  const webhookSecret = registerSecret(secret())
  const sidecar = await runProcess({
    name: 'sidecar',
    env: {
      CORE_TARGET: merchants.coreTarget,
      CORE_TOKEN: merchants.coreToken,
      WEBHOOK_SECRET: webhookSecret,
      SIDECAR_ID: 'sidecar',
      SIDECAR_PORT: String(port),
      SIDECAR_ADMIN_PORT: String(admin),
      RATE_LIMITS: 'off',
    },
  })
  const line = { url: `http://127.0.0.1:${port}`, sink: null }
  const signer = await startSigner(
    { ...line, authorization: `Bearer ${webhookSecret}` },
    { pricePerUnit: weiOf(callMicros) },
  )
  const { apps } = await operator.apps.listApps({ limit: 10, cursor: undefined })
  const platform = apps.find(({ isPlatformApp }) => isPlatformApp)?.clientId ?? ''
  const ownerPlan = await newPlan(platform, { priceAmount: '10.00', chargeThresholdUsd: '20.00' })
  await operator.overage.updateOverage({
    clientId: platform,
    ceilingUsdMicros: String(ownerCeilingMicros),
  })

  async function newPlan(clientId: string, terms: object): Promise<string> {
    const fields = { type: 'usage', status: 'active', includedUsdMicros: '0' }
    const name = `Plan ${JSON.stringify(terms)
      .replaceAll(/[^\w]+/g, ' ')
      .trim()}`
    const planJson = JSON.stringify({ ...fields, name, ...terms })
    return (await operator.plans.createPlan({ clientId, planJson })).id
  }

  async function newShop(
    users: number,
    { isTest, ownerEmail }: { isTest: boolean; ownerEmail: string },
  ): Promise<Shop> {
    const made = await merchants.newMerchant(users, { isTest, ownerEmail })
    await operator.overage.updateOverage({
      clientId: made.app.clientId,
      ceilingUsdMicros: String(ceilingMicros),
    })
    return { ...made, isTest, ownerEmail }
  }

  async function send(path: string, headers: object, json?: object) {
    const response = await fetch(`${platformUrl}/api/v1/apps/${path}`, {
      method: 'POST',
      headers: { ...headers, ...(json && { 'content-type': 'application/json' }) },
      body: json ? JSON.stringify(json) : null,
    })
    const body: Record<string, unknown> = JSON.parse(await response.text())
    if (!response.ok) throw new Error(`${path}: ${response.status} ${JSON.stringify(body)}`)
    return body
  }

  async function takePlans(shop: Shop, behaviours: readonly CardBehaviour[]): Promise<Spender[]> {
    const { clientId, authorization } = shop.app
    const plans = [
      await newPlan(clientId, { priceAmount: '3.00', chargeThresholdUsd: '2.00' }),
      await newPlan(clientId, { priceAmount: '0.00' }),
    ]
    const spenders: Spender[] = []
    const queue = [...behaviours.entries()]
    const work = async (): Promise<void> => {
      for (let next = queue.shift(); next; next = queue.shift()) {
        const [n, behaviour] = next
        const externalUserId = `user-${n}`
        const path = `${clientId}/users/${externalUserId}`
        const planId = plans[n % plans.length]
        await send(`${path}/subscription/change`, { authorization }, { planId })
        const debtor = await pay({ clientId, externalUserId, at: shop.at, behaviour })
        const { apiKey } = await send(`${path}/keys`, { authorization })
        const headers = [['Authorization', `Bearer ${String(apiKey)}`]] as const
        spenders.push({ ...debtor, headers })
      }
    }
    await Promise.all(Array.from({ length: 8 }, work))
    await haveTaken(clientId, plans, behaviours.length)
    return spenders
  }

  async function takeOwnerPlan(shop: Shop, behaviour: CardBehaviour): Promise<Debtor> {
    const session = await logIn(shop.ownerEmail)
    await send(`${shop.app.clientId}/billing/owner-plan`, session, { planId: ownerPlan })
    const { rows } = await sql.query<{ id: string }>('select id from accounts where email = $1', [
      shop.ownerEmail,
    ])
    const externalUserId = `account:${rows[0]?.id ?? ''}`
    const at = { plane: 'live', account: null } as const
    const debtor = await pay({ clientId: platform, externalUserId, at, behaviour })
    await haveTaken(platform, [ownerPlan], 1)
    return debtor
  }

  async function logIn(email: string) {
    const accounts = new AccountServiceClient(merchants.coreTarget, credentials.createInsecure())
    const { sessionToken, session } = await unary(accounts.logIn.bind(accounts))(
      { email, password: ownerPassword },
      { deadlineMs: 10_000, headers: { [serviceTokenHeader]: merchants.coreToken } },
    )
    accounts.close()
    const cookie = `tollgate_session=${sessionToken}`
    return { cookie, origin: platformUrl, 'x-csrf-token': session?.csrfToken ?? '' }
  }

  /** Pays on the page that the debtor was sent to, with a new card. */
  async function pay({
    behaviour,
    ...debtor
  }: Omit<Debtor, 'customer' | 'card'> & { readonly behaviour: CardBehaviour }): Promise<Debtor> {
    const { rows } = await sql.query<{ processor_id: string }>(
      `select k.processor_id from checkouts k
       join clients c on c.app_id = k.app_id and c.client_id = $1
       join end_users u on u.app_id = k.app_id and u.id = k.user_id and u.external_user_id = $2
       order by k.created_at desc limit 1`,
      [debtor.clientId, debtor.externalUserId],
    )
    const { customer } = stripe.payCheckout(debtor.at, rows[0]?.processor_id ?? '', { behaviour })
    const [card] = [...stripe.world(debtor.at).list('payment_method')].filter(
      (method) => method.customer === customer,
    )
    return { ...debtor, customer, card: { id: card?.id ?? '', behaviour } }
  }

  async function haveTaken(
    clientId: string,
    plans: readonly string[],
    count: number,
  ): Promise<void> {
    await until(async () => {
      const { rows } = await sql.query<{ n: number }>(
        `select count(*)::int as n from subscriptions s
         join clients c on c.app_id = s.app_id and c.client_id = $1
         join balances b on b.app_id = s.app_id and b.user_id = s.user_id and b.ceiling_attos > 0
         where s.plan_id = any($2)`,
        [clientId, plans],
      )
      return (rows[0]?.n ?? 0) >= count
    }, 60_000)
  }

  function replaceCard(debtor: Debtor, behaviour: CardBehaviour): void {
    const { id } = stripe.addCard(debtor.at, debtor.customer, { behaviour })
    stripe.removeCard(debtor.at, debtor.card.id)
    debtor.card = { id, behaviour }
  }

  async function stop(): Promise<void> {
    await signer.stop()
    await sidecar.stop()
  }

  return { signer, newShop, takePlans, takeOwnerPlan, replaceCard, stop }
}

/** Makes calls until `work` is done. Waits while the user may not spend. Returns how many were signed. */
export async function spend(
  signer: GateSigner,
  { headers }: Pick<Spender, 'headers'>,
  { work, random }: { readonly work: { readonly isDone: boolean }; readonly random: Random },
): Promise<number> {
  const session = { type: 'fixed', headers, manifestId: random.hex(8) }
  let signed = 0
  let state: Awaited<ReturnType<GateSigner['pay']>>['state']
  while (!work.isDone) {
    const answer = await signer.pay({ ...session, ...(state && { state }) }).catch(() => null)
    if (answer?.state) {
      signed++
      state = answer.state
    }
    await sleep((answer?.state ? 500 : 1_000) + random.below(1_000))
  }
  return signed
}
