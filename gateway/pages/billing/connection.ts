import type { FastifyReply, FastifyRequest } from 'fastify'
import type {
  Admission,
  GetProcessorResponse,
} from '../../../proto/gen/es/tollgate/billing/v1/billing_pb.ts'
import { DomainError } from '../../../proto/errors.ts'
import { requireField } from '../../core/client.ts'
import type { App } from '../../http/app.ts'
import { textMember } from '../../http/body.ts'
import { type Html, hidden, html, sendPage } from '../../http/page.ts'
import { type PagesDeps, formRoute, pageRoute, parameter } from '../forms.ts'
import { type Visitor, actAs, readSender, readVisitor, toLogin } from '../visitor.ts'

const path = (clientId: string): string => `/apps/${clientId}/billing`

/**
 * Adds the page on which an owner connects an app to the payment processor, and the routes to which
 * the processor leads back. Refusals of the activation gate name the page as `actionUrl`.
 */
export function connectionPages(app: App, { publicUrl }: PagesDeps): void {
  app.get('/apps/:clientId/billing', pageRoute(), async (request, reply) => {
    const clientId = clientIdOf(request)
    const visitor = await readVisitor(request, publicUrl)
    if (!visitor) return toLogin(reply, path(clientId))
    actAs(request, visitor)
    const state = await request.core.billing.getProcessor({ clientId })
    return sendPage(reply, {
      title: 'Payments',
      content: contentOf({ state, clientId, visitor }),
      leadsTo: state.processor === 'stripe' ? stripeOrigin : publicUrl,
    })
  })

  app.post('/apps/:clientId/billing/connect', formRoute(), async (request, reply) => {
    actAs(request, await readSender(request, publicUrl))
    const { url } = await request.core.billing.connectProcessor({ clientId: clientIdOf(request) })
    return reply.redirect(url, 303)
  })

  app.post('/apps/:clientId/billing/disconnect', formRoute(), async (request, reply) => {
    actAs(request, await readSender(request, publicUrl))
    const clientId = clientIdOf(request)
    await request.core.billing.disconnectProcessor({ clientId })
    return reply.redirect(path(clientId), 303)
  })

  app.post('/apps/:clientId/billing/mode', formRoute(), async (request, reply) => {
    actAs(request, await readSender(request, publicUrl))
    const clientId = clientIdOf(request)
    const billingMode = textMember(request.body, 'billing_mode') ?? ''
    await request.core.billing.updateBillingSettings({ clientId, billingMode })
    return reply.redirect(path(clientId), 303)
  })

  const processor = '/api/v1/apps/:clientId/billing/processor'
  app.get(`${processor}/return`, pageRoute(), (request, reply) =>
    lead(request, reply, async (answer) => {
      await request.core.billing.completeProcessorConnection(answer)
      return path(answer.clientId)
    }),
  )
  app.get(`${processor}/refresh`, pageRoute(), (request, reply) =>
    lead(
      request,
      reply,
      async (answer) => (await request.core.billing.refreshProcessorConnection(answer)).url,
    ),
  )

  /** Leads a person who comes from the processor on to the address that `next` returns. */
  async function lead(
    request: FastifyRequest,
    reply: FastifyReply,
    next: (answer: { clientId: string; state: string }) => Promise<string>,
  ): Promise<FastifyReply> {
    const [clientId, state] = [clientIdOf(request), parameter(request, 'state') ?? '']
    const visitor = await readVisitor(request, publicUrl)
    if (!visitor) return toLogin(reply, request.raw.url ?? path(clientId))
    actAs(request, visitor)
    try {
      return await reply.redirect(await next({ clientId, state }), 303)
    } catch (error) {
      if (!(error instanceof DomainError) || error.reason !== 'CONNECT_STATE_INVALID') throw error
      request.reason = error.reason
      return sendPage(reply, { title: 'Link not valid', content: notValid(clientId), status: 400 })
    }
  }
}

// Stripe hosts the onboarding of accounts there; a form may end there.
const stripeOrigin = 'https://connect.stripe.com'

const clientIdOf = (request: FastifyRequest): string => textMember(request.params, 'clientId') ?? ''

