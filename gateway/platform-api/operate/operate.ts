import type { App } from '../../http/app.ts'
import { everyAppRoutes } from './apps.ts'
import { checkRoutes } from './checks.ts'
import { differenceRoutes } from './differences.ts'
import { holdRoutes } from './holds.ts'
import { ingestStatusRoutes } from './ingest.ts'
import { lossReportRoutes } from './losses.ts'
import { quarantineRoutes } from './quarantine.ts'
import { signerRoutes } from './signers.ts'
import { signingKeyRoutes } from './signing-keys.ts'
import { movedClockRoutes } from './test-clocks.ts'

/** What platform admins do for the whole deployment, for the dashboard's own pages. */
export function operateRoutes(app: App): void {
  quarantineRoutes(app)
  signerRoutes(app)
  ingestStatusRoutes(app)
  holdRoutes(app)
  lossReportRoutes(app)
  differenceRoutes(app)
  signingKeyRoutes(app)
  checkRoutes(app)
  everyAppRoutes(app)
  movedClockRoutes(app)
}
