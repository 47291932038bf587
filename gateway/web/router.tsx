import {
  Navigate,
  createRootRoute,
  createRoute,
  createRouter,
  lazyRouteComponent,
  type RouterHistory,
} from '@tanstack/react-router'
import { parsePaymentsSearch } from './money/search.ts'
import { parseInvoicesSearch } from './invoices/search.ts'
import { parseMySearch } from './me/search.ts'
import { Shell } from './shell.tsx'
import { Page } from './ui/page.tsx'
import { Failure, Loading } from './ui/states.tsx'
import { parseUserSearch, parseUsersSearch } from './users/search.ts'
import type { HoldFilter, LossFilter } from './api/operate.ts'
import { type QuarantineFilter, quarantineStatuses } from './api/quarantine.ts'
import type { AuditFilter } from './api/queries.ts'
import { type DeliveryStatus, deliveryStatuses } from './api/webhooks.ts'
import { parseOverviewSearch, parseUsageSearch, toText } from './ui/usage/search.ts'

function parseUserChoice(search: Record<string, unknown>): { user?: string } {
  const user = toText(search['user'])
  return user === undefined ? {} : { user }
}

/** The processor's page leads back with `paid` after a payment. */
const parseMoneySearch = (search: Record<string, unknown>): { user?: string; paid?: true } => ({
  ...parseUserChoice(search),
  ...(search['paid'] === true && { paid: true }),
})

function parseTextSearch(search: Record<string, unknown>): { search?: string } {
  const text = toText(search['search'])
  return text === undefined ? {} : { search: text }
}

const utcDay = /^\d{4}-\d{2}-\d{2}$/

/** The UTC days of a range, of which those that are none are left out. */
function parseDays({ from, to }: Record<string, unknown>): { from?: string; to?: string } {
  return {
    ...(typeof from === 'string' && utcDay.test(from) && { from }),
    ...(typeof to === 'string' && utcDay.test(to) && { to }),
  }
}

function parseAuditSearch(search: Record<string, unknown>): AuditFilter {
  const [action, actor] = [toText(search['action']), toText(search['actor'])]
  return {
    ...(action !== undefined && { action }),
    ...(actor !== undefined && { actor }),
    ...parseDays(search),
  }
}

/** Every view of the dashboard has its address here, below /app. Its script is loaded with it. */
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
const apps = createRoute({
  getParentRoute: () => root,
  path: '/',
  component: lazyRouteComponent(() => import('./apps/apps.tsx'), 'Apps'),
  validateSearch: parseTextSearch,
})
const newApp = createRoute({
  getParentRoute: () => root,
  path: '/new',
  component: lazyRouteComponent(() => import('./setup/new-app.tsx'), 'NewApp'),
})
const setup = createRoute({
  getParentRoute: () => root,
  path: '/$clientId/setup',
  component: lazyRouteComponent(() => import('./setup/setup.tsx'), 'Setup'),
  validateSearch: parseUserChoice,
})
const overview = createRoute({
  getParentRoute: () => root,
  path: '/$clientId',
  component: lazyRouteComponent(() => import('./overview/overview.tsx'), 'Overview'),
  validateSearch: parseOverviewSearch,
})
const usage = createRoute({
  getParentRoute: () => root,
  path: '/$clientId/usage',
  component: lazyRouteComponent(() => import('./usage/usage.tsx'), 'Usage'),
  validateSearch: parseUsageSearch,
})
const invoicesRoute = createRoute({
  getParentRoute: () => root,
  path: '/$clientId/invoices',
  component: lazyRouteComponent(() => import('./invoices/invoices.tsx'), 'Invoices'),
  validateSearch: parseInvoicesSearch,
})
const invoice = createRoute({
  getParentRoute: () => root,
  path: '/$clientId/invoices/$invoiceId',
  component: lazyRouteComponent(() => import('./invoices/invoice.tsx'), 'Invoice'),
})
const team = createRoute({
  getParentRoute: () => root,
  path: '/$clientId/team',
  component: lazyRouteComponent(() => import('./team/team.tsx'), 'Team'),
})
const audit = createRoute({
  getParentRoute: () => root,
  path: '/$clientId/audit',
  component: lazyRouteComponent(() => import('./audit/audit.tsx'), 'Audit'),
  validateSearch: parseAuditSearch,
})

