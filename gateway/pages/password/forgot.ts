import type { FastifyReply, FastifyRequest } from 'fastify'
import type { App } from '../../http/app.ts'
import { hidden, html, sendPage } from '../../http/page.ts'
import { type PagesDeps, field, formRoute, formToken, pageRoute, requireOwnForm } from '../forms.ts'
import { readMailDelivery } from '../mail.ts'

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
    return sendPage(reply, delivery === 'page' ? requestedOnPage : requested)
  })

  function showForm(request: FastifyRequest, reply: FastifyReply): FastifyReply {
    const content = html`
<h1>Set a new password</h1>
<p>Enter your e-mail address. A mail with a link follows.</p>
<form method="post" action="/forgot-password">
${hidden({ csrf_token: formToken(request, reply, publicUrl) })}
<label for="email">E-mail address</label>
<input id="email" name="email" type="email" autocomplete="username" required maxlength="320">
<button>Send the mail</button>
</form>
<a class="button quiet" href="/login">Back to the login</a>`
    return sendPage(reply, { title: 'Set a new password', content })
  }
}

const title = 'Look at your mail'
const sent = html`
<h1>Look at your mail</h1>
<p>If an account has this address, a mail with a link is on its way. The link works once, for 30 minutes.</p>
<p class="small">No mail after a few minutes? Check the address and the folder for spam. An address gets at most five of these mails in an hour.</p>`

const requested = { title, content: sent }

const requestedOnPage = {
  title,
  content: html`${sent}
<p class="small">This trial service sends no mail. A platform admin sees the mail at <a href="/mail">/mail</a>.</p>`,
}

const notOffered = {
  title: 'Set a new password',
  status: 404,
  content: html`<h1>Ask the operator</h1><p>This service sends no mail. Its operator can give you a link to set a new password.</p><a class="button quiet" href="/login">Back to the login</a>`,
}
