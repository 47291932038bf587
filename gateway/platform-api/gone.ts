import { Type } from 'typebox'
import { DomainError, type Reason } from '../../proto/errors.ts'
import type { App } from '../http/app.ts'
import { get } from '../http/endpoint.ts'
import { renderError } from '../http/errors.ts'
import { route } from '../http/route.ts'
import { CorrelationId, addSchemas, named, ref } from '../http/schemas.ts'
import { UserParams, oneOf } from './schemas.ts'

const tags = ['removed']

const LegacySubscriptions = named(
  Type.Object({
    subscriptions: Type.Array(Type.Object({}, { additionalProperties: true }), {
      description: 'Always empty.',
    }),
    deprecation: Type.String({ description: 'A hint for people: the routes to use instead.' }),
  }),
  'LegacySubscriptions',
)

const codes = [
  'signer_proxy_deprecated',
  'signed_ticket_http_ingest_deprecated',
  'local_subscription_api_deprecated',
  'route_gone',
] as const

const RemovedRoute = named(
  Type.Object({
    type: Type.String(),
    title: Type.String(),
    status: Type.Integer(),
    detail: Type.String(),
    code: oneOf(codes, 'Why.'),
    error: oneOf(codes, 'The same word as code.'),
    error_description: Type.String({ description: 'The same as detail.' }),
    migration: Type.Record(Type.String(), Type.String(), {
      description: 'The routes to use instead, as `METHOD /path`, by purpose.',
    }),
    correlation_id: CorrelationId,
  }),
  'RemovedRoute',
)

/** Why a route was removed, and its replacements by purpose. */
interface Removal {
  readonly reason: Reason
  readonly instead: string
  readonly migration: Readonly<Record<string, string>>
}

const signingProxy: Removal = {
  reason: 'SIGNER_PROXY_DEPRECATED',
  instead:
    'read GET /api/v1/apps/{clientId}/signer/routing, and call the remote signer, which calls the identity webhook',
  migration: {
    routing: 'GET /api/v1/apps/{clientId}/signer/routing',
    token: 'POST /api/v1/apps/{clientId}/oidc/token',
  },
}
const ticketIngest: Removal = {
  reason: 'SIGNED_TICKET_HTTP_INGEST_DEPRECATED',
  instead: "nothing replaces it: usage is metered from the signer's event stream",
  migration: {
    usage: 'GET /api/v1/builder/apps/{clientId}/usage',
    requests: 'GET /api/v1/builder/apps/{clientId}/usage/requests',
  },
}
const subscriptions: Removal = {
  reason: 'LOCAL_SUBSCRIPTION_API_DEPRECATED',
  instead:
    'POST /api/v1/apps/{clientId}/users subscribes a new user; read GET /api/v1/apps/{clientId}/users/{externalUserId}/subscription, and its allowances',
  migration: {
    provision: 'POST /api/v1/apps/{clientId}/users',
    subscription: 'GET /api/v1/apps/{clientId}/users/{externalUserId}/subscription',
    change: 'POST /api/v1/apps/{clientId}/users/{externalUserId}/subscription/change',
    allowances: 'GET /api/v1/apps/{clientId}/users/{externalUserId}/allowances',
    balance: 'GET /api/v1/builder/apps/{clientId}/usage/balance',
  },
}
const credits: Removal = {
  reason: 'ROUTE_GONE',
  instead: 'use POST /api/v1/apps/{clientId}/users/{externalUserId}/allowances',
  migration: { allowances: 'POST /api/v1/apps/{clientId}/users/{externalUserId}/allowances' },
}

const networkQuota: Removal = {
  reason: 'ROUTE_GONE',
  instead:
    "the owner's account bounds what its apps cost: give it credit, raise its ceiling, or let it take an owner plan",
  migration: {
    read: 'GET /api/v1/quotas/network',
    credit: 'POST /api/v1/apps/{clientId}/users/{externalUserId}/allowances',
    plan: 'POST /api/v1/apps/{clientId}/billing/owner-plan',
  },
}

interface RemovedAddress {
  readonly method: 'GET' | 'POST' | 'PUT' | 'DELETE'
  readonly url: string
  readonly operationId: string
  readonly removal: Removal
}