const notValid = (clientId: string): Html => html`
<h1>This link is not valid</h1>
<p>It was used before, is older than 15 minutes, or was made for another person or app. Nothing is lost: look at the state of the connection, and connect again if it is not complete.</p>
<a class="button" href="${path(clientId)}">Payments of the app</a>`

interface PaymentsPage {
  readonly state: GetProcessorResponse
  readonly clientId: string
  readonly visitor: Visitor
}

function contentOf({ state, clientId, visitor }: PaymentsPage): Html {
  const form: Form = (action, button, fields) => html`
<form method="post" action="${path(clientId)}/${action}">${hidden({ csrf_token: visitor.csrfToken, ...fields })}${button}</form>`
  return html`
<h1>Payments</h1>
<p>of ${clientId}${state.plane === 'test' && ', a test app'}</p>
${state.processor === 'simulated' && html`<p class="notice"><strong>Simulated processor.</strong> No money moves.</p>`}
<ul>
<li>${statusTexts[state.status] ?? state.status}<small>connection to the payment processor</small></li>
${state.status !== 'disconnected' && flags(state)}
<li>${modeTexts[state.settings?.billingMode ?? ''] ?? ''}<small>billing mode</small></li>
</ul>
${needs('New users', requireField(state.provisioning, 'provisioning'), costCures(clientId))}
${needs('Plans with a price', requireField(state.selling, 'selling'), state.status === 'disconnected' ? cures : connectedCures)}
${
  state.processor === undefined
    ? html`<p>This deployment has no payment processor. Its operator can set one.</p>`
    : html`${modeForm(state, form)}${connectForms(state, form)}`
}
<a class="button quiet" href="/login">Your account</a>`
}

const flags = ({ detailsSubmitted, chargesEnabled, payoutsEnabled }: GetProcessorResponse): Html =>
  html`<li>${[
    detailsSubmitted ? 'details submitted' : 'details missing',
    chargesEnabled ? 'may take payments' : 'may not take payments yet',
    payoutsEnabled ? 'payouts enabled' : 'no payouts yet',
  ].join(', ')}<small>the account</small></li>`

/** Returns a form that sends `fields` below the page's address. */
type Form = (action: string, button: Html, fields?: Readonly<Record<string, string>>) => Html

/** Lets a connected owner have users pay, which plans with a price need. */
function modeForm({ status, settings }: GetProcessorResponse, form: Form): Html | false {
  if (status === 'disconnected' || settings?.billingMode !== 'owner_rollup') return false
  return form('mode', html`<button>Let users pay you</button>`, { billing_mode: 'merchant' })
}

function connectForms({ status }: GetProcessorResponse, form: Form): Html {
  const end = form('disconnect', html`<button class="quiet">Disconnect</button>`)
  if (status === 'connected') return end
  return status === 'pending'
    ? html`${form('connect', html`<button>Complete the account</button>`)}${end}`
    : form('connect', html`<button>Connect a payment account</button>`)
}

const statusTexts: Readonly<Record<string, string>> = {
  disconnected: 'Not connected',
  pending: 'Not complete',
  connected: 'Connected',
}

const modeTexts: Readonly<Record<string, string>> = {
  owner_rollup: 'You pay for all users',
  merchant: 'Users pay you',
}

/** What the activation gate misses, if it does. */
const needs = (title: string, { code, detail, isEnforced }: Admission, cure: Cures): Html | false =>
  code !== undefined &&
  html`<p class="${isEnforced ? 'problem' : 'notice'}"><strong>${title}:</strong> ${detail}. ${cure[code]}</p>`

type Cures = Readonly<Record<string, Html | string>>

/** Leads to the views of the dashboard where an owner does what is missing. */
const costCures = (clientId: string): Cures => ({
  end_user_cap_reached: html`<a href="/app/${clientId}/users">Deactivate a user</a> who is not needed, or ask a platform admin of this deployment for a higher cap. Active users are not affected.`,
  owner_payment_method_required: html`<a href="/app/${clientId}/money">Top up the account or take an owner plan</a>: only the app's first owner can, whose account pays. New users are accepted as soon as the payment is reported.`,
})

const cures: Cures = {
  stripe_connect_required: 'Connect an account below, then let users pay you.',
  stripe_connect_pending: 'Continue below.',
}

const connectedCures: Cures = {
  ...cures,
  stripe_connect_required: 'The account is connected; let users pay you.',
}
