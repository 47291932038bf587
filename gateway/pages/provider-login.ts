import { randomBytes } from 'node:crypto'
import type { FastifyRequest } from 'fastify'
import { equalSecrets } from '../../core/lib/crypto.ts'
import { DomainError } from '../../proto/errors.ts'
import { readCookie, setCookie } from '../auth/session.ts'
import type { SignedValues } from '../auth/signed-values.ts'
import type { App } from '../http/app.ts'
import { parseJson } from '../../core/lib/json.ts'
import { textMember } from '../http/body.ts'
import { type PagesDeps, ownPath, pageRoute, parameter } from './forms.ts'
import { linkPages } from './link-identity.ts'
import { type LoginSecrets, createProvider } from './provider.ts'
import { startSession } from './visitor.ts'

const stateCookie = 'tollgate_login'
const stateSeconds = 600
const newToken = (): string => randomBytes(32).toString('base64url')

/**
 * Login through an external OpenID provider. A signed cookie binds the provider's answer to this
 * browser; core accepts each state once.
 */
export function providerPages(app: App, deps: PagesDeps): void {
  const { publicUrl, loginProvider, loginStates, devices } = deps
  if (!loginProvider) return
  const provider = createProvider(loginProvider, `${publicUrl}/login/provider/callback`)
  const links = linkPages(app, deps, loginProvider.name)

  app.get('/login/provider', pageRoute(), async (request, reply) => {
    const login: PendingLogin = {
      state: newToken(),
      nonce: newToken(),
      verifier: newToken(),
      returnTo: ownPath(parameter(request, 'return_to'), publicUrl),
    }
    const url = await provider.authorizationUrl(login)
    const value = loginStates.sign(JSON.stringify(login), stateSeconds)
    void reply.header(
      'set-cookie',
      setCookie(stateCookie, value, { publicUrl, maxAge: stateSeconds }),
    )
    return reply.redirect(url, 303)
  })

  app.get('/login/provider/callback', pageRoute(), async (request, reply) => {
    const login = pendingLogin(readCookie(request, stateCookie, publicUrl), loginStates)
    void reply.header('set-cookie', setCookie(stateCookie, '', { publicUrl, maxAge: 0 }))
    if (login === null) throw notStartedHere()
    const identity = await identify(request, login)
    const outcome = await request.core.accounts.logInWithIdentity({
      ...identity,
      state: login.state,
      deviceAccount: devices.deviceOf(request)?.account ?? '',
    })
    const { sessionToken, linkToken, linkEmail = '', session } = outcome
    const returnTo = ownPath(login.returnTo, publicUrl)
    if (linkToken !== undefined)
      return links.ask(request, reply, { linkToken, email: linkEmail, returnTo })
    await startSession(request, reply, { sessionToken, publicUrl })
    if (session?.account) devices.remember(request, reply, session.account.email)
    return reply.redirect(returnTo ?? '/app', 303)
  })

  /** Exchanges the provider's answer for the person's identity. */
  async function identify(request: FastifyRequest, login: PendingLogin) {
    const iss = parameter(request, 'iss')
    const isOurs = equalSecrets(parameter(request, 'state') ?? '', login.state)
    // RFC 9207 section 2.4: rejects an answer of another issuer.
    if (!isOurs || (iss !== undefined && iss !== (await provider.issuerName())))
      throw notStartedHere()
    const code = parameter(request, 'code')
    if (code === undefined)
      throw new DomainError('ACCESS_DENIED', 'the login provider did not log you in')
    const answer = { code, state: login.state, ...(iss === undefined ? {} : { iss }) }
    return provider.identify(new URLSearchParams(answer), login)
  }
}

const notStartedHere = (): DomainError =>
  new DomainError(
    'REQUEST_INVALID',
    'this login was not started in this browser, or has expired; start again',
  )

interface PendingLogin extends LoginSecrets {
  readonly returnTo: string | undefined
}

/**
 * Returns the login that this browser started; null if its cookie is missing, too old or not ours.
 */
function pendingLogin(cookie: string | undefined, loginStates: SignedValues): PendingLogin | null {
  const login = parseJson(loginStates.open(cookie ?? '') ?? '')
  const [state, nonce, verifier] = ['state', 'nonce', 'verifier'].map((name) =>
    textMember(login, name),
  )
  if (state === undefined || nonce === undefined || verifier === undefined) return null
  return { state, nonce, verifier, returnTo: textMember(login, 'returnTo') }
}
