import type { App } from '../../http/app.ts'
import type { ListenerDeps } from '../../http/listener.ts'
import { createTokenEndpoint } from '../../platform-api/oidc/grant-types.ts'
import { createKeySet } from '../../platform-api/oidc/key-set.ts'
import { healthRoute } from '../builder.ts'
import { usageRoutes } from '../usage.ts'
import { nameMetadata, requireJwt } from './credentials.ts'
import { mcpRoutes } from './mcp.ts'
import { edgeMetadataRoutes } from './metadata.ts'
import { registrationRoutes } from './registration.ts'

export interface EdgeDeps extends ListenerDeps {
  readonly edgeUrl: string
  readonly tokenAlg: string
  /** Origins of pages that may call the edge. */
  readonly corsOrigins: readonly string[]
}

/**
 * Adds the builder API's routes for the internet (docs/edge.md). None of them creates users or
 * keys.
 */
export function edgeRoutes(app: App, deps: EdgeDeps): void {
  requireJwt(app)
  nameMetadata(app, deps.edgeUrl)
  healthRoute(app)
  usageRoutes(app, {
    guard: { kind: 'actor' },
    limit: 'edge',
    refuses: ['METERING_NOT_CONFIGURED', 'METERING_FAILED'],
  })
  mcpRoutes(app, deps)
  const { grantTypes } = createTokenEndpoint(deps)
  edgeMetadataRoutes(app, { ...deps, grantTypes, keySet: createKeySet() })
  registrationRoutes(app, deps.edgeUrl)
}
