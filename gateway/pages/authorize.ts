import type { FastifyReply, FastifyRequest } from 'fastify'
import { DomainError } from '../../proto/errors.ts'
import type { App } from '../http/listener.ts'
import {
  type AskedAuthorization,
  type Parameters,
  carried,
  parseAuthorization,
  textOf,
} from './authorization-request.ts'
import { type Visitor, field, parameter, posterOf, toLogin, visitorOf } from './forms.ts'
import { html } from './html.ts'
import { hidden, sendPage } from './page.ts'
import { type PagesDeps, formRoute, pageRoute } from './routes.ts'
import { scopeList } from './scopes.ts'

const authorizePath = '/api/v1/oidc/auth'
// More would not come back from the login page.
const queryMax = 7_000

/**
 * The authorization endpoint (RFC 6749 section 3.1): login when needed, consent when needed, then back with a code.
 * Until core has found the redirect URI registered, what is wrong is told on a page; afterwards at that URI.
 */
export function authorizePages(app: App, { publicUrl }: PagesDeps): void {
  const issuer = `${publicUrl}/api/v1/oidc`

  for (const path of [authorizePath, '/api/v1/oidc/authorize']) {
    app.get(path, pageRoute(), async (request, reply) => {
      for (const name of ['client_id', 'redirect_uri']) parameter(request, name)
      const parameters = parametersOf(request.query)
      const asked = parseAuthorization(parameters)
      const visitor = await visitorOf(request, publicUrl)
      const checked = await request.core.authorization.check({ ...asked, ...tokenOf(visitor) })
      const back = returning(reply, { asked, state: textOf(parameters, 'state'), status: 302 })
      const refusal =
        unsupported(parameters) ??
        (checked.error === '' ? null : { error: checked.error, says: checked.errorDescription })
      if (refusal) return back({ error: refusal.error, error_description: refusal.says })
      if (!visitor || mustLogIn(parameters, visitor)) {
        if (asked.prompt === 'none')
          return back({ error: 'login_required', error_description: 'the login is too old' })
        return toLogin(reply, afterLogin(parameters))
      }
      if (!checked.needsConsent) return back(await codeFor(request, visitor, asked))
      const theme = { name: checked.appName, color: checked.appColor }
      const content = consentForm({ visitor, theme, scopes: checked.scopes, parameters })
      return sendPage(reply, { title: 'Allow access', content, theme, leadsTo: asked.redirectUri })
    })
    acceptPosted(app, path)
  }

  app.post('/oidc/consent', formRoute(), async (request, reply) => {
    const visitor = await posterOf(request, publicUrl)
    const parameters = parametersOf(request.body)
    const asked = parseAuthorization(parameters)
    const { error, errorDescription } = await request.core.authorization.check({
      ...asked,
      prompt: undefined,
      sessionToken: visitor.token,
    })
    const back = returning(reply, { asked, state: textOf(parameters, 'state'), status: 303 })
    if (error !== '') return back({ error, error_description: errorDescription })
    const action = field(request, 'action')
    if (action === 'approve') return back(await codeFor(request, visitor, asked))
    if (action === 'deny')
      return back({ error: 'access_denied', error_description: 'the person said no' })
    throw new DomainError('REQUEST_INVALID', 'action must be approve or deny')
  })

  async function codeFor(
    request: FastifyRequest,
    visitor: Visitor,
    asked: AskedAuthorization,
  ): Promise<Record<string, string>> {
    try {
      const { code } = await request.core.authorization.grant({
        sessionToken: visitor.token,
        request: asked,
      })
      return { code }
    } catch (error) {
      if (!(error instanceof DomainError) || error.reason !== 'ACCESS_DENIED') throw error
      return { error: 'access_denied', error_description: error.message }
    }
  }

  /** Back to the redirect URI, with the state as it came and the issuer (RFC 9207). */
  function returning(
    reply: FastifyReply,
    {
      asked,
      state,
      status,
    }: { asked: AskedAuthorization; state: string | undefined; status: number },
  ) {
    return (answer: Readonly<Record<string, string>>): FastifyReply => {
      const query = new URLSearchParams({
        ...answer,
        ...(state === undefined ? {} : { state }),
        iss: issuer,
      })
      const uri = asked.redirectUri
      return reply.redirect(`${uri}${uri.includes('?') ? '&' : '?'}${query.toString()}`, status)
    }
  }
}

