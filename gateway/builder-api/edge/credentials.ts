import type { FastifyReply } from 'fastify'
import { isResourcePath } from '../../../core/lib/names/resources.ts'
import { DomainError } from '../../../proto/errors.ts'
import { bearerToken } from '../../auth/credentials.ts'
import type { App } from '../../http/app.ts'

const jwtShape = /^[\w-]+\.[\w-]+\.[\w-]+$/

/**
 * On every route of a user the edge takes JWTs alone: keys of any kind, opaque sessions and Basic are 401 before anybody
 * looks at them. Must run before the routes are added.
 */
export function requireJwt(app: App): void {
  // Behind the onRequest hook of the route, which looks whether the address names an app.
  app.addHook('preParsing', async (request) => {
    const isOfUser = request.routeOptions.config.rules?.guard.kind === 'actor'
    const token = bearerToken(request.credential.authorization)
    if (isOfUser && !jwtShape.test(token ?? ''))
      throw new DomainError('TOKEN_INVALID', 'send a JWT as Bearer; keys are not taken here')
  })
}

/** Tells a client that has no token where it learns how to get one (RFC 9728 section 5.1). */
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
