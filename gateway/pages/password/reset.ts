import type { FastifyReply, FastifyRequest } from 'fastify'
import { DomainError } from '../../../proto/errors.ts'
import { endedSessionCookie } from '../../auth/session.ts'
import type { App } from '../../http/app.ts'
import {
  type PagesDeps,
  field,
  formRoute,
  formToken,
  pageRoute,
  parameter,
  requireOwnForm,
} from '../forms.ts'
import { hidden, html, problem, sendPage } from '../../http/page.ts'
import { passwordFields, passwordRule, passwordsDiffer, readLink } from './parts.ts'

/** Sets a new password with a one-time link, which a mail carries or an operator's command prints. */
export function resetPages(app: App, { publicUrl }: PagesDeps): void {
  app.get('/reset-password', pageRoute(), async (request, reply) => {
    const token = parameter(request, 'token')
    if (token === undefined) return sendPage(reply, noLink)
    const link = await readLink(request.core.accounts.checkPasswordReset({ token }))
    return link ? showForm(request, reply, { token }) : sendPage(reply, oldLink)
  })

  app.post('/reset-password', formRoute(), async (request, reply) => {
    requireOwnForm(request, publicUrl)
    const token = field(request, 'token') ?? ''
    const password = field(request, 'password') ?? ''
    if (password !== field(request, 'repeated'))
      return showForm(request, reply, { token, wrong: passwordsDiffer })
    try {
      await request.core.accounts.resetPassword({ token, password })
    } catch (error) {
      if (!(error instanceof DomainError)) throw error
      if (error.reason === 'REQUEST_INVALID')
        return showForm(request, reply, {
          token,
          wrong: passwordRule,
        })
      if (error.reason === 'GRANT_INVALID') return sendPage(reply, oldLink)
      throw error
    }
    void reply.header('set-cookie', endedSessionCookie(publicUrl))
    return sendPage(reply, changed)
  })

  function showForm(
    request: FastifyRequest,
    reply: FastifyReply,
    { token, wrong }: { token: string; wrong?: string },
  ): FastifyReply {
    const content = html`
<h1>Set a new password</h1>
<p>At least 12 characters; an unusual combination of words is best.</p>
${problem(wrong)}
<form method="post" action="/reset-password">
${hidden({ csrf_token: formToken(request, reply, publicUrl), token })}
${passwordFields('New password')}
<button>Set the password</button>
</form>`
    return sendPage(reply, {
      title: 'Set a new password',
      content,
      status: wrong === undefined ? 200 : 400,
    })
  }
}

const noLink = {
  title: 'Set a new password',
  status: 400,
  content: html`<h1>Open the whole link</h1><p>This address lacks the token of a one-time link. The login page and the operator of this service can give you a link.</p>`,
}

const oldLink = {
  title: 'Link used up',
  status: 400,
  content: html`<h1>This link is no longer valid</h1><p>It was used already, or has expired. Request a new one.</p><a class="button quiet" href="/login">To the login</a>`,
}

const changed = {
  title: 'Password set',
  content: html`<h1>Your password is set</h1><p>You were logged out everywhere.</p><a class="button" href="/login">Log in</a>`,
}
