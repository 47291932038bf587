import type { FastifyReply } from 'fastify'
import { isResourcePath } from '../../../core/lib/names/resources.ts'
import { DomainError } from '../../../proto/errors.ts'
import type { App } from '../../http/app.ts'

/** Whether a Bearer is a JWT: what the edge's listener takes of users. Keys, opaque sessions and Basic go no further. */
export const isJwt = (token: string | undefined): boolean =>
  /^[\w-]+\.[\w-]+\.[\w-]+$/.test(token ?? '')

/** Refuses, on every route of a user, a request whose listener took no credential. Must run before the routes are added. */
export function requireJwt(app: App): void {
  // Behind the onRequest hook of the route, which looks whether the address names an app.
  app.addHook('preParsing', async (request) => {
    const isOfUser = request.routeOptions.config.rules?.guard.kind === 'actor'
    if (isOfUser && request.credential.authorization === undefined)
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
