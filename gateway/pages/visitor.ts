import type { FastifyReply, FastifyRequest } from 'fastify'
import { fingerprint } from '../../core/lib/crypto.ts'
import { DomainError } from '../../proto/errors.ts'
import { accountName } from '../auth/device-cookies.ts'
import { requireSameOrigin, sessionCookie, readSession } from '../auth/session.ts'
import { requireField } from '../core/client.ts'
import { readAddress } from '../limits/address.ts'
import { type PagesDeps, field } from './forms.ts'

/**
 * The lifetime of a session's cookie, in seconds. Core ends an idle session sooner (decision 10).
 */
const sessionMaxAge = 90 * 86_400

/** The person logged in with a live session. */
export interface Visitor {
  readonly token: string
  readonly accountId: string
  readonly email: string
  readonly csrfToken: string
  readonly authTime: Date
}

/** Returns the person of the request's session cookie, null without a live session. */
export async function readVisitor(
  request: FastifyRequest,
  publicUrl: string,
): Promise<Visitor | null> {
  const token = readSession(request, publicUrl)
  if (token === undefined) return null
  try {
    const { session } = await request.core.accounts.getSession({ sessionToken: token })
    const { account, csrfToken, authTime } = requireField(session, 'session')
    const { id, email } = requireField(account, 'account')
    return {
      token,
      accountId: id,
      email,
      csrfToken,
      authTime: new Date(authTime),
    }
  } catch (error) {
    if (error instanceof DomainError && error.reason === 'TOKEN_INVALID') return null
    throw error
  }
}

/**
 * Returns the person who sent a form. Throws TOKEN_INVALID without a session, EDIT_FORBIDDEN if the
 * form is not from this site.
 */
export async function readSender(request: FastifyRequest, publicUrl: string): Promise<Visitor> {
  const visitor = await readVisitor(request, publicUrl)
  if (!visitor) throw new DomainError('TOKEN_INVALID', 'your session has ended; log in again')
  requireSameOrigin(request, {
    publicUrl,
    csrfToken: visitor.csrfToken,
    formToken: field(request, 'csrf_token'),
  })
  return visitor
}

/** Makes this request's later calls to core as the visitor. */
export function actAs(request: FastifyRequest, { token }: Pick<Visitor, 'token'>): void {
  request.credential = { session: token, correlationId: request.correlationId }
  request.calls = undefined
}

/** Redirects to the login page, which leads back to `path`. */
export const toLogin = (reply: FastifyReply, path: string): FastifyReply =>
  reply.redirect(`/login?return_to=${encodeURIComponent(path)}`, 303)

/** Returns the queue in which a login waits for its password check. */
export function loginSource(
  request: FastifyRequest,
  email: string,
  { devices, trustedProxyHops }: Pick<PagesDeps, 'devices' | 'trustedProxyHops'>,
) {
  const account = accountName(email)
  // The account, not the device: each login without a cookie makes a new device, so one person can
  // have many.
  return devices.deviceOf(request)?.account === account
    ? { source: `account:${account}`, isKnownDevice: true }
    : { source: fingerprint(readAddress(request, trustedProxyHops)), isKnownDevice: false }
}

/** Starts a session in the browser. Ends its previous session, which may have been planted. */
export async function startSession(
  request: FastifyRequest,
  reply: FastifyReply,
  { sessionToken, publicUrl }: { sessionToken: string; publicUrl: string },
): Promise<void> {
  const old = readSession(request, publicUrl)
  if (old !== undefined) await request.core.accounts.logOut({ sessionToken: old })
  void reply.header('set-cookie', sessionCookie(sessionToken, { publicUrl, maxAge: sessionMaxAge }))
}
