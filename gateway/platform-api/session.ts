import { Type } from 'typebox'
import { DomainError } from '../../proto/errors.ts'
import { readSession } from '../auth/session.ts'
import { requireField } from '../core/client.ts'
import type { App } from '../http/app.ts'
import { get } from '../http/endpoint.ts'
import { addSchemas, named, ref } from '../http/schemas.ts'
import { Email, Instant } from './schemas.ts'

const Session = named(
  Type.Object({
    accountId: Type.String(),
    email: Email,
    name: Type.String(),
    isPlatformAdmin: Type.Boolean({ description: 'Whether this account may manage every app.' }),
    canCreateApps: Type.Boolean({ description: 'Whether this account may create apps.' }),
    csrfToken: Type.String({ description: 'Send this as X-CSRF-Token with every change.' }),
    authTime: Instant('Time of the login.'),
  }),
  'Session',
)

const description = [
  'Returns the account that is logged in, and the CSRF token of the session, for programs that use the dashboard cookie.',
  'Log in at POST /login (a form with email and password) and keep the cookie; send X-CSRF-Token and an Origin header of',
  'this service with every request that changes something.',
].join(' ')

/** The dashboard session, for programs. */
export function sessionRoutes(app: App, { publicUrl }: { publicUrl: string }): void {
  addSchemas(app, [Session])
  get({
    url: '/api/v1/session',
    guard: { kind: 'session' },
    operationId: 'getSession',
    summary: 'The session and its CSRF token',
    description,
    tags: ['session'],
    response: { 200: ref(Session) },
    handler: async (request) => {
      const sessionToken = readSession(request, publicUrl)
      if (sessionToken === undefined) throw new DomainError('TOKEN_INVALID', 'log in first')
      const { session, canCreateApps } = await request.core.accounts.getSession({ sessionToken })
      const { account, csrfToken, authTime } = requireField(session, 'session')
      const { id, email, name, isPlatformAdmin } = requireField(account, 'account')
      return { accountId: id, email, name, isPlatformAdmin, canCreateApps, csrfToken, authTime }
    },
  })(app)
}
