import type * as pb from '../../proto/gen/ts-proto/tollgate/usage/v1/usage.ts'
import {
  type Caller,
  type RequireMetering,
  type UserCaller,
  m2mBasic,
  endUser,
} from '../rpc/callers.ts'
import { type Handlers, type StreamContext, rpc, streamRpc } from '../rpc/serve.ts'
import type { Follow } from './feed/follow.ts'
import type { History, HistoryQuery } from './history/history.ts'
import { toRequest, toSaid, toSession, toUsage } from './render.ts'
import type { Usage, UsageQuery } from './service.ts'
import type { UserFinder } from './users.ts'

export interface UsageRpcDeps {
  readonly usage: Usage
  readonly history: History
  readonly follow: Follow
  readonly findUser: UserFinder
  readonly requireMetering: RequireMetering
}

export function createUsageRpc({
  usage,
  history,
  follow,
  findUser,
  requireMetering,
}: UsageRpcDeps) {
  const app = requireMetering(m2mBasic())
  const own = requireMetering(endUser())

  const usageService: Handlers<pb.UsageServiceServer> = {
    queryUsage: rpc(app, async (request: pb.QueryUsageRequest, caller) => {
      const query = queryOf(request)
      return {
        usage: toUsage(
          caller.clientId,
          query,
          await usage.query(caller.appId, query, request.userId),
        ),
      }
    }),

    queryOwnUsage: rpc(own, async (request: pb.QueryOwnUsageRequest, caller) => {
      const query = queryOf(request)
      return { usage: toUsage(caller.clientId, query, await usage.queryOwn(selfOf(caller), query)) }
    }),

    listUsageRequests: rpc(app, async (request: pb.ListUsageRequestsRequest, caller) => {
      const { items, nextCursor } = await history.requests(
        caller.appId,
        historyOf(request),
        request.userId,
      )
      return { requests: items.map(toRequest), nextCursor }
    }),

    listOwnUsageRequests: rpc(own, async (request: pb.ListOwnUsageRequestsRequest, caller) => {
      const { items, nextCursor } = await history.ownRequests(selfOf(caller), historyOf(request))
      return {
        requests: items.map(toRequest),
        nextCursor,
        clientId: caller.clientId,
        externalUserId: caller.externalUserId,
      }
    }),

    listUsageSessions: rpc(app, async (request: pb.ListUsageSessionsRequest, caller) => {
      const { items, nextCursor } = await history.sessions(
        caller.appId,
        historyOf(request),
        request.userId,
      )
      return { sessions: items.map((item) => toSession(item, history.endOf(item))), nextCursor }
    }),

    listOwnUsageSessions: rpc(own, async (request: pb.ListOwnUsageSessionsRequest, caller) => {
      const { items, nextCursor } = await history.ownSessions(selfOf(caller), historyOf(request))
      return {
        sessions: items.map((item) => toSession(item, history.endOf(item))),
        nextCursor,
        clientId: caller.clientId,
        externalUserId: caller.externalUserId,
      }
    }),

    streamUsage: streamRpc(app, async (request: pb.StreamUsageRequest, emit: Emit, context) => {
      const of =
        request.userId === undefined ? null : await findUser(context.caller.appId, request.userId)
      await follow({
        ...streaming(emit, context),
        appId: context.caller.appId,
        userId: of?.id ?? null,
        after: request.after,
      })
    }),

    streamOwnUsage: streamRpc(
      own,
      async (request: pb.StreamOwnUsageRequest, emit: Emit, context) => {
        await follow({
          ...streaming(emit, context),
          ...selfOf(context.caller),
          userId: context.caller.userId,
          after: request.after,
        })
      },
    ),
  }
  return { usageService }
}

type Emit = (message: pb.StreamUsageResponse) => void

const streaming = <C extends Caller>(
  emit: Emit,
  { writable, reauthorize, signal }: StreamContext<C>,
) => ({
  emit: (said: Parameters<typeof toSaid>[0]) => emit(toSaid(said)),
  writable,
  readmit: reauthorize,
  signal,
})

const selfOf = ({ appId, userId, externalUserId }: UserCaller) => ({
  appId,
  id: userId,
  externalUserId,
})

const queryOf = ({
  startDate,
  endDate,
  groupBy,
  gatewayRequestId,
  includeRetail,
}: pb.QueryOwnUsageRequest): UsageQuery => ({
  startDate,
  endDate,
  groupBy,
  gatewayRequestId,
  includeRetail,
})

const historyOf = ({
  manifestId,
  startDate,
  endDate,
  limit,
  cursor,
}: pb.ListOwnUsageRequestsRequest): HistoryQuery => ({
  manifestId,
  startDate,
  endDate,
  limit,
  cursor,
})
