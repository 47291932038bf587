import type { FastifyReply, FastifyRequest } from 'fastify'
import { DomainError } from '../../proto/errors.ts'
import type { App } from '../http/app.ts'
import { type PagesDeps, field, formRoute, formToken, ownPath, requireOwnForm } from './forms.ts'
import { hidden, html, problem, sendPage } from '../http/page.ts'
import { loginSource, startSession } from './visitor.ts'

/**
 * A login through the provider that still needs the password of the account with the same address.
 */
export interface WaitingLink {
  readonly linkToken: string
  readonly email: string
  readonly returnTo: string | undefined
  readonly wrong?: string | undefined
}

/**
 * An address from the provider does not open an existing account (docs/decisions/41.md): the person
 * confirms once with that account's password. Afterwards the provider's login opens it.
 */
export function linkPages(app: App, deps: PagesDeps, provider: string) {
  const { publicUrl, devices } = deps

  app.post('/login/provider/link', formRoute(), async (request, reply) => {
    requireOwnForm(request, publicUrl)
    const [linkToken, email, password] = ['link_token', 'email', 'password'].map(
      (name) => field(request, name) ?? '',
    )
    const form = { linkToken: linkToken ?? '', email: email ?? '', password: password ?? '' }
    const returnTo = ownPath(field(request, 'return_to'), publicUrl)
    try {
      const source = loginSource(request, form.email, deps)
      const { sessionToken } = await request.core.accounts.linkIdentity({ ...form, ...source })
      await startSession(request, reply, { sessionToken, publicUrl })
      devices.remember(request, reply, form.email)
      return reply.redirect(returnTo ?? '/app', 303)
    } catch (error) {
      if (!(error instanceof DomainError) || error.reason !== 'CREDENTIAL_INVALID') throw error
      request.reason = error.reason
      void reply.header('www-authenticate', 'Cookie realm="tollgate"')
      const { linkToken: token, email: address } = form
      const wrong = 'The password is wrong.'
      return ask(request, reply, { linkToken: token, email: address, returnTo, wrong })
    }
  })

  /** Sends the page that requests the password. */
  function ask(request: FastifyRequest, reply: FastifyReply, link: WaitingLink): FastifyReply {
    const csrfToken = formToken(request, reply, publicUrl)
    return sendPage(reply, {
      title: 'Connect your login',
      content: linkForm({ ...link, csrfToken, provider }),
      status: link.wrong === undefined ? 200 : 401,
    })
  }

  return { ask }
}

const linkForm = ({
  linkToken,
  email,
  returnTo,
  wrong,
  csrfToken,
  provider,
}: WaitingLink & { csrfToken: string; provider: string }) => html`
<h1>Is this account yours?</h1>
<p>An account with the address ${email} exists already. To log in to it through ${provider} from now on, enter the password of the account.</p>
${problem(wrong)}
<form method="post" action="/login/provider/link">
${hidden({ csrf_token: csrfToken, link_token: linkToken, email, return_to: returnTo })}
<label for="password">Password of the account</label>
<input id="password" name="password" type="password" autocomplete="current-password" required maxlength="200">
<button>Connect and log in</button>
</form>
<a class="button quiet" href="/login">Do not connect</a>
<p class="small">No password, or forgotten? <a href="/forgot-password">Set a new one</a>.</p>`
