import type { FastifyReply, FastifyRequest } from 'fastify'
import { DomainError } from '../../../proto/errors.ts'
import { requireField } from '../../core/client.ts'
import { isUnknownCall } from '../../core/call-context.ts'
import type { App } from '../../http/app.ts'
import { hidden, html, problem, sendPage } from '../../http/page.ts'
import {
  type PagesDeps,
  field,
  formRoute,
  formToken,
  pageRoute,
  parameter,
  requireOwnForm,
} from '../forms.ts'
import { readMailDelivery } from '../mail.ts'
import { startSession } from '../visitor.ts'
import {
  addressForm,
  mailPage,
  passwordFields,
  passwordRule,
  passwordsDiffer,
  readLink,
} from './parts.ts'

/**
 * Returns which addresses may sign up: off, invitation or address. A core of an older release,
 * which does not know the call, has no sign-up.
 */
export async function readSignUp(request: FastifyRequest): Promise<string> {
  try {
    return (await request.core.accounts.getSignUp({})).mode
  } catch (error) {
    if (isUnknownCall(error)) return 'off'
    throw error
  }
}

/** Mails a link to the address that a person enters. The link creates the account and logs in. */
export function signUpPages(app: App, { publicUrl, devices }: PagesDeps): void {
  app.get('/sign-up', pageRoute(), async (request, reply) => {
    const token = parameter(request, 'token')
    if (token !== undefined) return showPerson(request, reply, { token })
    const mode = await readSignUp(request)
    if (mode === 'off') return sendPage(reply, notOffered)
    const content = html`
<h1>${title}</h1>
<p>Enter your e-mail address. A mail with a link follows.</p>
${mode === 'invitation' && html`<p>Only for people who were invited to an app, with the address of the invitation.</p>`}
${addressForm('/sign-up', formToken(request, reply, publicUrl))}`
    return sendPage(reply, { title, content })
  })

  app.post('/sign-up', formRoute(), async (request, reply) => {
    requireOwnForm(request, publicUrl)
    if ((await readSignUp(request)) === 'off') return sendPage(reply, notOffered)
    await request.core.accounts.requestSignUp({ email: field(request, 'email') ?? '' })
    const delivery = await readMailDelivery(request)
    return sendPage(reply, mailPage('If this address may sign up here', delivery))
  })

  app.post('/sign-up/complete', formRoute(), async (request, reply) => {
    requireOwnForm(request, publicUrl)
    const [token = '', name = '', password = ''] = ['token', 'name', 'password'].map(
      (key) => field(request, key) ?? '',
    )
    if (password !== field(request, 'repeated'))
      return showPerson(request, reply, { token, name, wrong: passwordsDiffer })
    try {
      const { sessionToken, session } = await request.core.accounts.completeSignUp({
        token,
        name,
        password,
      })
      const { account } = requireField(session, 'session')
      await startSession(request, reply, { sessionToken, publicUrl })
      devices.remember(request, reply, requireField(account, 'account').email)
      return reply.redirect(await findFirstView(request, sessionToken), 303)
    } catch (error) {
      if (!(error instanceof DomainError)) throw error
      if (error.reason === 'GRANT_INVALID') return sendPage(reply, oldLink)
      if (error.reason !== 'REQUEST_INVALID') throw error
      const wrong = error.message.startsWith('the password') ? passwordRule : nameRule
      return showPerson(request, reply, { token, name, wrong })
    }
  })

  /** Shows the form of an open link. */
  async function showPerson(
    request: FastifyRequest,
    reply: FastifyReply,
    { token, name = '', wrong }: { token: string; name?: string; wrong?: string },
  ): Promise<FastifyReply> {
    const link = await readLink(request.core.accounts.checkSignUp({ token }))
    if (link === null) return sendPage(reply, oldLink)
    const content = html`
<h1>${title}</h1>
<p>for ${link.email}</p>
<p>The password has at least 12 characters; an unusual combination of words is best.</p>
${problem(wrong)}
<form method="post" action="/sign-up/complete">
${hidden({ csrf_token: formToken(request, reply, publicUrl), token })}
<label for="name">Your name (may be empty)</label>
<input id="name" name="name" autocomplete="name" maxlength="100" value="${name}">
${passwordFields('Password')}
<button>Create the account</button>
</form>`
    return sendPage(reply, { title, content, status: wrong === undefined ? 200 : 400 })
  }
}

/** Returns where a new account begins: its invitations, a first app, or the dashboard. */
async function findFirstView(request: FastifyRequest, sessionToken: string): Promise<string> {
  const [{ invitations }, { canCreateApps }] = await Promise.all([
    request.core.accounts.listInvitations({ sessionToken }),
    request.core.accounts.getSession({ sessionToken }),
  ])
  if (invitations.length > 0) return '/invitations'
  return canCreateApps ? '/app/new' : '/app'
}

const title = 'Create an account'

const nameRule = 'The name has at most 100 characters.'

const oldLink = {
  title: 'Link used up',
  status: 400,
  content: html`<h1>This link is no longer valid</h1><p>It was used already, has expired, or its address has an account. Log in, or request a new link.</p><a class="button" href="/login">To the login</a><a class="button quiet" href="/sign-up">New link</a>`,
}

const notOffered = {
  title,
  status: 404,
  content: html`<h1>Ask the operator</h1><p>People cannot create accounts here themselves. The operator of this service makes them.</p><a class="button quiet" href="/login">Back to the login</a>`,
}
