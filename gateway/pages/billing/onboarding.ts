import type { FastifyRequest } from 'fastify'
import type { GetSimulatedAccountResponse } from '../../../proto/gen/es/tollgate/billing/v1/simulated_pb.ts'
import type { App } from '../../http/app.ts'
import { textMember } from '../../http/body.ts'
import { type Html, hidden, html, sendPage } from '../../http/page.ts'
import {
  type PagesDeps,
  field,
  formRoute,
  formToken,
  pageRoute,
  parameter,
  requireOwnForm,
} from '../forms.ts'
import { banner } from './checkout.ts'

/**
 * Adds the page on which an owner completes an account at the simulated payment processor. The
 * short-lived link is the only credential, as at a real processor.
 */
export function onboardingPages(app: App, { publicUrl }: PagesDeps): void {
  app.get('/pay/accounts/:accountId', pageRoute(), async (request, reply) => {
    const [accountId, linkId] = [idOf(request), parameter(request, 'link') ?? '']
    const account = await request.core.simulatedProcessor.getSimulatedAccount({ accountId, linkId })
    if (account.isExpired) return reply.redirect(account.refreshUrl, 303)
    const csrfToken = formToken(request, reply, publicUrl)
    const content = html`${banner(account.plane)}${contentOf({ account, accountId, linkId, csrfToken })}`
    return sendPage(reply, { title: 'Payment account', content, leadsTo: account.returnUrl })
  })

  app.post('/pay/accounts/:accountId', formRoute(), async (request, reply) => {
    requireOwnForm(request, publicUrl)
    const { url } = await request.core.simulatedProcessor.updateSimulatedAccount({
      accountId: idOf(request),
      linkId: field(request, 'link') ?? '',
      action: field(request, 'action') ?? '',
    })
    return reply.redirect(url, 303)
  })
}

const idOf = (request: FastifyRequest): string => textMember(request.params, 'accountId') ?? ''

interface AccountForm {
  readonly account: GetSimulatedAccountResponse
  readonly accountId: string
  readonly linkId: string
  readonly csrfToken: string
}

const yesNo = (value: boolean): string => (value ? 'yes' : 'not yet')

function contentOf({ account, accountId, linkId, csrfToken }: AccountForm): Html {
  if (account.isEnded)
    return html`
<h1>Connection ended</h1>
<p>This account is no longer connected to the platform.</p>
<a class="button" href="${account.returnUrl}">Continue</a>`
  const isComplete = account.chargesEnabled && account.detailsSubmitted
  return html`
<h1>${isComplete ? 'Your payment account' : 'Complete your payment account'}</h1>
${account.email && html`<p>of ${account.email}</p>`}
<ul>
<li>${yesNo(account.detailsSubmitted)}<small>details submitted</small></li>
<li>${yesNo(account.chargesEnabled)}<small>may take payments</small></li>
<li>${yesNo(account.payoutsEnabled)}<small>payouts</small></li>
</ul>
<form method="post" action="/pay/accounts/${accountId}">
${hidden({ csrf_token: csrfToken, link: linkId })}
${
  isComplete
    ? html`<button name="action" value="end" class="quiet">End the connection with the platform</button>`
    : html`<button name="action" value="complete">Complete the account</button>
<button name="action" value="submit" class="quiet">Submit details, but wait for approval</button>`
}
</form>
<a class="button quiet" href="${account.returnUrl}">${isComplete ? 'Go back' : 'Postpone'}</a>`
}
