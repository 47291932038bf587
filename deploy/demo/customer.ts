import { setTimeout as sleep } from 'node:timers/promises'
import type { SignerDouble } from '../signer-double/signer-double.ts'
import { createAppApi } from './api.ts'
import type { ActDeps } from './allowance.ts'
import { type Shop, newBrowser, offer, pay } from './shop.ts'
import { centsToWei } from './signer.ts'
import { waitFor } from './waiting.ts'

export const user = 'ada'

const callSeconds = 5
const callsMax = 200

interface Money {
  readonly usd: string
  readonly usdMicros: string
}

/** The billing state of a payer, as far as the demo shows it. */
export interface State {
  readonly status: string
  readonly canSpend: boolean
  readonly reason: string | null
  readonly funding: {
    readonly spendable: Money
    readonly includedUsage: { readonly remaining: Money }
    readonly overage: { readonly unbilledDebt: Money | null; readonly ceiling: Money | null }
  }
  readonly collection: { readonly nextAction: string }
  readonly explain: { readonly headline: string; readonly detail: string }
}

export interface Document {
  readonly id: string
  readonly number: string
  readonly invoiceType: string
  readonly status: string
  readonly reason: string
  readonly totalAmount: string
  readonly hostedInvoiceUrl: string | null
}

interface CustomerDeps extends ActDeps {
  readonly shop: Shop
  readonly signer: SignerDouble
}

/** The user who buys the plan, and the integrator's backend that serves it. */
export function createCustomer({ service, screen, rate, pauseMs, shop, signer }: CustomerDeps) {
  const api = createAppApi({ ...service, ...shop })
  const browser = newBrowser(service)
  let apiKey = ''
  let state: Awaited<ReturnType<SignerDouble['pay']>>['state']

  const readState = () => api.state<State>(user)
  const readPlan = async () => {
    const { subscription } = await api.subscription(user)
    return subscription
  }
  const invoices = async () =>
    (
      await shop.call<{ items: Document[] }>(
        'GET',
        `billing/invoices?payer=users&externalUserId=${user}&pageSize=100`,
      )
    ).items

  /** Pays for the plan on the pay page with a card whose later charges are declined. */
  async function checkOut(): Promise<void> {
    await api.createUser(user)
    apiKey = (await api.createKey(user)).apiKey
    const { checkoutUrl } = await shop.call<{ checkoutUrl: string }>('POST', 'billing/checkout', {
      planId: shop.planId,
      externalUserId: user,
    })
    const before = await readPlan()
    await pay(browser, checkoutUrl, 'declined_later')
    const after = await waitFor(
      'the user has the plan',
      readPlan,
      ({ planId }) => planId === shop.planId,
    )
    screen.step(
      'Check out',
      `${user} pays $${offer.priceAmount} with Visa 0341 and moves from ${before.planName} to ${after.planName}`,
    )
  }

  async function call() {
    const answer = await signer.pay({
      type: 'live',
      app: 'demo/live',
      manifestId: 'demo-shop',
      headers: [['Authorization', `Bearer ${apiKey}`]],
      orchestrator: { pricePerUnit: centsToWei(1n, rate) },
      ...(state ? { state } : {}),
    })
    if (answer.status === 200) {
      state = answer.state
      signer.advance(callSeconds)
    }
    await sleep(pauseMs)
    return answer
  }

  /** Makes payments until the signer is refused, and returns their number. */
  async function spendUntilRefused(): Promise<number> {
    let isOver = false
    for (let calls = 1; calls <= callsMax; calls++) {
      const { status, body } = await call()
      const { funding } = await readState()
      if (status === 483) {
        screen.step('Refused', `HTTP 483 after ${calls - 1} payments: ${body.trim()}`)
        return calls - 1
      }
      if (status !== 200) throw new Error(`the signer answered ${status}: ${body.trim()}`)
      const debt = Number(funding.overage.unbilledDebt?.usd ?? 0)
      if (debt > 0 && !isOver) {
        isOver = true
        screen.step('Overage', `the included $2.00 are used; ${user} spends on credit, up to $2.00`)
      }
    }
    throw new Error(`still allowed after ${callsMax} payments`)
  }

  /** Leaves a card that works, and waits until nothing is unpaid. */
  async function replaceCard(): Promise<void> {
    const { checkoutUrl } = await api.newCard(user)
    await pay(browser, checkoutUrl, 'works')
    await waitFor(
      'the new card pays',
      readPlan,
      ({ status, planId }) => status === 'active' && planId === shop.planId,
    )
  }

  async function goOn(calls: number): Promise<void> {
    for (let done = 0; done < calls; done++)
      // The sidecar remembers a refusal for a moment.
      await waitFor('a payment is allowed', call, ({ status }) => status === 200)
  }

  /** Waits until all signed tickets are booked, and returns the usage. */
  const untilBooked = () =>
    waitFor(
      'all tickets are booked',
      () => api.usage(user),
      ({ totals }) => totals.requestCount >= signer.stats().signed.tickets,
    )

  return {
    untilBooked,
    api,
    readState,
    readPlan,
    invoices,
    checkOut,
    spendUntilRefused,
    replaceCard,
    goOn,
  }
}

export type Customer = ReturnType<typeof createCustomer>
