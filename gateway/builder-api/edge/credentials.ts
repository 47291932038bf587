import type { FastifyReply } from 'fastify'
import { isResourcePath } from '../../../core/lib/names/resources.ts'
import { DomainError } from '../../../proto/errors.ts'
import type { App } from '../../http/app.ts'

/**
 * Whether a Bearer is a JWT, the only user credential that the edge forwards to core. Drops keys,
 * opaque sessions and Basic.
 */
export const isJwt = (token: string | undefined): boolean =>
  /^[\w-]+\.[\w-]+\.[\w-]+$/.test(token ?? '')

/**
 * Rejects requests without an accepted credential on every user route. Must run before the routes
 * are added.
 */
export function requireJwt(app: App): void {
  // Runs after the route's onRequest hook, which checks whether the address names an app.
  app.addHook('preParsing', async (request) => {
    const isOfUser = request.routeOptions.config.rules?.guard.kind === 'actor'
    if (isOfUser && request.credential.authorization === undefined)
      throw new DomainError(
        'TOKEN_INVALID',
        'send a JWT as Bearer; this route does not accept keys',
      )
  })
}

/**
 * Adds `WWW-Authenticate` to 401 answers, with the metadata URL that leads to a token (RFC 9728
 * section 5.1).
 */
export function nameMetadata(app: App, edgeUrl: string): void {
  app.addHook('onSend', async (request, reply) => {
    if (reply.statusCode !== 401 || request.routeOptions.config.rules?.guard.kind !== 'actor')
      return
    const path = request.raw.url?.split('?')[0] ?? ''
    const suffix = isResourcePath(path) ? path : ''
    const url = `${edgeUrl}/.well-known/oauth-protected-resource${suffix}`
    void reply.header(
      'www-authenticate',
      challengesOf(reply).map((challenge) => `${challenge}, resource_metadata="${url}"`),
    )
  })
}

function challengesOf(reply: FastifyReply): string[] {
  const value = reply.getHeader('www-authenticate')
  return Array.isArray(value) ? value : value === undefined ? [] : [String(value)]
}
