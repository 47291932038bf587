import { changeCore, withCore } from '../cli/command.ts'
import type { ActDeps } from './allowance.ts'
import { parsePath } from './browser.ts'
import { type Customer, type Document, createCustomer, user } from './customer.ts'
import { proveBooks } from './proof.ts'
import { type Shop, newBrowser, offer, openShop } from './shop.ts'
import { createDemoSigner } from './signer.ts'
import { waitFor } from './waiting.ts'

const refundUsd = '3.00'
/** Invoices of a period are raised an hour after it ended. */
const afterPeriodMs = 3_600_000 + 60_000

interface Play extends ActDeps {
  readonly shop: Shop
  readonly customer: Customer
}

/**
 * An app sells a plan to a user, who uses it on credit, whose card is declined, who pays with
 * another one, and whose next month begins. Resolves to whether all sums agree.
 */
export async function playPayments(deps: ActDeps): Promise<boolean> {
  const shop = await openShop(deps)
  const signer = createDemoSigner(deps.service, deps.rate, 1n)
  await signer.start()
  try {
    const customer = createCustomer({ ...deps, shop, signer })
    const play = { ...deps, shop, customer }
    await customer.checkOut()
    await customer.spendUntilRefused()
    await showPastDue(play)
    await payWithNewCard(play)
    await signer.flush()
    // Tickets that are booked after the move of the clock belong to the new month.
    await customer.untilBooked()
    await endMonth(play)
    await showOwnerInvoices(play)
    await refund(play)
    const isHooked = await showEvents(play)
    return (await proveBooks({ ...play, signer })) && isHooked
  } finally {
    await signer.stop()
    await shop.hooks.stop()
  }
}

/** Waits for the invoice at the threshold, whose charge is declined. */
async function showPastDue({ customer, screen }: Play): Promise<void> {
  const { status } = await waitFor(
    'the declined charge makes the subscription past due',
    customer.readPlan,
    (plan) => plan.status === 'past_due',
  )
  const [invoice] = await customer.invoices()
  if (!invoice) throw new Error('no invoice was issued at the threshold')
  screen.step('Invoice', `${textOf(invoice)}; Visa 0341 is declined`)
  const state = await customer.readState()
  screen.step('Past due', `the subscription is ${status}; ${user} is ${state.status} and should:`)
  screen.more(`${state.collection.nextAction}. ${state.explain.headline}. ${state.explain.detail}`)
}

async function payWithNewCard({ customer, screen }: Play): Promise<void> {
  await customer.replaceCard()
  const [invoice] = await customer.invoices()
  screen.step(
    'New card',
    `Visa 4242 pays ${invoice?.number} at once; the subscription is active again`,
  )
  await customer.goOn(4)
  screen.step('Go on', `access is back: 4 more payments on the same session`)
}

/** Moves the clock of the test app past the end of the month. */
async function endMonth({ service, shop, customer, screen }: Play): Promise<void> {
  const known = new Set((await customer.invoices()).map(({ id }) => id))
  const { currentPeriodEnd } = await customer.readPlan()
  const to = new Date(Date.parse(currentPeriodEnd) + afterPeriodMs)
  await customer.api.moveClock(to.toISOString())
  const [invoice] = await waitFor(
    'the invoice of the new month is paid',
    async () => (await customer.invoices()).filter(({ id }) => !known.has(id)),
    (all) =>
      all.every(({ status }) => status === 'paid') &&
      all.some(({ totalAmount }) => Number(totalAmount) >= Number(offer.priceAmount)),
  )
  if (!invoice) throw new Error('no invoice was issued at the end of the month')
  const { lines } = await shop.call<{ lines: readonly Line[] }>(
    'GET',
    `billing/invoices/${invoice.id}`,
  )
  screen.step(
    'Month end',
    `the test clock moves to ${to.toISOString().slice(0, 16)}Z; ${textOf(invoice)}:`,
  )
  for (const { name, totalAmount } of lines) screen.more(`${totalAmount.padStart(8)}  ${name}`)
  const url = invoice.hostedInvoiceUrl ?? ''
  const page = await newBrowser(service).open(parsePath(url))
  if (!page.text.includes(invoice.number)) throw new Error(`${url} does not show the invoice`)
  screen.step('Page', `for the payer, to print: ${new URL(parsePath(url), service.platformUrl)}`)
}

interface Line {
  readonly name: string
  readonly totalAmount: string
}

/** Collects what the owner owes the platform, and shows the owner's invoices. */
async function showOwnerInvoices({ shop, screen, target }: Play): Promise<void> {
  const { platformClientId: clientId, externalUserId } = shop.owner
  await changeCore({ target }, (core) => core.collections.collectDebt({ clientId, externalUserId }))
  const { items } = await waitFor(
    "the owner's usage is on a paid invoice",
    () => shop.call<{ items: readonly Document[] }>('GET', 'billing/invoices?payer=owner'),
    ({ items: all }) => all.length > 1 && all.every(({ status }) => status === 'paid'),
  )
  screen.step('Owner', "the platform's invoices to the owner:")
  for (const invoice of items.toReversed()) screen.more(textOf(invoice))
}

/** Refunds a part of the newest payment, as an operator does. */
async function refund({ shop: { clientId }, customer, screen, target }: Play): Promise<void> {
  const { payments } = await withCore({ target }, (core) =>
    core.payments.listPayments({ clientId, externalUserId: user, limit: 100, cursor: undefined }),
  )
  const payment = payments.find(({ amountUsd }) => Number(amountUsd) >= Number(offer.priceAmount))
  if (!payment) throw new Error('the user has made no payment')
  await changeCore({ target }, (core) =>
    core.payments.refundPayment({
      clientId,
      paymentId: payment.id,
      amountUsd: refundUsd,
      idempotencyKey: `demo-refund-${payment.id}`,
    }),
  )
  const [note] = await waitFor(
    'the refund has a credit note',
    async () =>
      (await customer.invoices()).filter(({ invoiceType }) => invoiceType === 'credit_note'),
    (notes) => notes.length > 0,
  )
  screen.step(
    'Refund',
    `$${refundUsd} of $${payment.amountUsd} go back to the card: ${note?.number}`,
  )
}

/** The types that the app must have been sent. */
const expected = [
  'user.created',
  'key.created',
  'checkout.completed',
  'payment.succeeded',
  'subscription.changed',
  'invoice.issued',
  'invoice.payment_failed',
  'payment.failed',
  'subscription.past_due',
  'invoice.paid',
  'payment.refunded',
] as const

async function showEvents({ shop: { hooks }, screen }: Play): Promise<boolean> {
  const missing = (): string[] => {
    const types = new Set(hooks.events().map(({ type }) => type))
    return expected.filter((type) => !types.has(type))
  }
  await waitFor(
    'the app receives its events',
    async () => missing(),
    (types) => types.length === 0,
  )
  screen.step(
    'Webhook',
    `${hooks.events().length} events arrived with a valid signature, ${hooks.refused()} without one:`,
  )
  screen.more(expected.join(', '))
  return hooks.refused() === 0
}

const reasons: Readonly<Record<string, string>> = {
  plan: 'for the plan',
  threshold: 'because the threshold is reached',
  ceiling: 'because half the limit of credit is used',
  period: 'for the month',
  request: 'because it was asked for',
}

const textOf = ({ number, totalAmount, reason, status }: Document): string =>
  `${number}, $${totalAmount}, ${reasons[reason] ?? reason}: ${status}`
