import type { FastifyReply, FastifyRequest } from 'fastify'
import { endedSessionCookie } from '../auth/session.ts'
import type { App } from '../http/app.ts'
import { type PagesDeps, field, formRoute, pageRoute, parameter } from './forms.ts'
import { hidden, html, sendPage } from '../http/page.ts'
import { type Visitor, readSender, readVisitor } from './visitor.ts'

const path = '/api/v1/oidc/session/end'
const names = [
  'id_token_hint',
  'client_id',
  'post_logout_redirect_uri',
  'state',
  'logout_hint',
  'ui_locales',
] as const

type LogoutRequest = Readonly<Partial<Record<(typeof names)[number], string>>>

/**
 * OpenID Connect RP-Initiated Logout 1.0. Without a valid hint for this account, the person must
 * confirm.
 */
export function logoutPages(app: App, { publicUrl }: PagesDeps): void {
  app.get(path, pageRoute(), async (request, reply) => {
    const logout = collect((name) => parameter(request, name))
    const visitor = await readVisitor(request, publicUrl)
    const checked = await check(request, logout)
    if (visitor && !(checked.confirmed && checked.accountId === visitor.accountId)) {
      return sendPage(reply, {
        title: 'Log out',
        content: confirmation({ visitor, logout, appName: checked.appName }),
        leadsTo: checked.postLogoutRedirectUri,
      })
    }
    return logOut(request, reply, {
      visitor,
      to: checked.postLogoutRedirectUri,
      state: logout.state,
    })
  })

  // A form on another site sends no cookie (SameSite=Lax); the GET after the redirect does.
  app.post(path, formRoute(), async (request, reply) => {
    const query = new URLSearchParams({ ...collect((name) => field(request, name)) })
    return reply.redirect(`${path}?${query.toString()}`, 303)
  })

  app.post('/oidc/logout', formRoute(), async (request, reply) => {
    const visitor = await readSender(request, publicUrl)
    const logout = collect((name) => field(request, name))
    const checked = await check(request, logout)
    return logOut(request, reply, {
      visitor,
      to: checked.postLogoutRedirectUri,
      state: logout.state,
    })
  })

  const check = (request: FastifyRequest, logout: LogoutRequest) =>
    request.core.authorization.checkLogout({
      idTokenHint: logout.id_token_hint,
      clientId: logout.client_id,
      postLogoutRedirectUri: logout.post_logout_redirect_uri,
    })

  async function logOut(
    request: FastifyRequest,
    reply: FastifyReply,
    { visitor, to, state }: LogoutEnd,
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

interface LogoutEnd {
  readonly visitor: Visitor | null
  readonly to: string | undefined
  readonly state: string | undefined
}

const collect = (read: (name: (typeof names)[number]) => string | undefined): LogoutRequest =>
  Object.fromEntries(
    names.flatMap((name) => {
      const value = read(name)
      return value === undefined ? [] : [[name, value]]
    }),
  )

const confirmation = ({
  visitor,
  logout,
  appName,
}: {
  visitor: Visitor
  logout: LogoutRequest
  appName: string
}) => html`
<h1>Log out?</h1>
<p>${appName === '' ? 'You were sent here to log out.' : `${appName} sent you here to log out.`} You are logged in as ${visitor.email}.</p>
<form method="post" action="/oidc/logout">
${hidden({ ...logout, csrf_token: visitor.csrfToken })}
<button>Log out</button>
</form>
<a class="button quiet" href="/login">Stay logged in</a>`

const loggedOut = {
  title: 'Logged out',
  content: html`<h1>You are logged out</h1><p>You can close this page.</p>`,
}
