import '@fastify/cookie'
import type { FastifyRequest } from 'fastify'
import { equalSecrets } from '../../core/lib/crypto.ts'
import { DomainError } from '../../proto/errors.ts'

/** The name that a cookie has here: under https `__Host-` binds it to this very host and to TLS (decision 16). */
export const hostCookieName = (name: string, publicUrl: string): string =>
  publicUrl.startsWith('https:') ? `__Host-${name}` : name

const sessionName = 'tollgate_session'
const tokenSyntax = /^[A-Za-z0-9_-]{43}$/

/** The dashboard session's token in the request's cookie; undefined when there is none. */
export function sessionOf(request: FastifyRequest, publicUrl: string): string | undefined {
  const value = readCookie(request, sessionName, publicUrl)
  return value !== undefined && tokenSyntax.test(value) ? value : undefined
}

/** One cookie of the request. Undefined when its name is there twice, because one of the two may be planted. */
export function readCookie(
  request: FastifyRequest,
  name: string,
  publicUrl: string,
): string | undefined {
  const header = request.headers.cookie
  if (header === undefined) return undefined
  const fullName = hostCookieName(name, publicUrl)
  const occurrences = header.match(new RegExp(`(?:^|;)\\s*${fullName}\\s*=`, 'g')) ?? []
  return occurrences.length === 1 ? request.server.parseCookie(header)[fullName] : undefined
}

/** A Set-Cookie value: HttpOnly, SameSite=Lax, whole site; without `maxAge` it lives as long as the browser. */
export function setCookie(
  name: string,
  value: string,
  { publicUrl, maxAge }: { publicUrl: string; maxAge?: number },
): string {
  const secure = publicUrl.startsWith('https:') ? '; Secure' : ''
  const age = maxAge === undefined ? '' : `; Max-Age=${maxAge}`
  return `${hostCookieName(name, publicUrl)}=${value}; Path=/; HttpOnly; SameSite=Lax${secure}${age}`
}

export const sessionCookie = (
  token: string,
  options: { publicUrl: string; maxAge: number },
): string => setCookie(sessionName, token, options)

export const endedSessionCookie = (publicUrl: string): string =>
  setCookie(sessionName, '', { publicUrl, maxAge: 0 })

const safeMethods = new Set(['GET', 'HEAD', 'OPTIONS'])

const loopbackNames = ['localhost', '127.0.0.1', '[::1]']

/**
 * The origins at which our own pages are: PUBLIC_URL's, and where that is this machine by http, the same port under its
 * other names.
 */
export function ownOrigins(publicUrl: string): string[] {
  const { origin, protocol, hostname, port } = new URL(publicUrl)
  if (protocol !== 'http:' || !loopbackNames.includes(hostname)) return [origin]
  return loopbackNames.map((name) => `http://${name}${port && `:${port}`}`)
}

/** Whether one of our pages sent the request: the browser says which, and that it asked this very host. */
function isOwnPage({ headers: { origin, host } }: FastifyRequest, publicUrl: string): boolean {
  if (origin === undefined) return false
  if (origin === new URL(publicUrl).origin) return true
  return ownOrigins(publicUrl).includes(origin) && origin === `http://${host}`
}

export interface SameOrigin {
  readonly publicUrl: string
  /** The token of the session, or of the form's cookie. */
  readonly csrfToken: string
  /** The field csrf_token, where there is a form. */
  readonly formToken?: string | undefined
}

/**
 * For requests that a cookie authenticates: a request that changes something must come from our own pages (decision 16)
 * and bring the right X-CSRF-Token header or csrf_token field. EDIT_FORBIDDEN otherwise.
 */
export function requireSameOrigin(
  request: FastifyRequest,
  { publicUrl, csrfToken, formToken }: SameOrigin,
): void {
  if (safeMethods.has(request.method)) return
  if (!isOwnPage(request, publicUrl)) {
    throw new DomainError('EDIT_FORBIDDEN', 'this request did not come from this site')
  }
  const header = request.headers['x-csrf-token']
  const token = typeof header === 'string' ? header : formToken
  if (token === undefined || !equalSecrets(token, csrfToken)) {
    throw new DomainError('EDIT_FORBIDDEN', "send the session's CSRF token; load the page again")
  }
}
