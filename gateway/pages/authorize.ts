import type { FastifyReply, FastifyRequest } from 'fastify'
import { DomainError } from '../../proto/errors.ts'
import type { App } from '../http/app.ts'
import {
  type AuthorizationRequest,
  type Parameters,
  formFields,
  parseAuthorization,
  scopeList,
  readText,
} from './authorization-request.ts'
import { type PagesDeps, field, formRoute, pageRoute, parameter } from './forms.ts'
import { hidden, html, sendPage } from '../http/page.ts'
import { type Visitor, readSender, toLogin, readVisitor } from './visitor.ts'

const authorizePath = '/api/v1/oidc/auth'
// A longer query would not survive the redirects of the login page.
const queryMax = 7_000

/**
 * The authorization endpoint (RFC 6749 section 3.1): login and consent when needed, then a redirect
 * with a code. Errors are shown on a page until core has found the redirect URI registered, and
 * afterwards sent to that URI.
 */
export function authorizePages(app: App, { publicUrl }: PagesDeps): void {
  const issuer = `${publicUrl}/api/v1/oidc`
  for (const path of [authorizePath, '/api/v1/oidc/authorize']) {
    app.get(path, pageRoute(), async (request, reply) => {
      for (const name of ['client_id', 'redirect_uri']) parameter(request, name)
      const parameters = parametersOf(request.query)
      const visitor = await readVisitor(request, publicUrl)
      return authorize(request, reply, { issuer, parameters, visitor })
    })
    acceptForms(app, path)
  }

  app.post('/oidc/consent', formRoute(), async (request, reply) => {
    const visitor = await readSender(request, publicUrl)
    const parameters = parametersOf(request.body)
    return decide(request, reply, { issuer, parameters, visitor })
  })
}

interface PageRequest<V> {
  readonly issuer: string
  readonly parameters: Parameters
  readonly visitor: V
}

/** Answers an authorization request with an error, the login page, the consent page, or a code. */
async function authorize(
  request: FastifyRequest,
  reply: FastifyReply,
  { issuer, parameters, visitor }: PageRequest<Visitor | null>,
): Promise<FastifyReply> {
  const authorization = parseAuthorization(parameters)
  const session = visitor ? { sessionToken: visitor.token } : {}
  const checked = await request.core.authorization.checkAuthorization({
    ...authorization,
    ...session,
  })
  const back = createRedirect(reply, { issuer, authorization, parameters, status: 302 })
  const problem =
    unsupportedParameter(parameters) ??
    (checked.error === '' ? null : oauthError(checked.error, checked.errorDescription))
  if (problem) return back(problem)
  if (!visitor || mustLogIn(parameters, visitor)) {
    return authorization.prompt === 'none'
      ? back(oauthError('login_required', 'the login is older than max_age'))
      : toLogin(reply, afterLogin(parameters))
  }
  if (!checked.needsConsent)
    return back(await grantCode(request, visitor, { authorization, consented: false }))
  return askForConsent(reply, { visitor, authorization, checked, parameters })
}

function askForConsent(
  reply: FastifyReply,
  { visitor, authorization, checked, parameters }: Consent,
): FastifyReply {
  const theme = { name: checked.appName, color: checked.appColor }
  const content = consentForm({ visitor, checked, parameters })
  const leadsTo = authorization.redirectUri
  return sendPage(reply, { title: 'Allow access', content, theme, leadsTo })
}

/**
 * Answers the consent form with a code, the person's refusal, or the form again if the client has
 * changed.
 */
async function decide(
  request: FastifyRequest,
  reply: FastifyReply,
  { issuer, parameters, visitor }: PageRequest<Visitor>,
): Promise<FastifyReply> {
  const authorization = parseAuthorization(parameters)
  const checked = await request.core.authorization.checkAuthorization({
    ...authorization,
    prompt: undefined,
    sessionToken: visitor.token,
  })
  const back = createRedirect(reply, { issuer, authorization, parameters, status: 303 })
  const { error, errorDescription } = checked
  if (error !== '') return back(oauthError(error, errorDescription))
  const action = field(request, 'action')
  const clientVersion = field(request, 'client_version') ?? ''
  if (action === 'approve' && clientVersion !== checked.clientVersion)
    return askForConsent(reply, { visitor, authorization, checked, parameters })
  if (action === 'approve')
    return back(
      await grantCode(request, visitor, { authorization, consented: true, clientVersion }),
    )
  if (action === 'deny') return back(oauthError('access_denied', 'the user denied access'))
  throw new DomainError('REQUEST_INVALID', 'action must be approve or deny')
}

interface CodeRequest {
  readonly authorization: AuthorizationRequest
  readonly consented: boolean
  readonly clientVersion?: string
}

