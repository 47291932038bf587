import type { FastifyRequest } from 'fastify'
import { DomainError } from '../../proto/errors.ts'
import { parseAuthorization } from './authorization-request.ts'
import type { Theme } from './page.ts'

/** Where a login leads: the app it is for, and the address that the browser ends at. */
export interface Destination {
  readonly theme?: Theme | undefined
  readonly leadsTo?: string | undefined
}

/** For a login on the way to an app: its theme, and its redirect URI once core has found that registered. */
export async function destinationOf(
  request: FastifyRequest,
  returnTo: string | undefined,
): Promise<Destination> {
  const [path = '', query = ''] = (returnTo ?? '').split('?')
  if (path !== '/api/v1/oidc/auth' && path !== '/api/v1/oidc/authorize') return {}
  try {
    const asked = parseAuthorization(Object.fromEntries(new URLSearchParams(query)))
    const { appName, appColor } = await request.core.authorization.check(asked)
    return { theme: { name: appName, color: appColor }, leadsTo: asked.redirectUri }
  } catch (error) {
    // The authorization page itself says what is wrong with it.
    if (
      error instanceof DomainError &&
      (error.reason === 'NOT_FOUND' || error.reason === 'REQUEST_INVALID')
    )
      return {}
    throw error
  }
}
