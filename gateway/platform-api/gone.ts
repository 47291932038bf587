import { Type } from 'typebox'
import { DomainError } from '../../proto/errors.ts'
import type { App } from '../http/app.ts'
import { route } from '../http/route.ts'
import { addSchemas, named, ref } from '../http/schemas.ts'
import { UserParams } from './schemas.ts'

const tags = ['removed']

const LegacySubscriptions = named(
  Type.Object({
    subscriptions: Type.Array(Type.Object({}, { additionalProperties: true }), {
      description: 'Always empty.',
    }),
    deprecation: Type.String({ description: 'What to use instead.' }),
  }),
  'LegacySubscriptions',
)

interface RemovedRoute {
  readonly method: 'GET' | 'POST' | 'DELETE'
  readonly url: string
  readonly operationId: string
  readonly instead: string
}

const signer =
  'read GET /api/v1/apps/{clientId}/signer/routing, call the remote signer itself, and let it ask the identity webhook'
const plans =
  'use /api/v1/apps/{clientId}/plans and GET /api/v1/apps/{clientId}/users/{externalUserId}/subscription'

const removedRoutes: readonly RemovedRoute[] = [
  {
    method: 'POST',
    url: '/api/signer/generate-live-payment',
    operationId: 'generateLivePayment',
    instead: signer,
  },
  {
    method: 'POST',
    url: '/api/signer/sign-orchestrator-info',
    operationId: 'signOrchestratorInfo',
    instead: signer,
  },
  { method: 'POST', url: '/api/signer/sign-byoc-job', operationId: 'signByocJob', instead: signer },
  {
    method: 'GET',
    url: '/api/signer/discover-orchestrators',
    operationId: 'discoverOrchestrators',
    instead: signer,
  },
  {
    method: 'POST',
    url: '/api/v1/apps/:clientId/usage/signed-tickets',
    operationId: 'reportSignedTickets',
    instead: "send nothing: usage is metered from the signer's event stream",
  },
  {
    method: 'POST',
    url: '/api/v1/apps/:clientId/users/:externalUserId/credits',
    operationId: 'createCredits',
    instead: 'use POST /api/v1/apps/{clientId}/users/{externalUserId}/allowances',
  },
  {
    method: 'POST',
    url: '/api/v1/subscriptions',
    operationId: 'createLegacySubscription',
    instead: plans,
  },
  {
    method: 'DELETE',
    url: '/api/v1/subscriptions',
    operationId: 'deleteLegacySubscription',
    instead: plans,
  },
]

/** Routes that were removed, and the one that remains only to say so. */
export function goneRoutes(app: App): void {
  addSchemas(app, [LegacySubscriptions])
  refuseRemovedRoutes(app)
  listSubscriptions(app)
}

/** Answers 410 to everyone, before any credential or body is read. */
function refuseRemovedRoutes(app: App): void {
  for (const { method, url, operationId, instead } of removedRoutes) {
    app.route({
      ...route(
        { guard: { kind: 'none' }, gone: true },
        {
          operationId,
          summary: `Removed: ${instead}`,
          description:
            'This route was removed and answers 410 to every request, before any credential or body is read.',
          tags,
          ...(url.includes(':') ? { params: paramsOf(url) } : {}),
          response: {},
        },
      ),
      method,
      url,
      onRequest: async (_, reply) => {
        void reply.header('deprecation', 'true')
        throw new DomainError('ROUTE_GONE', `this route was removed; ${instead}`)
      },
      handler: async () => undefined,
    })
  }
}

function listSubscriptions(app: App): void {
  app.get(
    '/api/v1/subscriptions',
    route(
      { guard: { kind: 'session' } },
      {
        operationId: 'listLegacySubscriptions',
        summary: 'Deprecated: nothing is kept here any more',
        description: 'An empty list and a hint, for clients that still ask here.',
        tags,
        response: { 200: ref(LegacySubscriptions) },
      },
    ),
    async ({ core }, reply) => {
      await core.checkCaller({ kind: 'session' })
      void reply.header('deprecation', 'true')
      return {
        subscriptions: [],
        deprecation: `Subscriptions are not kept here any more; ${plans}.`,
      }
    },
  )
}

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