async function grantCode(
  request: FastifyRequest,
  visitor: Visitor,
  { authorization, ...consent }: CodeRequest,
): Promise<Record<string, string>> {
  try {
    const { code } = await request.core.authorization.grantAuthorization({
      sessionToken: visitor.token,
      request: authorization,
      ...consent,
    })
    return { code }
  } catch (error) {
    if (!(error instanceof DomainError) || error.reason !== 'ACCESS_DENIED') throw error
    return oauthError('access_denied', error.message)
  }
}

interface RedirectOptions {
  readonly issuer: string
  readonly authorization: AuthorizationRequest
  readonly parameters: Parameters
  readonly status: number
}

/**
 * Returns a function that redirects to the redirect URI, with the client's state and the issuer
 * (RFC 9207).
 */
function createRedirect(
  reply: FastifyReply,
  { issuer, authorization: { redirectUri }, parameters, status }: RedirectOptions,
) {
  const state = readText(parameters, 'state')
  return (answer: Readonly<Record<string, string>>): FastifyReply => {
    const query = new URLSearchParams({
      ...answer,
      ...(state === undefined ? {} : { state }),
      iss: issuer,
    })
    const separator = redirectUri.includes('?') ? '&' : '?'
    return reply.redirect(`${redirectUri}${separator}${query.toString()}`, status)
  }
}

const oauthError = (error: string, description: string) => ({
  error,
  error_description: description,
})

// OpenID Connect Core section 3.1.2.1. A form on another site sends no cookie (SameSite=Lax); the
// GET after the redirect does.
function acceptForms(app: App, path: string): void {
  app.post(path, formRoute(), async (request, reply) => {
    const query = queryOf(parametersOf(request.body))
    if (query.length > queryMax) throw new DomainError('REQUEST_INVALID', 'the request is too long')
    return reply.redirect(`${path}?${query}`, 303)
  })
}

const parametersOf = (value: unknown): Parameters =>
  typeof value === 'object' && value !== null ? Object.fromEntries(Object.entries(value)) : {}

/** Returns the error for a parameter that is unsupported or repeated. */
function unsupportedParameter(parameters: Parameters): Record<string, string> | null {
  const repeated = Object.keys(parameters).find((name) => Array.isArray(parameters[name]))
  if (repeated !== undefined) {
    const name = repeated.replace(/[^\w.-]/g, '?').slice(0, 64)
    return oauthError('invalid_request', `${name} is given twice`)
  }
  if (readText(parameters, 'request') !== undefined)
    return oauthError(
      'request_not_supported',
      'send the parameters themselves instead of request or request_uri',
    )
  if (readText(parameters, 'request_uri') !== undefined)
    return oauthError(
      'request_uri_not_supported',
      'send the parameters themselves instead of request or request_uri',
    )
  if ((readText(parameters, 'response_mode') ?? 'query') !== 'query')
    return oauthError('invalid_request', 'response_mode must be query')
  if (!/^\d{0,9}$/.test(readText(parameters, 'max_age') ?? ''))
    return oauthError('invalid_request', 'max_age must be a number of seconds')
  return null
}

const loginPrompts = new Set(['login', 'select_account'])

/**
 * Whether the application wants a new login, or one that is not older than max_age (OpenID Connect
 * Core section 3.1.2.1).
 */
function mustLogIn(parameters: Parameters, { authTime }: Visitor): boolean {
  const maxAge = readText(parameters, 'max_age')
  const isOld = maxAge !== undefined && Date.now() - authTime.getTime() > Number(maxAge) * 1_000
  return (
    isOld ||
    (readText(parameters, 'prompt') ?? '').split(' ').some((prompt) => loginPrompts.has(prompt))
  )
}

/**
 * Returns the same request without the prompts for a login, which would cause another login after
 * each one.
 */
function afterLogin(parameters: Parameters): string {
  const { prompt, ...rest } = formFields(parameters)
  const left = (prompt ?? '')
    .split(' ')
    .filter((word) => word !== '' && !loginPrompts.has(word))
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
  readonly authorization: AuthorizationRequest
  readonly checked: {
    readonly appName: string
    readonly appColor: string
    readonly scopes: readonly string[]
    readonly clientVersion: string
  }
  readonly parameters: Parameters
}

const consentForm = ({ visitor, checked, parameters }: Omit<Consent, 'authorization'>) => html`
<h1>Allow ${checked.appName} to act for you?</h1>
<p>You are logged in as ${visitor.email}. ${checked.appName} requests permission to:</p>
${scopeList(checked.scopes)}
<form method="post" action="/oidc/consent">
${hidden({ ...formFields(parameters), csrf_token: visitor.csrfToken, client_version: checked.clientVersion })}
<button name="action" value="approve">Allow</button>
<button name="action" value="deny" class="quiet">Do not allow</button>
</form>`
