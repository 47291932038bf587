import type { App } from '../../http/app.ts'
import { ownAccessRoutes } from './access.ts'
import { ownAppRoutes } from './apps.ts'
import { ownMoneyRoutes } from './money.ts'
import { ownUsageRoutes } from './usage.ts'

/** What a person is and has as an end user of apps, for the dashboard's own pages. */
export function meRoutes(app: App): void {
  ownAppRoutes(app)
  ownUsageRoutes(app)
  ownAccessRoutes(app)
  ownMoneyRoutes(app)
}
