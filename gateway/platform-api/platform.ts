import type { Reloadable } from '../../core/lib/settings/reloadable.ts'
import type { OwnSettings } from '../../core/lib/settings/redacted.ts'
import { Type } from 'typebox'
import type { App } from '../http/app.ts'
import { get } from '../http/endpoint.ts'
import { textMember } from '../http/body.ts'
import type { ListenerDeps } from '../http/listener.ts'
import { addSchemas } from '../http/schemas.ts'
import { errorPages } from '../pages/errors.ts'
import type { PagesDeps } from '../pages/forms.ts'
import { pageRoutes } from '../pages/pages.ts'
import { appRoutes } from './apps/apps.ts'
import { auditRoutes } from './apps/audit.ts'
import { credentialRoutes } from './apps/credentials.ts'
import { discoveryProfileRoutes } from './apps/discovery-profiles.ts'
import { domainRoutes } from './apps/domains.ts'
import { manifestRoutes } from './apps/manifest.ts'
import { memberRoutes } from './apps/members.ts'
import { quotaRoutes } from './apps/quotas.ts'
import { trustedIssuerRoutes } from './apps/trusted-issuers.ts'
import { billingRoutes } from './billing/billing.ts'
import { invoiceRoutes } from './billing/invoices.ts'
import { collectionRoutes } from './billing/collections.ts'
import { overageRoutes } from './billing/overage.ts'
import { planCheckoutRoutes } from './billing/checkout.ts'
import { paymentMethodRoutes } from './billing/payment-method.ts'
import { processorEventRoutes } from './billing/processor-events.ts'
import { processorRoutes } from './billing/processor.ts'
import { ownerPlanRoutes } from './billing/owner-plan.ts'
import { settingsRoutes } from './billing/settings.ts'
import { statementRoutes } from './billing/statements.ts'
import { testClockRoutes } from './billing/test-clock.ts'
import { paymentRoutes } from './billing/payments.ts'
import { payoutRoutes } from './billing/payouts.ts'
import { walletRoutes } from './billing/wallet.ts'
import { whatIfRoutes } from './billing/what-if.ts'
import { configurationRoutes } from './operate/configuration.ts'
import { meRoutes } from './me/me.ts'
import { operateRoutes } from './operate/operate.ts'
import { collectDocuments, documentRoutes } from './docs/docs.ts'
import { goneRoutes } from './gone.ts'
import { ingestRoutes } from './ingest.ts'
import { appKeyRoutes } from './keys/app-keys.ts'
import { invitationRoutes } from './invitations.ts'
import { keyRoutes } from './keys/keys.ts'
import { validateRoutes } from './keys/validate.ts'
import { oidcRoutes } from './oidc/oidc.ts'
import { Success } from './schemas.ts'
import { catalogRoutes } from './plans/catalog.ts'
import { planRoutes } from './plans/plans.ts'
import { sessionRoutes } from './session.ts'
import { decisionRoutes } from './signer/decisions.ts'
import { refusalHelp } from './signer/refusal-help.ts'
import { routingRoutes } from './signer/routing.ts'
import { signerSecretRoutes } from './signer/secrets.ts'
import { testCallRoutes } from './signer/test-call.ts'
import { type Webhook, webhookRoutes } from './signer/webhook.ts'
import { balanceRoutes } from './usage/balance.ts'
import { usageHistoryRoutes } from './usage/history.ts'
import { usageLossRoutes } from './usage/loss.ts'
import { receiptRoutes } from './usage/receipt.ts'
import { ticketRoutes } from './usage/ticket.ts'
import { usageStreamRoutes } from './usage/stream.ts'
import { usageRoutes } from './usage/usage.ts'
import { allowanceRoutes } from './users/allowances.ts'
import { userHoldRoutes } from './users/holds.ts'
import { limitRoutes } from './users/limits.ts'
import { subscriptionRoutes } from './users/subscriptions.ts'
import { tokenRoutes } from './users/tokens.ts'
import { userRoutes } from './users/users.ts'
import { webhookDeliveryRoutes } from './webhooks/deliveries.ts'
import { webhookEndpointRoutes } from './webhooks/endpoints.ts'

