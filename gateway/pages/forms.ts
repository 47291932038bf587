import { randomBytes } from 'node:crypto'
import type { FastifyReply, FastifyRequest } from 'fastify'
import { DomainError } from '../../proto/errors.ts'
import { Type } from 'typebox'
import type { DeviceCookies } from '../auth/device-cookies.ts'
import { readCookie, requireSameOrigin, setCookie } from '../auth/session.ts'
import type { SignedValues } from '../auth/signed-values.ts'
import { textMember } from '../http/body.ts'
import type { RouteRules } from '../http/route.ts'
import type { Counters } from '../limits/counters.ts'
import type { LoginProviderConfig } from './config.ts'

/** Dependencies shared by all pages. */

export interface PagesDeps {
  readonly publicUrl: string
  readonly loginProvider?: LoginProviderConfig | undefined
  readonly devices: DeviceCookies
  readonly counters: Counters
  readonly trustedProxyHops: number
  /** Signs the state of logins through the provider. */
  readonly loginStates: SignedValues
  /** Port of this process's metrics, undefined if it has none. */
  readonly adminPort?: number | undefined
  /** Whether core runs the simulated payment processor, whose pages are here. */
  readonly hasSimulatedProcessor?: boolean | undefined
}

const none = { kind: 'none' } as const

// The OpenAPI document describes the API and does not list pages.
export const pageRoute = (): { config: { rules: RouteRules }; schema: { hide: true } } => ({
  config: { rules: { guard: none } },
  schema: { hide: true },
})

const Password = Type.Optional(Type.String({ format: 'password' }))
const FormBody = Type.Object(
  { password: Password, repeated: Password },
  { additionalProperties: Type.String() },
)

export const formRoute = () => ({
  config: { rules: { guard: none, accepts: 'form', limit: 'login' } satisfies RouteRules },
  schema: { hide: true, body: FormBody },
})

const formCookie = 'tollgate_form'
const tokenSyntax = /^[A-Za-z0-9_-]{43}$/
const pathMax = 8_000

/**
 * Returns the CSRF token for forms without a session. The cookie and the form hold the same value,
 * and another site can neither read, set nor guess the cookie.
 */
export function formToken(request: FastifyRequest, reply: FastifyReply, publicUrl: string): string {
  const current = readCookie(request, formCookie, publicUrl)
  if (current !== undefined && tokenSyntax.test(current)) return current
  const token = randomBytes(32).toString('base64url')
  void reply.header('set-cookie', setCookie(formCookie, token, { publicUrl }))
  return token
}

/** Throws EDIT_FORBIDDEN unless the form comes from this site and its token matches the cookie. */
export function requireOwnForm(request: FastifyRequest, publicUrl: string): void {
  const csrfToken = readCookie(request, formCookie, publicUrl) ?? ''
  if (!tokenSyntax.test(csrfToken)) {
    throw new DomainError(
      'EDIT_FORBIDDEN',
      'the form has expired, or cookies are off; load the page again',
    )
  }
  requireSameOrigin(request, { publicUrl, csrfToken, formToken: field(request, 'csrf_token') })
}

/** Returns a field of the form, undefined if it is absent. */
export const field = (request: FastifyRequest, name: string): string | undefined =>
  textMember(request.body, name)

/**
 * Returns a query parameter. Throws REQUEST_INVALID if it is repeated. Blank counts as absent
 * (RFC 6749 section 3.1).
 */
export function parameter(request: FastifyRequest, name: string): string | undefined {
  const query: unknown = request.query
  const value: unknown =
    typeof query === 'object' && query !== null
      ? Object.getOwnPropertyDescriptor(query, name)?.value
      : undefined
  if (Array.isArray(value)) throw new DomainError('REQUEST_INVALID', `${name} is given twice`)
  return typeof value === 'string' && value !== '' ? value : undefined
}

/**
 * Returns path and query of a page on this site; undefined for any text that could lead a browser
 * to another site.
 */
export function ownPath(text: string | undefined, publicUrl: string): string | undefined {
  if (
    text === undefined ||
    text.length > pathMax ||
    !/^\/(?![/\\])[\x21-\x7e]*$/.test(text) ||
    text.includes('\\')
  )
    return undefined
  const site = new URL(publicUrl)
  if (!URL.canParse(text, site.origin)) return undefined
  const { origin, pathname, search } = new URL(text, site.origin)
  return origin === site.origin && !pathname.startsWith('//') ? pathname + search : undefined
}
