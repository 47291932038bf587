import { randomBytes } from 'node:crypto'
import type { FastifyReply, FastifyRequest } from 'fastify'
import { DomainError } from '../../proto/errors.ts'
import { textMember } from '../http/body.ts'
import { cookieName, cookieOf, requireSameOrigin, sessionOf, setCookie } from '../auth/session.ts'

const formCookie = 'tollgate_form'
const tokenSyntax = /^[A-Za-z0-9_-]{43}$/
const pathMax = 8_000

/**
 * The token for forms of people who have no session yet: the same value in a cookie and in the form. Another site
 * can neither read nor set the one nor guess the other.
 */
export function formToken(request: FastifyRequest, reply: FastifyReply, publicUrl: string): string {
  const held = cookieOf(request, cookieName(formCookie, publicUrl))
  if (held !== undefined && tokenSyntax.test(held)) return held
  const token = randomBytes(32).toString('base64url')
  void reply.header('set-cookie', setCookie(formCookie, token, { publicUrl }))
  return token
}

/** EDIT_FORBIDDEN unless the form is ours and the browser has the cookie that goes with it. */
export function requireOwnForm(request: FastifyRequest, publicUrl: string): void {
  const held = cookieOf(request, cookieName(formCookie, publicUrl)) ?? ''
  if (!tokenSyntax.test(held)) {
    throw new DomainError(
      'EDIT_FORBIDDEN',
      'the form is too old, or cookies are off; load the page again',
    )
  }
  requireSameOrigin(request, { publicUrl, csrfToken: held, posted: field(request, 'csrf_token') })
}

export const field = (request: FastifyRequest, name: string): string | undefined =>
  textMember(request.body, name)

/** A query parameter; REQUEST_INVALID when it is given twice. Blank counts as absent (RFC 6749 section 3.1). */
export function parameter(request: FastifyRequest, name: string): string | undefined {
  const query: unknown = request.query
  const value: unknown =
    typeof query === 'object' && query !== null
      ? Object.getOwnPropertyDescriptor(query, name)?.value
      : undefined
  if (Array.isArray(value)) throw new DomainError('REQUEST_INVALID', `${name} is given twice`)
  return typeof value === 'string' && value !== '' ? value : undefined
}

/** Path and query of a page of this site; undefined for anything that could lead elsewhere. */
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

export interface Visitor {
  readonly token: string
  readonly accountId: string
  readonly email: string
  readonly csrfToken: string
  readonly authTime: Date
}

/** Who has a live session; null for everybody else. */
export async function visitorOf(
  request: FastifyRequest,
  publicUrl: string,
): Promise<Visitor | null> {
  const token = sessionOf(request, publicUrl)
  if (token === undefined) return null
  try {
    const { session } = await request.core.accounts.session({ sessionToken: token })
    const account = session?.account
    if (!session || !account) throw new DomainError('INTERNAL', "core's answer lacks the account")
    return {
      token,
      accountId: account.id,
      email: account.email,
      csrfToken: session.csrfToken,
      authTime: new Date(session.authTime),
    }
  } catch (error) {
    if (error instanceof DomainError && error.reason === 'TOKEN_INVALID') return null
    throw error
  }
}

/** As `visitorOf` for a form that was posted: TOKEN_INVALID without a session, EDIT_FORBIDDEN when it is not our form. */
export async function posterOf(request: FastifyRequest, publicUrl: string): Promise<Visitor> {
  const visitor = await visitorOf(request, publicUrl)
  if (!visitor) throw new DomainError('TOKEN_INVALID', 'you are not logged in any more')
  requireSameOrigin(request, {
    publicUrl,
    csrfToken: visitor.csrfToken,
    posted: field(request, 'csrf_token'),
  })
  return visitor
}

/** To the login page, and back to `path` afterwards. 303: whatever brought you here, GET the next page. */
export const toLogin = (reply: FastifyReply, path: string): FastifyReply =>
  reply.redirect(`/login?return_to=${encodeURIComponent(path)}`, 303)
