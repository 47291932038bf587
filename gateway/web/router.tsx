import {
  Navigate,
  createRootRoute,
  createRoute,
  createRouter,
  lazyRouteComponent,
  type RouterHistory,
} from '@tanstack/react-router'
import { Apps } from './apps/apps.tsx'
import { Audit } from './audit/audit.tsx'
import { Invoice } from './invoices/invoice.tsx'
import { Invoices } from './invoices/invoices.tsx'
import { parseInvoicesSearch } from './invoices/search.ts'
import { Checks } from './operate/checks.tsx'
import { Differences } from './operate/differences.tsx'
import { EveryApp } from './operate/every-app.tsx'
import { Holds } from './operate/holds.tsx'
import { Ingest } from './operate/ingest.tsx'
import { Losses } from './operate/losses.tsx'
import { Operate } from './operate/operate.tsx'
import { Quarantine, quarantineStatuses } from './operate/quarantine.tsx'
import { Quarantined } from './operate/quarantined.tsx'
import { Quotas } from './operate/quotas.tsx'
import { Signers } from './operate/signers.tsx'
import { SigningKeys } from './operate/signing-keys.tsx'
import { MyApp } from './me/my-app.tsx'
import { MyApps } from './me/my-apps.tsx'
import { parseMySearch } from './me/search.ts'
import { Overview } from './overview/overview.tsx'
import { Money } from './money/money.tsx'
import { EditPlan, NewPlan } from './plans/edit-plan.tsx'
import { Plans } from './plans/plans.tsx'
import { PlanVersions } from './plans/versions.tsx'
import { Settings } from './settings/settings.tsx'
import { NewApp } from './setup/new-app.tsx'
import { Setup } from './setup/setup.tsx'
import { Shell } from './shell.tsx'
import { Team } from './team/team.tsx'
import { Page } from './ui/page.tsx'
import { Failure } from './ui/states.tsx'
import { parseUserSearch, parseUsersSearch } from './users/search.ts'
import { User } from './users/user.tsx'
import { Users } from './users/users.tsx'
import type { HoldFilter, LossFilter } from './api/operate.ts'
import type { QuarantineFilter } from './api/quarantine.ts'
import type { DeliveryStatus } from './api/webhooks.ts'
import { deliveryStatuses } from './webhooks/deliveries.tsx'
import { Webhook } from './webhooks/webhook.tsx'
import { Webhooks } from './webhooks/webhooks.tsx'
import { parseOverviewSearch, parseUsageSearch, toText } from './ui/usage/search.ts'
import { Usage } from './usage/usage.tsx'

function parseUserChoice(search: Record<string, unknown>): { user?: string } {
  const user = toText(search['user'])
  return user === undefined ? {} : { user }
}

/** The processor's page leads back with `paid` after a payment. */
const parseMoneySearch = (search: Record<string, unknown>): { user?: string; paid?: true } => ({
  ...parseUserChoice(search),
  ...(search['paid'] === true && { paid: true }),
})

const utcDay = /^\d{4}-\d{2}-\d{2}$/

