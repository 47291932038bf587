import { equalSecrets } from '../../core/lib/crypto.ts'
import { DomainError } from '../../proto/errors.ts'

/** What is read of a request here; node's and Fastify's requests both have it. */
export interface WithHeaders {
  readonly method?: string | undefined
  readonly headers: Readonly<Record<string, string | string[] | undefined>>
}

/** Under https a cookie is bound to this very host and to TLS (decision 16). */
export const cookieName = (name: string, publicUrl: string): string =>
  publicUrl.startsWith('https:') ? `__Host-${name}` : name

const sessionName = 'tollgate_session'
const tokenSyntax = /^[A-Za-z0-9_-]{43}$/

/** The dashboard session's token that the request's cookie holds; undefined when it holds none. */
export function sessionOf(request: WithHeaders, publicUrl: string): string | undefined {
  const value = cookieOf(request, cookieName(sessionName, publicUrl))
  return value !== undefined && tokenSyntax.test(value) ? value : undefined
}

/** One cookie of the request. A name that stands twice is nobody's: the second may be planted. */
export function cookieOf({ headers }: WithHeaders, name: string): string | undefined {
  const line = [headers['cookie'] ?? ''].flat().join('; ')
  const values = line
    .split(';')
    .map((pair) => pair.trim())
    .filter((pair) => pair.startsWith(`${name}=`))
    .map((pair) => pair.slice(name.length + 1))
  return values.length === 1 ? values[0] : undefined
}

/** A Set-Cookie value: HttpOnly, SameSite=Lax, whole site; without `maxAge` it lives as long as the browser. */
export function setCookie(
  name: string,
  value: string,
  { publicUrl, maxAge }: { publicUrl: string; maxAge?: number },
): string {
  const secure = publicUrl.startsWith('https:') ? '; Secure' : ''
  const age = maxAge === undefined ? '' : `; Max-Age=${maxAge}`
  return `${cookieName(name, publicUrl)}=${value}; Path=/; HttpOnly; SameSite=Lax${secure}${age}`
}

export const sessionCookie = (
  token: string,
  options: { publicUrl: string; maxAge: number },
): string => setCookie(sessionName, token, options)

export const endedSessionCookie = (publicUrl: string): string =>
  setCookie(sessionName, '', { publicUrl, maxAge: 0 })

const changesNothing = new Set(['GET', 'HEAD', 'OPTIONS'])

export interface SameOrigin {
  readonly publicUrl: string
  /** The token that the session, or the form's cookie, has. */
  readonly csrfToken: string
  /** The form's csrf_token, where there is a form. */
  readonly posted?: string | undefined
}

/**
 * For requests that a cookie authenticates: what changes something must come from our own pages (decision 16), with
 * the right X-CSRF-Token header or csrf_token field. EDIT_FORBIDDEN otherwise.
 */
export function requireSameOrigin(
  request: WithHeaders,
  { publicUrl, csrfToken, posted }: SameOrigin,
): void {
  if (changesNothing.has(request.method ?? '')) return
  if (request.headers['origin'] !== new URL(publicUrl).origin) {
    throw new DomainError('EDIT_FORBIDDEN', 'this request did not come from this site')
  }
  const header = request.headers['x-csrf-token']
  const given = typeof header === 'string' ? header : posted
  if (given === undefined || !equalSecrets(given, csrfToken)) {
    throw new DomainError('EDIT_FORBIDDEN', "send the session's CSRF token; load the page again")
  }
}
