import { randomBytes } from 'node:crypto'
import type { FastifyRequest } from 'fastify'
import { equalSecrets } from '../../core/lib/crypto.ts'
import { DomainError } from '../../proto/errors.ts'
import { readCookie, setCookie } from '../auth/session.ts'
import type { App } from '../http/app.ts'
import { textMember } from '../http/body.ts'
import { type PagesDeps, ownPath, pageRoute, parameter } from './forms.ts'
import { type LoginSecrets, createProvider } from './provider.ts'
import { startSession } from './visitor.ts'

const stateCookie = 'tollgate_login'
const stateSeconds = 600
const newToken = (): string => randomBytes(32).toString('base64url')

/** Login through an outside OpenID provider. A cookie keeps what ties the provider's answer to this browser. */
export function providerPages(app: App, { publicUrl, loginProvider }: PagesDeps): void {
  if (!loginProvider) return
  const provider = createProvider(loginProvider, `${publicUrl}/login/provider/callback`)

  app.get('/login/provider', pageRoute(), async (request, reply) => {
    const login: PendingLogin = {
      state: newToken(),
      nonce: newToken(),
      verifier: newToken(),
      returnTo: ownPath(parameter(request, 'return_to'), publicUrl),
    }
    const url = await provider.authorizationUrl(login)
    const value = Buffer.from(JSON.stringify(login)).toString('base64url')
    void reply.header(
      'set-cookie',
      setCookie(stateCookie, value, { publicUrl, maxAge: stateSeconds }),
    )
    return reply.redirect(url, 303)
  })

  app.get('/login/provider/callback', pageRoute(), async (request, reply) => {
    const login = pendingLogin(request, publicUrl)
    void reply.header('set-cookie', setCookie(stateCookie, '', { publicUrl, maxAge: 0 }))
    const iss = parameter(request, 'iss')
    const isOurs = login !== null && equalSecrets(parameter(request, 'state') ?? '', login.state)
    // RFC 9207 section 2.4: an answer of another issuer is a mix-up.
    if (!isOurs || (iss !== undefined && iss !== (await provider.issuerName()))) {
      throw new DomainError(
        'REQUEST_INVALID',
        'this login was not begun here, or is too old; begin again',
      )
    }
    const code = parameter(request, 'code')
    if (code === undefined)
      throw new DomainError('ACCESS_DENIED', 'the login provider did not log you in')
    const answer = { code, state: login.state, ...(iss === undefined ? {} : { iss }) }
    const identity = await provider.identify(new URLSearchParams(answer), login)
    const { sessionToken } = await request.core.accounts.logInWithIdentity({ ...identity })
    await startSession(request, reply, { sessionToken, publicUrl })
    return reply.redirect(ownPath(login.returnTo, publicUrl) ?? '/login', 303)
  })
}

interface PendingLogin extends LoginSecrets {
  readonly returnTo: string | undefined
}

/** The login that this browser began; null when its cookie is absent or holds anything else. */
function pendingLogin(request: FastifyRequest, publicUrl: string): PendingLogin | null {
  const value = readCookie(request, stateCookie, publicUrl)
  const login =
    value === undefined ? null : parseJson(Buffer.from(value, 'base64url').toString('utf8'))
  const [state, nonce, verifier] = ['state', 'nonce', 'verifier'].map((name) =>
    textMember(login, name),
  )
  if (state === undefined || nonce === undefined || verifier === undefined) return null
  return { state, nonce, verifier, returnTo: textMember(login, 'returnTo') }
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return null
  }
}