/** Every view of the dashboard has its address here, below /app. */
const root = createRootRoute({
  component: Shell,
  notFoundComponent: () => (
    <Page title="Not found">
      <p>There is no such view. Choose one at the side.</p>
    </Page>
  ),
  errorComponent: ({ error, reset }) => (
    <Page title="Something went wrong">
      <Failure error={error instanceof Error ? error : new Error(String(error))} retry={reset} />
    </Page>
  ),
})
const apps = createRoute({ getParentRoute: () => root, path: '/', component: Apps })
const newApp = createRoute({ getParentRoute: () => root, path: '/new', component: NewApp })
const setup = createRoute({
  getParentRoute: () => root,
  path: '/$clientId/setup',
  component: Setup,
  validateSearch: parseUserChoice,
})
const overview = createRoute({
  getParentRoute: () => root,
  path: '/$clientId',
  component: Overview,
  validateSearch: parseOverviewSearch,
})
const usage = createRoute({
  getParentRoute: () => root,
  path: '/$clientId/usage',
  component: Usage,
  validateSearch: parseUsageSearch,
})
const invoicesRoute = createRoute({
  getParentRoute: () => root,
  path: '/$clientId/invoices',
  component: Invoices,
  validateSearch: parseInvoicesSearch,
})
const invoice = createRoute({
  getParentRoute: () => root,
  path: '/$clientId/invoices/$invoiceId',
  component: Invoice,
})
const team = createRoute({ getParentRoute: () => root, path: '/$clientId/team', component: Team })
const audit = createRoute({
  getParentRoute: () => root,
  path: '/$clientId/audit',
  component: Audit,
  validateSearch: ({ action }: Record<string, unknown>): { action?: string } =>
    typeof action === 'string' && action !== '' ? { action } : {},
})

const webhooks = createRoute({
  getParentRoute: () => root,
  path: '/$clientId/webhooks',
  component: Webhooks,
})
const webhook = createRoute({
  getParentRoute: () => root,
  path: '/$clientId/webhooks/$endpointId',
  component: Webhook,
  validateSearch: ({ status }: Record<string, unknown>): { status?: DeliveryStatus } => {
    const known = deliveryStatuses.find((one) => one === status)
    return known === undefined ? {} : { status: known }
  },
})
const settings = createRoute({
  getParentRoute: () => root,
  path: '/$clientId/settings',
  component: Settings,
})
const plans = createRoute({
  getParentRoute: () => root,
  path: '/$clientId/plans',
  component: Plans,
})
const newPlan = createRoute({
  getParentRoute: () => root,
  path: '/$clientId/plans/new',
  component: NewPlan,
})
const editPlan = createRoute({
  getParentRoute: () => root,
  path: '/$clientId/plans/$planId',
  component: EditPlan,
})
const version = (value: unknown): number | undefined => {
  const number = Number(value)
  return Number.isInteger(number) && number > 0 ? number : undefined
}
const planVersions = createRoute({
  getParentRoute: () => root,
  path: '/$clientId/plans/$planId/versions',
  component: PlanVersions,
  validateSearch: (search: Record<string, unknown>): { left?: number; right?: number } => {
    const [left, right] = [version(search['left']), version(search['right'])]
    return { ...(left !== undefined && { left }), ...(right !== undefined && { right }) }
  },
})
const money = createRoute({
  getParentRoute: () => root,
  path: '/$clientId/money',
  component: Money,
  validateSearch: parseMoneySearch,
})
/** Loads the library of signatures only when it is opened. */
const receipts = createRoute({
  getParentRoute: () => root,
  path: '/$clientId/receipts',
  component: lazyRouteComponent(() => import('./receipts/receipts.tsx'), 'Receipts'),
  validateSearch: ({ ticket }: Record<string, unknown>): { ticket?: string } => {
    const text = toText(ticket)
    return text === undefined ? {} : { ticket: text }
  },
})
const users = createRoute({
  getParentRoute: () => root,
  path: '/$clientId/users',
  component: Users,
  validateSearch: parseUsersSearch,
})
const user = createRoute({
  getParentRoute: () => root,
  path: '/$clientId/users/$externalUserId',
  component: User,
  validateSearch: parseUserSearch,
})

const loggedIn = createRoute({
  getParentRoute: () => root,
  path: '/logged-in',
  component: () => (
    <Page title="You are logged in">
      <p>Go back to the tab with your form, which kept what you typed. You can close this one.</p>
    </Page>
  ),
})

const design = createRoute({
  getParentRoute: () => root,
  path: '/design',
  component: lazyRouteComponent(() => import('./design/design.tsx'), 'Design'),
})

const myApps = createRoute({ getParentRoute: () => root, path: '/me', component: MyApps })
const myApp = createRoute({
  getParentRoute: () => root,
  path: '/me/$ownAppId',
  component: MyApp,
  validateSearch: parseMySearch,
})

