import type { FastifyReply, FastifyRequest } from 'fastify'
import { DomainError } from '../../proto/errors.ts'
import { endedSessionCookie } from '../auth/session.ts'
import type { App } from '../http/app.ts'
import { type LoginDestination, findDestination } from './authorization-request.ts'
import {
  type PagesDeps,
  field,
  formRoute,
  formToken,
  ownPath,
  pageRoute,
  parameter,
  requireOwnForm,
} from './forms.ts'
import { invitationNote } from './invitations.ts'
import { readMailDelivery } from './mail.ts'
import { readSignUp } from './password/sign-up.ts'
import { hidden, html, problem, sendPage } from '../http/page.ts'
import { loginSource, readSender, startSession, readVisitor } from './visitor.ts'

/** Adds login with a password, and logout. */
export function loginPages(app: App, deps: PagesDeps): void {
  const { publicUrl, loginProvider, devices } = deps

  app.get('/login', pageRoute(), async (request, reply) => {
    const returnTo = ownPath(parameter(request, 'return_to'), publicUrl)
    const visitor = returnTo === undefined ? await readVisitor(request, publicUrl) : null
    if (visitor) {
      const { token: sessionToken } = visitor
      const { invitations } = await request.core.accounts.listInvitations({ sessionToken })
      const content = loggedIn({ ...visitor, invitations: invitations.length })
      return sendPage(reply, { title: 'Logged in', content })
    }
    return showForm(request, reply, { returnTo })
  })

  app.post('/login', formRoute(), async (request, reply) => {
    requireOwnForm(request, publicUrl)
    const returnTo = ownPath(field(request, 'return_to'), publicUrl)
    const email = field(request, 'email') ?? ''
    try {
      const { sessionToken } = await request.core.accounts.logIn({
        email,
        password: field(request, 'password') ?? '',
        ...loginSource(request, email, deps),
      })
      await startSession(request, reply, { sessionToken, publicUrl })
      devices.remember(request, reply, email)
      return reply.redirect(returnTo ?? '/app', 303)
    } catch (error) {
      if (!(error instanceof DomainError) || error.reason !== 'CREDENTIAL_INVALID') throw error
      request.reason = error.reason
      void reply.header('www-authenticate', 'Cookie realm="tollgate"')
      return showForm(request, reply, {
        returnTo,
        email,
        wrong: 'The e-mail address or the password is wrong.',
      })
    }
  })

  app.post('/logout', formRoute(), async (request, reply) => {
    const { token } = await readSender(request, publicUrl)
    await request.core.accounts.logOut({ sessionToken: token })
    void reply.header('set-cookie', endedSessionCookie(publicUrl))
    return sendPage(reply, {
      title: 'Logged out',
      content: html`<h1>You are logged out</h1><p>You can close this page.</p><a class="button quiet" href="/login">Log in again</a>`,
    })
  })

  app.post('/logout/everywhere', formRoute(), async (request, reply) => {
    const { token } = await readSender(request, publicUrl)
    await request.core.accounts.logOutEverywhere({ sessionToken: token })
    void reply.header('set-cookie', endedSessionCookie(publicUrl))
    return sendPage(reply, {
      title: 'Logged out everywhere',
      content: html`<h1>You are logged out everywhere</h1><p>This includes every browser and device that was logged in with your account.</p><a class="button quiet" href="/login">Log in again</a>`,
    })
  })

  async function showForm(
    request: FastifyRequest,
    reply: FastifyReply,
    form: LoginForm,
  ): Promise<FastifyReply> {
    const [destination, delivery, signUp] = await Promise.all([
      findDestination(request, form.returnTo),
      // Only links depend on these.
      readMailDelivery(request).catch(() => 'none'),
      readSignUp(request).catch(() => 'off'),
    ])
    const csrfToken = formToken(request, reply, publicUrl)
    const email = form.email ?? destination.loginHint
    const provider = loginProvider?.name
    const offers = { provider, hasMail: delivery !== 'none', hasSignUp: signUp !== 'off' }
    const content = loginForm({ ...form, ...destination, email, csrfToken, ...offers })
    return sendPage(reply, {
      title: 'Log in',
      content,
      ...destination,
      status: form.wrong === undefined ? 200 : 401,
    })
  }
}

interface LoginForm {
  readonly returnTo: string | undefined
  readonly email?: string | undefined
  readonly wrong?: string
}

interface LoginOffers {
  readonly csrfToken: string
  readonly provider: string | undefined
  /** Whether a mail can carry a link to set a new password. */
  readonly hasMail: boolean
  readonly hasSignUp: boolean
}

const loginForm = ({
  returnTo,
  email,
  wrong,
  csrfToken,
  theme,
  provider,
  hasMail,
  hasSignUp,
}: LoginForm & LoginDestination & LoginOffers) => html`
<h1>Log in</h1>
<p>${theme ? `to continue to ${theme.name}` : 'with your account'}</p>
${problem(wrong)}
<form method="post" action="/login">
${hidden({ csrf_token: csrfToken, return_to: returnTo })}
<label for="email">E-mail address</label>
<input id="email" name="email" type="email" autocomplete="username" required maxlength="320" value="${email ?? ''}">
<label for="password">Password</label>
<input id="password" name="password" type="password" autocomplete="current-password" required maxlength="200">
<button>Log in</button>
</form>
${
  provider !== undefined &&
  html`<p class="or">or</p>
<a class="button quiet" href="/login/provider${returnTo === undefined ? '' : `?return_to=${encodeURIComponent(returnTo)}`}">Continue with ${provider}</a>`
}
${
  hasMail
    ? html`<p class="small"><a href="/forgot-password">Forgot your password?</a></p>`
    : html`<p class="small">Password forgotten? The operator of this service can give you a link to set a new one.</p>`
}
${hasSignUp && html`<p class="small">No account? <a href="/sign-up">Create one</a></p>`}`

const loggedIn = ({
  email,
  csrfToken,
  invitations,
}: {
  email: string
  csrfToken: string
  invitations: number
}) => html`
<h1>You are logged in</h1>
<p>as ${email}</p>
${invitationNote(invitations)}
<a class="button" href="/app">Open the dashboard</a>
<form method="post" action="/logout">${hidden({ csrf_token: csrfToken })}<button class="quiet">Log out</button></form>
<form method="post" action="/logout/everywhere">${hidden({ csrf_token: csrfToken })}<button class="quiet">Log out everywhere</button></form>`
