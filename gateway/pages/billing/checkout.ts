import type { FastifyReply, FastifyRequest } from 'fastify'
import type { GetSimulatedCheckoutResponse } from '../../../proto/gen/es/tollgate/billing/v1/simulated_pb.ts'
import type { App } from '../../http/app.ts'
import { textMember } from '../../http/body.ts'
import { type Html, hidden, html, problem, sendPage } from '../../http/page.ts'
import { type PagesDeps, field, formRoute, formToken, pageRoute, requireOwnForm } from '../forms.ts'

/**
 * Adds the pay page of the simulated payment processor: the user chooses a test card and pays, or
 * leaves. The checkout's id is the only credential, as at a real processor.
 */
export function checkoutPages(app: App, { publicUrl }: PagesDeps): void {
  app.get('/pay/:checkoutId', pageRoute(), (request, reply) => show(request, reply))

  app.post('/pay/:checkoutId', formRoute(), async (request, reply) => {
    requireOwnForm(request, publicUrl)
    const checkoutId = idOf(request)
    const card = field(request, 'card') ?? ''
    const { state, failure } = await request.core.simulatedProcessor.paySimulatedCheckout({
      checkoutId,
      card,
    })
    if (failure !== undefined) return show(request, reply, { declined: card })
    return goOn(request, reply, state)
  })

  app.post('/pay/:checkoutId/confirmation', formRoute(), async (request, reply) => {
    requireOwnForm(request, publicUrl)
    const { state } = await request.core.simulatedProcessor.confirmSimulatedCheckout({
      checkoutId: idOf(request),
      isConfirmed: field(request, 'action') === 'confirm',
    })
    return goOn(request, reply, state)
  })

  async function show(
    request: FastifyRequest,
    reply: FastifyReply,
    { declined }: { declined?: string } = {},
  ): Promise<FastifyReply> {
    const checkoutId = idOf(request)
    const checkout = await request.core.simulatedProcessor.getSimulatedCheckout({ checkoutId })
    const csrfToken = formToken(request, reply, publicUrl)
    const form = { checkout, checkoutId, csrfToken, declined }
    return sendPage(reply, {
      title: titleOf(checkout),
      content: html`${banner(checkout.plane)}${contentOf(form)}`,
      leadsTo: checkout.successUrl,
      status: declined === undefined ? 200 : 402,
    })
  }

  /** Leads a user who has paid back to the application, and others to the page. */
  async function goOn(
    request: FastifyRequest,
    reply: FastifyReply,
    state: string,
  ): Promise<FastifyReply> {
    const checkoutId = idOf(request)
    if (state !== 'paid') return reply.redirect(`/pay/${checkoutId}`, 303)
    const { successUrl } = await request.core.simulatedProcessor.getSimulatedCheckout({
      checkoutId,
    })
    return reply.redirect(successUrl, 303)
  }
}

const idOf = (request: FastifyRequest): string => textMember(request.params, 'checkoutId') ?? ''

/** The line above every page of the simulated processor. */
export const banner = (plane: string): Html =>
  html`<p class="notice"><strong>Simulated payment.</strong> No money moves, and no card is real${plane === 'test' && ' (test app)'}.</p>`

const titleOf = ({ mode }: GetSimulatedCheckoutResponse): string =>
  mode === 'payment' ? 'Pay' : 'Save a card'

interface CheckoutForm {
  readonly checkout: GetSimulatedCheckoutResponse
  readonly checkoutId: string
  readonly csrfToken: string
  readonly declined: string | undefined
}

function contentOf(form: CheckoutForm): Html {
  const { state, isConfirming, successUrl, cancelUrl } = form.checkout
  if (state === 'paid')
    return html`
<h1>Done</h1>
<p>${form.checkout.mode === 'payment' ? 'This payment is made.' : 'The card is saved.'} There is nothing more to do here.</p>
<a class="button" href="${successUrl}">Continue</a>`
  if (state !== 'open')
    return html`
<h1>This page has expired</h1>
<p>Nothing was paid. Start again where you came from.</p>
<a class="button" href="${cancelUrl}">Go back</a>`
  return isConfirming ? confirmation(form) : choice(form)
}

const amountOf = ({ amountUsdCents }: GetSimulatedCheckoutResponse): string | undefined =>
  amountUsdCents && `$${amountUsdCents.slice(0, -2) || '0'}.${amountUsdCents.slice(-2)}`

const cards: readonly (readonly [name: string, label: string, meaning: string])[] = [
  ['works', 'Visa ···· 4242', 'works'],
  ['declined', 'Visa ···· 0002', 'is declined'],
  ['confirmation', 'Visa ···· 3184', 'needs your confirmation, also for later charges'],
  ['expires_soon', 'Mastercard ···· 4444', 'works, and expires at the end of this month'],
  ['declined_later', 'Visa ···· 0341', 'works now; later charges are declined'],
]

const choice = ({ checkout, checkoutId, csrfToken, declined }: CheckoutForm): Html => html`
<h1>${checkout.description}</h1>
${
  checkout.mode === 'payment'
    ? html`<p class="amount">${amountOf(checkout)}</p>`
    : html`<p>The card is saved for later charges. Nothing is charged now.</p>`
}
${problem(declined && 'The card was declined. Choose another one.')}
<form method="post" action="/pay/${checkoutId}">
${hidden({ csrf_token: csrfToken })}
<fieldset><legend>Test card</legend>
${cards.map(
  ([name, label, meaning], at) =>
    html`<label class="choice"><input type="radio" name="card" value="${name}"${at === 0 && html` checked`}><span>${label}<small>${meaning}</small></span></label>`,
)}
</fieldset>
<button>${checkout.mode === 'payment' ? `Pay ${amountOf(checkout)}` : 'Save the card'}</button>
</form>
<a class="button quiet" href="${checkout.cancelUrl}">${checkout.mode === 'payment' ? 'Leave without paying' : 'Leave without a card'}</a>`

const confirmation = ({ checkout, checkoutId, csrfToken }: CheckoutForm): Html => html`
<h1>Confirm with your bank</h1>
<p>Your bank asks whether you want to ${checkout.mode === 'payment' ? `pay ${amountOf(checkout)} with` : 'save'} Visa ···· 3184.</p>
<form method="post" action="/pay/${checkoutId}/confirmation">
${hidden({ csrf_token: csrfToken })}
<button name="action" value="confirm">Confirm</button>
<button name="action" value="refuse" class="quiet">Choose another card</button>
</form>`