const operate = createRoute({ getParentRoute: () => root, path: '/operate', component: Operate })
const operateIndex = createRoute({
  getParentRoute: () => operate,
  path: '/',
  component: () => <Navigate to="/operate/quarantine" replace />,
})
const quarantine = createRoute({
  getParentRoute: () => operate,
  path: '/quarantine',
  component: Quarantine,
  validateSearch: ({ status, reason }: Record<string, unknown>): QuarantineFilter => {
    const known = quarantineStatuses.find((one) => one === status)
    return {
      ...(known !== undefined && { status: known }),
      ...(typeof reason === 'string' && reason !== '' && { reason }),
    }
  },
})
const quarantined = createRoute({
  getParentRoute: () => operate,
  path: '/quarantine/$quarantineId',
  component: Quarantined,
})

const everyApp = createRoute({
  getParentRoute: () => operate,
  path: '/apps',
  component: EveryApp,
  validateSearch: ({ search }: Record<string, unknown>): { search?: string } => {
    // A name that looks like a number is read as one.
    const text = typeof search === 'number' ? String(search) : search
    return typeof text === 'string' && text !== '' ? { search: text } : {}
  },
})
const quotas = createRoute({
  getParentRoute: () => operate,
  path: '/apps/$clientId',
  component: Quotas,
})
const signers = createRoute({
  getParentRoute: () => operate,
  path: '/signers',
  component: Signers,
})
const ingest = createRoute({ getParentRoute: () => operate, path: '/ingest', component: Ingest })
const holds = createRoute({
  getParentRoute: () => operate,
  path: '/holds',
  component: Holds,
  validateSearch: ({ clientId, externalUserId }: Record<string, unknown>): HoldFilter => {
    // A user's id that looks like a number is read as one.
    const user = typeof externalUserId === 'number' ? String(externalUserId) : externalUserId
    return {
      ...(typeof clientId === 'string' && clientId !== '' && { clientId }),
      ...(typeof user === 'string' && user !== '' && { externalUserId: user }),
    }
  },
})

const signingKeys = createRoute({
  getParentRoute: () => operate,
  path: '/signing-keys',
  component: SigningKeys,
})
const checks = createRoute({ getParentRoute: () => operate, path: '/checks', component: Checks })
const losses = createRoute({
  getParentRoute: () => operate,
  path: '/losses',
  component: Losses,
  validateSearch: ({ from, to }: Record<string, unknown>): LossFilter => ({
    ...(typeof from === 'string' && utcDay.test(from) && { from }),
    ...(typeof to === 'string' && utcDay.test(to) && { to }),
  }),
})
const differences = createRoute({
  getParentRoute: () => operate,
  path: '/differences',
  component: Differences,
  validateSearch: ({ all }: Record<string, unknown>): { all?: true } =>
    all === true ? { all } : {},
})

const routeTree = root.addChildren([
  apps,
  design,
  loggedIn,
  newApp,
  setup,
  overview,
  usage,
  invoicesRoute,
  invoice,
  money,
  plans,
  newPlan,
  editPlan,
  planVersions,
  webhooks,
  webhook,
  settings,
  team,
  audit,
  receipts,
  users,
  user,
  myApps,
  myApp,
  operate.addChildren([
    operateIndex,
    quarantine,
    quarantined,
    everyApp,
    quotas,
    signers,
    ingest,
    holds,
    losses,
    differences,
    checks,
    signingKeys,
  ]),
])

export const createAppRouter = (history?: RouterHistory) =>
  createRouter({
    routeTree,
    basepath: '/app',
    scrollRestoration: true,
    // Another app or user begins with empty forms.
    defaultRemountDeps: ({ params }) => params,
    ...(history && { history }),
  })

declare module '@tanstack/react-router' {
  interface Register {
    router: ReturnType<typeof createAppRouter>
  }
}
