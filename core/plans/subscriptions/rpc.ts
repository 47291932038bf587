import type * as pb from '../../../proto/gen/ts-proto/tollgate/plans/v1/subscriptions.ts'
import { Scope } from '../../../proto/scopes.ts'
import { parseCursor, parseLimit } from '../../shared/cursor.ts'
import { parseIdempotencyKey } from '../../shared/idempotency.ts'
import {
  type AppOperatorCaller,
  type M2mCaller,
  type MemberCaller,
  callerName,
  requestedUser,
} from '../../rpc/callers.ts'
import { appOperatorWrite, appReader, m2mOrMember, orOperator, orSelf } from '../../rpc/guards.ts'
import { type Context, type Handlers, rpc } from '../../rpc/serve.ts'
import type { Author } from './change.ts'
import type { Subscriptions } from './subscriptions.ts'
import type { SubscriptionViews } from './views.ts'

interface SubscriptionsRpcDeps {
  readonly subscriptions: Subscriptions
  readonly views: SubscriptionViews
}

const authorOf = (
  caller: M2mCaller | MemberCaller | AppOperatorCaller,
  { correlationId }: Context,
): Author => ({
  name: callerName(caller),
  correlationId,
  isOperator: caller.kind === 'operator',
})

export function createSubscriptionsRpc({ subscriptions, views }: SubscriptionsRpcDeps) {
  const reading = orOperator(m2mOrMember(Scope.usersRead), appReader())
  const writing = orOperator(m2mOrMember(Scope.usersWrite, 'edit'), appOperatorWrite())
  const subscriptionService: Handlers<pb.SubscriptionServiceServer> = {
    getSubscription: rpc(
      orOperator(orSelf(m2mOrMember(Scope.usersRead)), appReader()),
      async (request: pb.GetSubscriptionRequest, caller) => ({
        state: await views.read(caller.appId, requestedUser(caller, request)),
      }),
    ),
    listSubscriptions: rpc(reading, async (request: pb.ListSubscriptionsRequest, { appId }) =>
      views.list(appId, request.externalUserId, {
        after: parseCursor(request.cursor),
        limit: parseLimit(request.limit),
      }),
    ),
    updateSubscription: rpc(
      writing,
      async (request: pb.UpdateSubscriptionRequest, caller, context) => {
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
