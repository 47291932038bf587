import type * as pb from '../../../proto/gen/ts-proto/tollgate/plans/v1/subscriptions.ts'
import { DomainError } from '../../../proto/errors.ts'
import { Scope } from '../../../proto/scopes.ts'
import type { Pool } from '../../lib/sql.ts'
import { findApp } from '../../platform/clients.ts'
import { parseCursor, parseLimit } from '../../platform/cursor.ts'
import { parseIdempotencyKey } from '../../platform/idempotency.ts'
import type { AppId } from '../../platform/ids.ts'
import {
  type M2mCaller,
  type MemberCaller,
  m2mOrMember,
  operator,
  operatorActor,
  operatorWrite,
} from '../../rpc/callers.ts'
import { type Context, type Handlers, rpc } from '../../rpc/serve.ts'
import type { Author, Subscriptions } from './subscriptions.ts'
import type { SubscriptionViews } from './views.ts'

interface SubscriptionsRpcDeps {
  readonly pool: Pool
  readonly subscriptions: Subscriptions
  readonly views: SubscriptionViews
}

const authorOf = (caller: M2mCaller | MemberCaller, { correlationId }: Context): Author => ({
  name: caller.kind === 'm2m' ? caller.m2mClientId : caller.accountId,
  correlationId,
  isOperator: false,
})

export function createSubscriptionsRpc({ subscriptions, views }: SubscriptionsRpcDeps) {
  const reading = m2mOrMember(Scope.usersRead)
  const writing = m2mOrMember(Scope.usersWrite, 'edit')
  const subscriptionService: Handlers<pb.SubscriptionServiceServer> = {
    getSubscription: rpc(reading, async (request: pb.GetSubscriptionRequest, { appId }) => ({
      state: await views.read(appId, request.externalUserId),
    })),
    listSubscriptions: rpc(reading, async (request: pb.ListSubscriptionsRequest, { appId }) =>
      views.list(appId, request.externalUserId, {
        after: parseCursor(request.cursor),
        limit: parseLimit(request.limit),
      }),
    ),
    changeSubscription: rpc(
      writing,
      async (request: pb.ChangeSubscriptionRequest, caller, context) => {
        const { externalUserId, planId, timing, successUrl, cancelUrl } = request
        const idempotencyKey = parseIdempotencyKey(request.idempotencyKey)
        const body = { externalUserId, planId, timing, successUrl, cancelUrl, idempotencyKey }
        const author = authorOf(caller, context)
        return { change: await subscriptions.change(caller.appId, body, author) }
      },
    ),
    cancelSubscription: rpc(
      writing,
      async (request: pb.CancelSubscriptionRequest, caller, context) => ({
        change: await subscriptions.cancel(caller.appId, request, authorOf(caller, context)),
      }),
    ),
    resumeSubscription: rpc(
      writing,
      async (request: pb.ResumeSubscriptionRequest, caller, context) => ({
        change: await subscriptions.resume(caller.appId, request, authorOf(caller, context)),
      }),
    ),
  }
  return { subscriptionService }
}

const historyLength = 20

/** Subscription service for operators: any app, without payment method or activation gate. */
export function createOperatorSubscriptionsRpc({
  pool,
  subscriptions,
  views,
}: SubscriptionsRpcDeps) {
  async function appOf(clientId: string): Promise<AppId> {
    const app = await findApp(pool, clientId)
    if (app === null) throw new DomainError('NOT_FOUND', 'no app has this client id')
    return app
  }

  const operatorSubscriptionService: Handlers<pb.OperatorSubscriptionServiceServer> = {
    readSubscription: rpc(operator(), async (request: pb.ReadSubscriptionRequest) => {
      const app = await appOf(request.clientId)
      const state = await views.read(app, request.externalUserId)
      const last = { after: null, limit: historyLength }
      const { items } = await views.list(app, request.externalUserId, last)
      return { state, items }
    }),
    switchSubscription: rpc(
      operatorWrite(),
      async (request: pb.SwitchSubscriptionRequest, _, context) => {
        const { externalUserId, planId, timing } = request
        const idempotencyKey = parseIdempotencyKey(request.idempotencyKey)
        const urls = { successUrl: undefined, cancelUrl: undefined }
        const body = { externalUserId, planId, timing, ...urls, idempotencyKey }
        const app = await appOf(request.clientId)
        return { change: await subscriptions.change(app, body, operatorOf(context)) }
      },
    ),
    endSubscription: rpc(
      operatorWrite(),
      async (request: pb.EndSubscriptionRequest, _, context) => {
        const { externalUserId, timing } = request
        const body = { externalUserId, timing, confirm: true }
        const app = await appOf(request.clientId)
        return { change: await subscriptions.cancel(app, body, operatorOf(context)) }
      },
    ),
    keepSubscription: rpc(
      operatorWrite(),
      async (request: pb.KeepSubscriptionRequest, _, context) => {
        const body = { externalUserId: request.externalUserId, confirm: true }
        const app = await appOf(request.clientId)
        return { change: await subscriptions.resume(app, body, operatorOf(context)) }
      },
    ),
  }
  return { operatorSubscriptionService }
}

const operatorOf = (context: Context): Author => ({
  name: operatorActor(context).name,
  correlationId: context.correlationId,
  isOperator: true,
})
