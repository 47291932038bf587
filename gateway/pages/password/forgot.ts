import type { FastifyReply, FastifyRequest } from 'fastify'
import type { App } from '../../http/app.ts'
import { html, sendPage } from '../../http/page.ts'
import { type PagesDeps, field, formRoute, formToken, pageRoute, requireOwnForm } from '../forms.ts'
import { readMailDelivery } from '../mail.ts'
import { addressForm, mailPage } from './parts.ts'

/** Mails a link that sets a new password to the address that a person enters. */
export function forgotPasswordPages(app: App, { publicUrl }: PagesDeps): void {
  app.get('/forgot-password', pageRoute(), async (request, reply) =>
    (await readMailDelivery(request)) === 'none'
      ? sendPage(reply, notOffered)
      : showForm(request, reply),
  )

  app.post('/forgot-password', formRoute(), async (request, reply) => {
    requireOwnForm(request, publicUrl)
    const delivery = await readMailDelivery(request)
    if (delivery === 'none') return sendPage(reply, notOffered)
    await request.core.accounts.requestPasswordReset({ email: field(request, 'email') ?? '' })
    return sendPage(reply, mailPage('If an account has this address', delivery))
  })

  function showForm(request: FastifyRequest, reply: FastifyReply): FastifyReply {
    const content = html`
<h1>Set a new password</h1>
<p>Enter your e-mail address. A mail with a link follows.</p>
${addressForm('/forgot-password', formToken(request, reply, publicUrl))}`
    return sendPage(reply, { title: 'Set a new password', content })
  }
}

const notOffered = {
  title: 'Set a new password',
  status: 404,
  content: html`<h1>Ask the operator</h1><p>This service sends no mail. Its operator can give you a link to set a new password.</p><a class="button quiet" href="/login">Back to the login</a>`,
}