const removedRoutes: readonly RemovedAddress[] = [
  {
    method: 'POST',
    url: '/api/signer/generate-live-payment',
    operationId: 'generateLivePayment',
    removal: signingProxy,
  },
  {
    method: 'POST',
    url: '/api/signer/sign-orchestrator-info',
    operationId: 'signOrchestratorInfo',
    removal: signingProxy,
  },
  {
    method: 'POST',
    url: '/api/signer/sign-byoc-job',
    operationId: 'signByocJob',
    removal: signingProxy,
  },
  {
    method: 'GET',
    url: '/api/signer/discover-orchestrators',
    operationId: 'discoverOrchestrators',
    removal: signingProxy,
  },
  {
    method: 'POST',
    url: '/api/v1/apps/:clientId/usage/signed-tickets',
    operationId: 'reportSignedTickets',
    removal: ticketIngest,
  },
  {
    method: 'POST',
    url: '/api/v1/apps/:clientId/users/:externalUserId/credits',
    operationId: 'createCredits',
    removal: credits,
  },
  {
    method: 'POST',
    url: '/api/v1/subscriptions',
    operationId: 'createLegacySubscription',
    removal: subscriptions,
  },
  {
    method: 'DELETE',
    url: '/api/v1/subscriptions',
    operationId: 'deleteLegacySubscription',
    removal: subscriptions,
  },
  {
    method: 'PUT',
    url: '/api/v1/quotas/network',
    operationId: 'updateNetworkQuota',
    removal: networkQuota,
  },
]

/** Removed routes, and one that remains only to report its removal. */
export function goneRoutes(app: App, { publicUrl }: { readonly publicUrl: string }): void {
  addSchemas(app, [LegacySubscriptions, RemovedRoute])
  for (const address of removedRoutes) refuseRemovedRoute(app, address, publicUrl)
  listSubscriptions(app)
}

/**
 * Answers 410 to every request, before reading any credential or body, with the codes that older
 * clients handle.
 */
function refuseRemovedRoute(
  app: App,
  { method, url, operationId, removal }: RemovedAddress,
  publicUrl: string,
): void {
  const {
    status,
    type,
    body: example,
  } = describeRemoval(removal, { correlationId: 'c-1', publicUrl })
  app.route({
    ...route({
      guard: { kind: 'none' },
      gone: true,
      refuses: [removal.reason],
      operationId,
      summary: `Removed: ${removal.instead}`,
      description:
        'This route was removed. It returns 410 to every request and reads neither credential nor body.',
      tags,
      ...(url.includes(':') ? { params: paramsOf(url) } : {}),
      response: {
        [status]: Type.Unsafe<object>({
          description: 'Gone',
          content: {
            [type]: {
              schema: ref(RemovedRoute),
              examples: { [example.code]: { value: example } },
            },
          },
        }),
      },
    }),
    method,
    url,
    onRequest: async (request, reply) => {
      const { correlationId } = request
      request.reason = removal.reason
      return reply
        .code(status)
        .type(type)
        .headers({ deprecation: 'true', 'cache-control': 'no-store' })
        .send(describeRemoval(removal, { correlationId, publicUrl }).body)
    },
    handler: async () => undefined,
  })
}

/** Returns status, content type and body of the answer. */
function describeRemoval(
  { reason, instead, migration }: Removal,
  context: { readonly correlationId: string; readonly publicUrl: string },
) {
  const error = new DomainError(reason, `this route was removed; ${instead}`)
  const { status, type, body } = renderError({ error, wire: 'problem', ...context })
  const code = reason.toLowerCase()
  return { status, type, body: { ...body, code, error_description: error.message, migration } }
}

const listSubscriptions = get({
  url: '/api/v1/subscriptions',
  guard: { kind: 'session' },
  operationId: 'listLegacySubscriptions',
  summary: 'Deprecated: this route stores nothing',
  description: 'Returns an empty list and a hint, for older clients.',
  tags,
  response: { 200: ref(LegacySubscriptions) },
  handler: async ({ core }, reply) => {
    await core.callers.checkCaller({ kind: 'session' })
    void reply.header('deprecation', 'true')
    return {
      subscriptions: [],
      deprecation: `This route no longer has subscriptions; ${subscriptions.instead}.`,
    }
  },
})

const paramsOf = (url: string) =>
  Type.Object(
    Object.fromEntries(
      url
        .split('/')
        .filter((part) => part.startsWith(':'))
        .map((part) => [part.slice(1), paramOf(part.slice(1))]),
    ),
  )

const paramOf = (name: string) =>
  Object.entries(UserParams.properties).find(([known]) => known === name)?.[1] ?? Type.String()
