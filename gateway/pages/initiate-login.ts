import type { FastifyReply } from 'fastify'
import { fingerprint } from '../../core/lib/crypto.ts'
import { DomainError } from '../../proto/errors.ts'
import { readCookie, setCookie } from '../auth/session.ts'
import type { App } from '../http/app.ts'
import { type PagesDeps, pageRoute, parameter } from './forms.ts'

const skipCookie = 'tollgate_initiated'
const skipSeconds = 120
const hintMax = 320

/**
 * Sends a person who connects a device to the application's own login first (OpenID Connect Core
 * section 4): only to the registered address, and then back to the verification page.
 */
export function initiateLoginPages(app: App, { publicUrl }: PagesDeps): void {
  const issuer = `${publicUrl}/api/v1/oidc`

  app.get('/oidc/device/initiate-login', pageRoute(), async (request, reply) => {
    const clientId = parameter(request, 'client_id') ?? ''
    const target = devicePage(parameter(request, 'target_link_uri'), publicUrl)
    const hint = parameter(request, 'login_hint')?.slice(0, hintMax)
    const { initiateLoginUri } = await request.core.authorization.getInitiateLogin({ clientId })
    const destination = fingerprint(`${clientId} ${target}`)
    // A browser that returns within two minutes came back without a login; redirecting again would
    // loop.
    if (readCookie(request, skipCookie, publicUrl) === destination)
      return reply.redirect(target, 302)
    void reply.header(
      'set-cookie',
      setCookie(skipCookie, destination, { publicUrl, maxAge: skipSeconds }),
    )
    return redirectTo(reply, initiateLoginUri, {
      iss: issuer,
      target_link_uri: target,
      ...(hint === undefined ? {} : { login_hint: hint }),
    })
  })
}

/**
 * Returns the parameter if it is an address of our verification page. Throws REQUEST_INVALID
 * otherwise.
 */
function devicePage(text: string | undefined, publicUrl: string): string {
  const url = text !== undefined && URL.canParse(text) ? new URL(text) : null
  const isOurs =
    url !== null && url.origin === new URL(publicUrl).origin && url.pathname === '/oidc/device'
  if (
    !isOurs ||
    url.hash !== '' ||
    url.username !== '' ||
    url.password !== '' ||
    url.href.length > 2_000
  ) {
    throw new DomainError('REQUEST_INVALID', `target_link_uri must be ${publicUrl}/oidc/device`)
  }
  return url.href
}

function redirectTo(
  reply: FastifyReply,
  uri: string,
  parameters: Readonly<Record<string, string>>,
): FastifyReply {
  const query = new URLSearchParams(parameters).toString()
  return reply.redirect(`${uri}${uri.includes('?') ? '&' : '?'}${query}`, 302)
}
