import type { App } from '../../http/app.ts'
import { ownAccessRoutes } from './access.ts'
import { ownAppRoutes } from './apps.ts'
import { ownPayingRoutes } from './paying.ts'

/**
 * What only a person itself reads and changes as an end user of apps. `self` of a route (endpoint.ts)
 * declares what it shares with the app.
 */
export function meRoutes(app: App): void {
  ownAppRoutes(app)
  ownAccessRoutes(app)
  ownPayingRoutes(app)
}