// OpenID Connect Core section 3.1.2.1. A form of another site brings no cookie (SameSite=Lax); as a GET it does.
function acceptPosted(app: App, path: string): void {
  app.post(path, formRoute(), async (request, reply) => {
    const query = queryOf(parametersOf(request.body))
    if (query.length > queryMax) throw new DomainError('REQUEST_INVALID', 'the request is too long')
    return reply.redirect(`${path}?${query}`, 303)
  })
}

const parametersOf = (value: unknown): Parameters =>
  typeof value === 'object' && value !== null ? Object.fromEntries(Object.entries(value)) : {}

const tokenOf = (visitor: Visitor | null) => (visitor ? { sessionToken: visitor.token } : {})

/** What this issuer does not do, and parameters that were given twice. */
function unsupported(parameters: Parameters): { error: string; says: string } | null {
  const twice = Object.keys(parameters).find((name) => Array.isArray(parameters[name]))
  if (twice !== undefined)
    return {
      error: 'invalid_request',
      says: `${twice.replace(/[^\w.-]/g, '?').slice(0, 64)} is given twice`,
    }
  if (textOf(parameters, 'request') !== undefined)
    return { error: 'request_not_supported', says: 'send the parameters themselves' }
  if (textOf(parameters, 'request_uri') !== undefined)
    return { error: 'request_uri_not_supported', says: 'send the parameters themselves' }
  if ((textOf(parameters, 'response_mode') ?? 'query') !== 'query')
    return { error: 'invalid_request', says: 'response_mode must be query' }
  if (!/^\d{0,9}$/.test(textOf(parameters, 'max_age') ?? ''))
    return { error: 'invalid_request', says: 'max_age must be seconds' }
  return null
}

const again = new Set(['login', 'select_account'])

/** The application wants a login that is new, or not older than max_age (OpenID Connect Core section 3.1.2.1). */
function mustLogIn(parameters: Parameters, { authTime }: Visitor): boolean {
  const maxAge = textOf(parameters, 'max_age')
  const isOld = maxAge !== undefined && Date.now() - authTime.getTime() > Number(maxAge) * 1_000
  return (
    isOld || (textOf(parameters, 'prompt') ?? '').split(' ').some((prompt) => again.has(prompt))
  )
}

/** The same request without what asked for this login, which would ask for ever. */
function afterLogin(parameters: Parameters): string {
  const { prompt, ...rest } = carried(parameters)
  const left = (prompt ?? '')
    .split(' ')
    .filter((word) => word !== '' && !again.has(word))
    .join(' ')
  return `${authorizePath}?${queryOf({ ...rest, prompt: left === '' ? undefined : left })}`
}

function queryOf(parameters: Parameters): string {
  const query = new URLSearchParams()
  for (const [name, value] of Object.entries(parameters))
    if (typeof value === 'string') query.set(name, value)
  return query.toString()
}

interface Consent {
  readonly visitor: Visitor
  readonly theme: { readonly name: string }
  readonly scopes: readonly string[]
  readonly parameters: Parameters
}

const consentForm = ({ visitor, theme, scopes, parameters }: Consent) => html`
<h1>Allow ${theme.name} to act for you?</h1>
<p>You are logged in as ${visitor.email}. ${theme.name} asks to:</p>
${scopeList(scopes)}
<form method="post" action="/oidc/consent">
${hidden({ ...carried(parameters), csrf_token: visitor.csrfToken })}
<button name="action" value="approve">Allow</button>
<button name="action" value="deny" class="quiet">Do not allow</button>
</form>`
