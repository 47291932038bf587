import type { FastifyReply, FastifyRequest } from 'fastify'
import type { App } from '../http/listener.ts'
import { endedSessionCookie } from '../auth/session.ts'
import { type Visitor, field, parameter, posterOf, visitorOf } from './forms.ts'
import { html } from './html.ts'
import { hidden, sendPage } from './page.ts'
import { type PagesDeps, formRoute, pageRoute } from './routes.ts'

const path = '/api/v1/oidc/session/end'
const names = [
  'id_token_hint',
  'client_id',
  'post_logout_redirect_uri',
  'state',
  'logout_hint',
  'ui_locales',
] as const

type Asked = Readonly<Partial<Record<(typeof names)[number], string>>>

/** OpenID Connect RP-Initiated Logout 1.0. Without a valid hint for this very account a person is asked first. */
export function sessionEndPages(app: App, { publicUrl }: PagesDeps): void {
  app.get(path, pageRoute(), async (request, reply) => {
    const asked = collect((name) => parameter(request, name))
    const visitor = await visitorOf(request, publicUrl)
    const checked = await check(request, asked)
    if (visitor && !(checked.confirmed && checked.accountId === visitor.accountId)) {
      return sendPage(reply, {
        title: 'Log out',
        content: confirmation({ visitor, asked, appName: checked.appName }),
        leadsTo: checked.postLogoutRedirectUri,
      })
    }
    return leave(request, reply, { visitor, to: checked.postLogoutRedirectUri, state: asked.state })
  })

  // A form of another site brings no cookie (SameSite=Lax); as a GET of its own it does.
  app.post(path, formRoute(), async (request, reply) => {
    const query = new URLSearchParams({ ...collect((name) => field(request, name)) })
    return reply.redirect(`${path}?${query.toString()}`, 303)
  })

  app.post('/oidc/logout', formRoute(), async (request, reply) => {
    const visitor = await posterOf(request, publicUrl)
    const asked = collect((name) => field(request, name))
    const checked = await check(request, asked)
    return leave(request, reply, { visitor, to: checked.postLogoutRedirectUri, state: asked.state })
  })

  const check = (request: FastifyRequest, asked: Asked) =>
    request.core.authorization.checkLogout({
      idTokenHint: asked.id_token_hint,
      clientId: asked.client_id,
      postLogoutRedirectUri: asked.post_logout_redirect_uri,
    })

  async function leave(
    request: FastifyRequest,
    reply: FastifyReply,
    { visitor, to, state }: Leaving,
  ): Promise<FastifyReply> {
    if (visitor) await request.core.accounts.logOut({ sessionToken: visitor.token })
    void reply.header('set-cookie', endedSessionCookie(publicUrl))
    if (to === undefined) return sendPage(reply, loggedOut)
    const query =
      state === undefined
        ? ''
        : `${to.includes('?') ? '&' : '?'}${new URLSearchParams({ state }).toString()}`
    return reply.redirect(`${to}${query}`, 303)
  }
}

interface Leaving {
  readonly visitor: Visitor | null
  readonly to: string | undefined
  readonly state: string | undefined
}

const collect = (read: (name: (typeof names)[number]) => string | undefined): Asked =>
  Object.fromEntries(
    names.flatMap((name) => {
      const value = read(name)
      return value === undefined ? [] : [[name, value]]
    }),
  )

const confirmation = ({
  visitor,
  asked,
  appName,
}: {
  visitor: Visitor
  asked: Asked
  appName: string
}) => html`
<h1>Log out?</h1>
<p>${appName === '' ? 'You were sent here to log out.' : `${appName} sent you here to log out.`} You are logged in as ${visitor.email}.</p>
<form method="post" action="/oidc/logout">
${hidden({ ...asked, csrf_token: visitor.csrfToken })}
<button>Log out</button>
</form>
<a class="button quiet" href="/login">Stay logged in</a>`

const loggedOut = {
  title: 'Logged out',
  content: html`<h1>You are logged out</h1><p>You can close this page.</p>`,
}
