import { hash, randomBytes } from 'node:crypto'
import type { FastifyRequest } from 'fastify'
import { equalSecrets } from '../../core/lib/crypto.ts'
import { DomainError } from '../../proto/errors.ts'
import { textMember } from '../http/body.ts'
import type { App } from '../http/listener.ts'
import { cookieName, cookieOf, sessionCookie, sessionOf, setCookie } from '../auth/session.ts'
import { ownPath, parameter } from './forms.ts'
import { createProvider } from './provider.ts'
import { type PagesDeps, pageRoute, sessionMaxAge } from './routes.ts'

const stateCookie = 'tollgate_login'
const stateSeconds = 600
const newToken = (): string => randomBytes(32).toString('base64url')

/** Logging in through an outside OpenID provider; what ties answer and question together is in a cookie. */
export function providerPages(app: App, { publicUrl, loginProvider }: PagesDeps): void {
  if (!loginProvider) return
  const provider = createProvider(loginProvider, `${publicUrl}/login/provider/callback`)

  app.get('/login/provider', pageRoute(), async (request, reply) => {
    const kept = {
      state: newToken(),
      nonce: newToken(),
      verifier: newToken(),
      returnTo: ownPath(parameter(request, 'return_to'), publicUrl),
    }
    const challenge = hash('sha256', kept.verifier, 'base64url')
    const url = await provider.authorizationUrl({ ...kept, challenge })
    const value = Buffer.from(JSON.stringify(kept)).toString('base64url')
    void reply.header(
      'set-cookie',
      setCookie(stateCookie, value, { publicUrl, maxAge: stateSeconds }),
    )
    return reply.redirect(url, 303)
  })

  app.get('/login/provider/callback', pageRoute(), async (request, reply) => {
    const kept = keptOf(request)
    void reply.header('set-cookie', setCookie(stateCookie, '', { publicUrl, maxAge: 0 }))
    const iss = parameter(request, 'iss')
    // RFC 9207 section 2.4: an answer of another issuer is a mix-up.
    if (
      !kept ||
      !equalSecrets(parameter(request, 'state') ?? '', kept.state) ||
      (iss ?? provider.issuer()) !== provider.issuer()
    ) {
      throw new DomainError(
        'REQUEST_INVALID',
        'this login was not begun here, or is too old; begin again',
      )
    }
    const code = parameter(request, 'code')
    if (code === undefined)
      throw new DomainError('ACCESS_DENIED', 'the login provider did not log you in')
    const identity = await provider.identify({ code, verifier: kept.verifier, nonce: kept.nonce })
    const { sessionToken } = await request.core.accounts.logInWithIdentity(identity)
    const old = sessionOf(request, publicUrl)
    if (old !== undefined) await request.core.accounts.logOut({ sessionToken: old })
    void reply.header(
      'set-cookie',
      sessionCookie(sessionToken, { publicUrl, maxAge: sessionMaxAge }),
    )
    return reply.redirect(ownPath(kept.returnTo, publicUrl) ?? '/login', 303)
  })

  function keptOf(request: FastifyRequest) {
    const value = cookieOf(request, cookieName(stateCookie, publicUrl))
    const kept =
      value === undefined ? null : parsed(Buffer.from(value, 'base64url').toString('utf8'))
    const [state, nonce, verifier] = ['state', 'nonce', 'verifier'].map((name) =>
      textMember(kept, name),
    )
    if (state === undefined || nonce === undefined || verifier === undefined) return null
    return { state, nonce, verifier, returnTo: textMember(kept, 'returnTo') }
  }
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return null
  }
}