export interface PlatformDeps extends ListenerDeps, PagesDeps {
  /** Algorithm of the tokens that core signs. */
  readonly tokenAlg: string
  readonly trustedProxyHops: number
  /** Origin of the builder API's edge. */
  readonly edgeUrl?: string | undefined
  readonly webhook?: Webhook | undefined
  readonly webhookSecrets?: Reloadable<readonly string[]> | undefined
  readonly validateV2?: boolean | undefined
  readonly ingestSecret?: Reloadable<string | undefined>
  readonly adminPort?: number | undefined
  /** The settings of this process, for platform admins. */
  readonly ownSettings?: OwnSettings | undefined
}

/** Adds all routes of the platform API's listener. */
export async function platformRoutes(app: App, deps: PlatformDeps): Promise<void> {
  await collectDocuments(app, deps.publicUrl)
  markDeprecatedRoutes(app, deps.publicUrl)
  addSchemas(app, [Success])
  healthRoute(app)
  await documentRoutes(app, deps)
  oidcRoutes(app, deps)
  for (const addRoutes of nouns) addRoutes(app)
  goneRoutes(app, deps)
  sessionRoutes(app, deps)
  invitationRoutes(app, deps)
  validateRoutes(app, deps)
  ingestRoutes(app, deps)
  testCallRoutes(app, deps)
  configurationRoutes(app, deps)
  errorPages(app, refusalHelp)
  await pageRoutes(app, deps)
  if (deps.webhook) webhookRoutes(app, deps.webhook, deps)
}

const nouns = [
  userRoutes,
  tokenRoutes,
  keyRoutes,
  allowanceRoutes,
  limitRoutes,
  userHoldRoutes,
  subscriptionRoutes,
  usageRoutes,
  balanceRoutes,
  usageLossRoutes,
  usageHistoryRoutes,
  ticketRoutes,
  receiptRoutes,
  usageStreamRoutes,
  appRoutes,
  memberRoutes,
  quotaRoutes,
  billingRoutes,
  invoiceRoutes,
  collectionRoutes,
  overageRoutes,
  statementRoutes,
  processorRoutes,
  walletRoutes,
  paymentRoutes,
  payoutRoutes,
  paymentMethodRoutes,
  planCheckoutRoutes,
  processorEventRoutes,
  settingsRoutes,
  ownerPlanRoutes,
  whatIfRoutes,
  testClockRoutes,
  credentialRoutes,
  domainRoutes,
  trustedIssuerRoutes,
  webhookEndpointRoutes,
  webhookDeliveryRoutes,
  auditRoutes,
  routingRoutes,
  decisionRoutes,
  signerSecretRoutes,
  manifestRoutes,
  discoveryProfileRoutes,
  planRoutes,
  catalogRoutes,
  appKeyRoutes,
  operateRoutes,
  meRoutes,
]

/**
 * Marks answers of deprecated routes and links the route that replaces them (RFC 8594, RFC 9745).
 */
function markDeprecatedRoutes(app: App, publicUrl: string): void {
  app.addHook('onRequest', async (request, reply) => {
    const { successor, deprecated } = request.routeOptions.config.rules ?? {}
    if (deprecated) void reply.header('deprecation', 'true')
    if (successor === undefined) return
    const path = successor.replace(/:([A-Za-z]+)/g, (_, name: string) =>
      encodeURIComponent(textMember(request.params, name) ?? ''),
    )
    const link = `<${publicUrl}${path}>; rel="successor-version"`
    void reply.header('deprecation', 'true').header('link', link)
  })
}

const healthRoute = get({
  url: '/health',
  guard: { kind: 'none' },
  operationId: 'getHealth',
  summary: 'Whether the process answers',
  description:
    'Answers as soon as the process serves requests. It does not check the parts that the process depends on; /readyz of the admin listener does.',
  tags: ['service'],
  response: { 200: Type.Object({ status: Type.String() }) },
  handler: async () => ({ status: 'ok' }),
})
