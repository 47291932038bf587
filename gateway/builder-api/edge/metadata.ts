import { Type } from 'typebox'
import { isResourcePath, resourcePath } from '../../../core/lib/names/resources.ts'
import { DomainError } from '../../../proto/errors.ts'
import { Scope } from '../../../proto/scopes.ts'
import type { App } from '../../http/app.ts'
import { get } from '../../http/endpoint.ts'
import { answerCached, cacheDocument } from '../../http/cached-document.ts'
import { type DiscoveryDeps, metadataRoutes } from '../../platform-api/oidc/discovery.ts'

const ProtectedResource = Type.Object({
  resource: Type.String(),
  resource_name: Type.String(),
  authorization_servers: Type.Array(Type.String()),
  scopes_supported: Type.Array(Type.String()),
  bearer_methods_supported: Type.Array(Type.String()),
})

export interface MetadataDeps extends DiscoveryDeps {
  readonly edgeUrl: string
}

const rules = { guard: { kind: 'none' }, document: true } as const
const wellKnown = '/.well-known/oauth-protected-resource'
const resources = [
  ['usage', 'getProtectedUsage'],
  ['mcp', 'getProtectedMcp'],
] as const

/** Adds the metadata by which a client gets from an address to a token: RFC 9728, then RFC 8414. */
export function edgeMetadataRoutes(app: App, deps: MetadataDeps): void {
  protectedResourceRoutes(app, deps)
  metadataRoutes(app, deps, [
    ['/.well-known/oauth-authorization-server', 'getAuthorizationServerMetadataAtRoot'],
    ['/.well-known/oauth-authorization-server/api/v1/oidc', 'getAuthorizationServerMetadata'],
  ])
}

function protectedResourceRoutes(app: App, { edgeUrl, publicUrl }: MetadataDeps): void {
  const documentOf = (path: string) => ({
    resource: edgeUrl + path,
    resource_name: 'tollgate usage',
    authorization_servers: [`${publicUrl}/api/v1/oidc`],
    scopes_supported: [Scope.openid],
    bearer_methods_supported: ['header'],
  })
  const schemaOf = (operationId: string) => ({
    operationId,
    summary: 'Metadata of the protected resource',
    description: 'Names the issuer of tokens for this address (RFC 9728).',
    tags: ['oidc'],
    response: { 200: ProtectedResource, 304: Type.Null({ description: 'Not changed' }) },
  })
  const whole = cacheDocument(documentOf(''))
  get({
    url: wellKnown,
    ...rules,
    ...schemaOf('getProtectedResource'),
    handler: (request, reply) => answerCached(request, reply, { document: whole, maxAge: 3_600 }),
  })(app)
  for (const [name, operationId] of resources)
    get({
      url: wellKnown + resourcePath(':clientId', name),
      ...rules,
      ...schemaOf(operationId),
      params: Type.Object({ clientId: Type.String() }),
      handler: (request, reply) => {
        const path = resourcePath(request.params.clientId, name)
        if (!isResourcePath(path)) throw new DomainError('NOT_FOUND', 'this address does not exist')
        const document = cacheDocument(documentOf(path))
        return answerCached(request, reply, { document, maxAge: 3_600 })
      },
    })(app)
}