const webhooks = createRoute({
  getParentRoute: () => root,
  path: '/$clientId/webhooks',
  component: lazyRouteComponent(() => import('./webhooks/webhooks.tsx'), 'Webhooks'),
})
const webhook = createRoute({
  getParentRoute: () => root,
  path: '/$clientId/webhooks/$endpointId',
  component: lazyRouteComponent(() => import('./webhooks/webhook.tsx'), 'Webhook'),
  validateSearch: ({ status }: Record<string, unknown>): { status?: DeliveryStatus } => {
    const known = deliveryStatuses.find((one) => one === status)
    return known === undefined ? {} : { status: known }
  },
})
const settings = createRoute({
  getParentRoute: () => root,
  path: '/$clientId/settings',
  component: lazyRouteComponent(() => import('./settings/settings.tsx'), 'Settings'),
})
const plans = createRoute({
  getParentRoute: () => root,
  path: '/$clientId/plans',
  component: lazyRouteComponent(() => import('./plans/plans.tsx'), 'Plans'),
})
const newPlan = createRoute({
  getParentRoute: () => root,
  path: '/$clientId/plans/new',
  component: lazyRouteComponent(() => import('./plans/edit-plan.tsx'), 'NewPlan'),
  validateSearch: parseDays,
})
const editPlan = createRoute({
  getParentRoute: () => root,
  path: '/$clientId/plans/$planId',
  component: lazyRouteComponent(() => import('./plans/edit-plan.tsx'), 'EditPlan'),
  validateSearch: parseDays,
})
const version = (value: unknown): number | undefined => {
  const number = Number(value)
  return Number.isInteger(number) && number > 0 ? number : undefined
}
const planVersions = createRoute({
  getParentRoute: () => root,
  path: '/$clientId/plans/$planId/versions',
  component: lazyRouteComponent(() => import('./plans/versions.tsx'), 'PlanVersions'),
  validateSearch: (search: Record<string, unknown>): { left?: number; right?: number } => {
    const [left, right] = [version(search['left']), version(search['right'])]
    return { ...(left !== undefined && { left }), ...(right !== undefined && { right }) }
  },
})
const money = createRoute({
  getParentRoute: () => root,
  path: '/$clientId/money',
  component: lazyRouteComponent(() => import('./money/money.tsx'), 'Money'),
  validateSearch: parseMoneySearch,
})
const payments = createRoute({
  getParentRoute: () => root,
  path: '/$clientId/money/payments',
  component: lazyRouteComponent(() => import('./money/payments.tsx'), 'Payments'),
  validateSearch: parsePaymentsSearch,
})
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
  component: lazyRouteComponent(() => import('./users/users.tsx'), 'Users'),
  validateSearch: parseUsersSearch,
})
const user = createRoute({
  getParentRoute: () => root,
  path: '/$clientId/users/$externalUserId',
  component: lazyRouteComponent(() => import('./users/user.tsx'), 'User'),
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

const myApps = createRoute({
  getParentRoute: () => root,
  path: '/me',
  component: lazyRouteComponent(() => import('./me/my-apps.tsx'), 'MyApps'),
})
const myApp = createRoute({
  getParentRoute: () => root,
  path: '/me/$ownAppId',
  component: lazyRouteComponent(() => import('./me/my-app.tsx'), 'MyApp'),
  validateSearch: parseMySearch,
})

const operate = createRoute({
  getParentRoute: () => root,
  path: '/operate',
  component: lazyRouteComponent(() => import('./operate/operate.tsx'), 'Operate'),
})
const operateIndex = createRoute({
  getParentRoute: () => operate,
  path: '/',
  component: () => <Navigate to="/operate/quarantine" replace />,
})
const quarantine = createRoute({
  getParentRoute: () => operate,
  path: '/quarantine',
  component: lazyRouteComponent(() => import('./operate/quarantine.tsx'), 'Quarantine'),
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
  component: lazyRouteComponent(() => import('./operate/quarantined.tsx'), 'Quarantined'),
})

const everyApp = createRoute({
  getParentRoute: () => operate,
  path: '/apps',
  component: lazyRouteComponent(() => import('./operate/every-app.tsx'), 'EveryApp'),
  validateSearch: parseTextSearch,
})
const quotas = createRoute({
  getParentRoute: () => operate,
  path: '/apps/$clientId',
  component: lazyRouteComponent(() => import('./operate/quotas.tsx'), 'Quotas'),
})
const signers = createRoute({
  getParentRoute: () => operate,
  path: '/signers',
  component: lazyRouteComponent(() => import('./operate/signers.tsx'), 'Signers'),
})
const catalogue = createRoute({
  getParentRoute: () => operate,
  path: '/catalogue',
  component: lazyRouteComponent(() => import('./operate/catalogue.tsx'), 'Catalogue'),
})
const testClocks = createRoute({
  getParentRoute: () => operate,
  path: '/test-clocks',
  component: lazyRouteComponent(() => import('./operate/test-clocks.tsx'), 'TestClocks'),
})
const configuration = createRoute({
  getParentRoute: () => operate,
  path: '/configuration',
  component: lazyRouteComponent(() => import('./operate/configuration.tsx'), 'Configuration'),
  validateSearch: (search: Record<string, unknown>): { search?: string; set?: true } => ({
    ...parseTextSearch(search),
    ...(search['set'] === true && { set: true }),
  }),
})
const ingest = createRoute({
  getParentRoute: () => operate,
  path: '/ingest',
  component: lazyRouteComponent(() => import('./operate/ingest.tsx'), 'Ingest'),
})
const holds = createRoute({
  getParentRoute: () => operate,
  path: '/holds',
  component: lazyRouteComponent(() => import('./operate/holds.tsx'), 'Holds'),
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
  component: lazyRouteComponent(() => import('./operate/signing-keys.tsx'), 'SigningKeys'),
})
const checks = createRoute({
  getParentRoute: () => operate,
  path: '/checks',
  component: lazyRouteComponent(() => import('./operate/checks.tsx'), 'Checks'),
})
const losses = createRoute({
  getParentRoute: () => operate,
  path: '/losses',
  component: lazyRouteComponent(() => import('./operate/losses.tsx'), 'Losses'),
  validateSearch: (search: Record<string, unknown>): LossFilter => parseDays(search),
})
const differences = createRoute({
  getParentRoute: () => operate,
  path: '/differences',
  component: lazyRouteComponent(() => import('./operate/differences.tsx'), 'Differences'),
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
  payments,
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
    catalogue,
    testClocks,
    configuration,
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
    // A view's script is loaded when a link to it is about to be followed.
    defaultPreload: 'intent',
    defaultPendingComponent: Loading,
    defaultPendingMs: 300,
    // Another app or user begins with empty forms.
    defaultRemountDeps: ({ params }) => params,
    ...(history && { history }),
  })

declare module '@tanstack/react-router' {
  interface Register {
    router: ReturnType<typeof createAppRouter>
  }
}
