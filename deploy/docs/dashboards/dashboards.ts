import { renderDashboard } from './dashboard.ts'
import { databaseDashboard } from './database.ts'
import { decisionsDashboard } from './decisions.ts'
import { ingestDashboard } from './ingest.ts'
import { issuerDashboard } from './issuer.ts'
import { moneyDashboard } from './money.ts'
import { overviewDashboard } from './overview.ts'

/** Grafana's dashboards, in the order of its menu. */
export const dashboards = [
  overviewDashboard,
  moneyDashboard,
  decisionsDashboard,
  ingestDashboard,
  issuerDashboard,
  databaseDashboard,
]

/** The generated files in deploy/grafana/dashboards. */
export const dashboardFiles: Readonly<Record<string, () => string>> = Object.fromEntries(
  dashboards.map((dashboard) => [
    `deploy/grafana/dashboards/${dashboard.uid}.json`,
    () => renderDashboard(dashboard),
  ]),
)
