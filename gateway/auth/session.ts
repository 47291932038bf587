import '@fastify/cookie'
import type { FastifyRequest } from 'fastify'
import { equalSecrets } from '../../core/lib/crypto.ts'
import { DomainError } from '../../proto/errors.ts'
import { ownOrigins } from '../http/cors.ts'

/**
 * Returns the full cookie name. Under https the prefix `__Host-` binds the cookie to this host and
 * to TLS (decision 16).
 */
export const hostCookieName = (name: string, publicUrl: string): string =>
  publicUrl.startsWith('https:') ? `__Host-${name}` : name

const sessionName = 'tollgate_session'
const tokenSyntax = /^[A-Za-z0-9_-]{43}$/

/**
 * Returns the dashboard session's token from the cookie, undefined if it is missing or malformed.
 */
export function readSession(request: FastifyRequest, publicUrl: string): string | undefined {
  const value = readCookie(request, sessionName, publicUrl)
  return value !== undefined && tokenSyntax.test(value) ? value : undefined
}

/** Returns one cookie. Undefined if the name occurs twice, because one of them may be planted. */
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

/**
 * Returns a Set-Cookie value: HttpOnly, SameSite=Lax, whole site. Without `maxAge` it is a session
 * cookie.
 */
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

/** Whether the request comes from our own pages, by its Origin and, on loopback, its Host. */
function isOwnPage({ headers: { origin, host } }: FastifyRequest, publicUrl: string): boolean {
  if (origin === undefined) return false
  if (origin === new URL(publicUrl).origin) return true
  return ownOrigins(publicUrl).includes(origin) && origin === `http://${host}`
}

export interface SameOrigin {
  readonly publicUrl: string
  /** The CSRF token of the session or of the form's cookie. */
  readonly csrfToken: string
  /** The form field csrf_token, if there is a form. */
  readonly formToken?: string | undefined
}

/**
 * For requests authenticated by a cookie. A request that changes something must come from our own
 * pages (decision 16) and carry the right X-CSRF-Token header or csrf_token field. Throws
 * EDIT_FORBIDDEN otherwise.
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
