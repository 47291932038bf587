import { Type } from 'typebox'
import type {
  UsageRequest as RequestMessage,
  UsageSession as SessionMessage,
} from '../../../proto/gen/es/tollgate/usage/v1/usage_pb.ts'
import type { App } from '../../http/app.ts'
import { route } from '../../http/route.ts'
import { addSchemas, ref } from '../../http/schemas.ts'
import { AppParams, nextPage, oneOf, text } from '../schemas.ts'
import { dateQuery, refuseOtherUser, toCount, userQuery, withOneUser } from './query.ts'
import { UsageHistory, UsageRequest, UsageSession } from './schemas.ts'

const historyQuery = {
  groupBy: Type.Optional(
    oneOf(['request', 'session'], 'Tickets one by one (the default), or signer sessions.'),
  ),
  ...dateQuery,
  manifestId: Type.Optional(text('only this manifest')),
  limit: Type.Optional(
    Type.String({
      pattern: '^([1-9]|[1-4][0-9]|50)$',
      description: 'a whole number from 1 to 50; 25 when absent',
    }),
  ),
  cursor: Type.Optional(text('nextCursor of the page before, with the same filters')),
}
const AppQuery = Type.Object({
  ...historyQuery,
  ...userQuery,
})

const summary = 'the newest first; without dates those of the current UTC month'

/** Routes that list single tickets or sessions, for their user and for the app's backend. */
export function usageHistoryRoutes(app: App): void {
  addSchemas(app, [UsageRequest, UsageSession, UsageHistory])
  readOwnHistory(app)
  readHistory(app)
}

function readOwnHistory(app: App): void {
  app.get(
    '/api/v1/user/usage/requests',
    route(
      { guard: { kind: 'user' }, metered: true },
      {
        operationId: 'listOwnUsageRequests',
        summary: `Own tickets or sessions, ${summary}`,
        description:
          "Lists the user's own tickets or, with groupBy=session, its signer sessions, in pages of at most 50.",
        tags: ['end user'],
        querystring: Type.Object(historyQuery),
        response: { 200: ref(UsageHistory) },
      },
    ),
    async ({ query: { groupBy = 'request', limit, ...query }, core }) => {
      refuseOtherUser(query)
      const filter = { ...query, limit: Number(limit ?? 0) }
      if (groupBy === 'session') {
        const { sessions, externalUserId, ...head } = await core.usage.ownSessions(filter)
        const { clientId } = head
        return {
          ...headOf({ ...head, groupBy }),
          externalUserId,
          items: sessions.map((item) => toSession(item, clientId)),
        }
      }
      const { requests, externalUserId, ...head } = await core.usage.ownRequests(filter)
      const { clientId } = head
      return {
        ...headOf({ ...head, groupBy }),
        externalUserId,
        items: requests.map((item) => toRequest(item, clientId)),
      }
    },
  )
}

function readHistory(app: App): void {
  app.get(
    '/api/v1/builder/apps/:clientId/usage/requests',
    route(
      { guard: { kind: 'm2m_basic' }, limit: 'failures', metered: true },
      {
        operationId: 'listUsageRequests',
        summary: `Tickets or sessions of the app, ${summary}`,
        description:
          'Lists tickets of the app or, with groupBy=session, its signer sessions, in pages of at most 50; of one user if the query names it.',
        tags: ['usage'],
        params: AppParams,
        querystring: AppQuery,
        response: { 200: ref(UsageHistory) },
      },
    ),
    async ({ params, query: { groupBy = 'request', limit, ...query }, core }) => {
      const filter = { ...params, ...withOneUser(query), limit: Number(limit ?? 0) }
      const { clientId } = params
      if (groupBy === 'session') {
        const { sessions, ...head } = await core.usage.sessions(filter)
        return {
          ...headOf({ ...head, clientId, groupBy }),
          items: sessions.map((item) => toSession(item, clientId)),
        }
      }
      const { requests, ...head } = await core.usage.requests(filter)
      return {
        ...headOf({ ...head, clientId, groupBy }),
        items: requests.map((item) => toRequest(item, clientId)),
      }
    },
  )
}

interface Head {
  readonly clientId: string
  readonly groupBy: string
  readonly openmeterConfigured: boolean
  readonly nextCursor?: string | undefined
}

// Existing clients expect this spelling of the flag.
const headOf = ({ clientId, groupBy, openmeterConfigured, nextCursor }: Head) => ({
  clientId,
  groupBy,
  openMeterConfigured: openmeterConfigured,
  ...nextPage(nextCursor),
})

export const toRequest = (item: RequestMessage, clientId: string) => ({
  time: item.time,
  clientId,
  appName: item.appName,
  endUserId: item.endUserId,
  externalUserId: item.externalUserId ?? null,
  eventId: item.eventId,
  gatewayRequestId: item.gatewayRequestId,
  pipeline: item.pipeline,
  modelId: item.modelId,
  manifestId: item.manifestId,
  sessionId: item.sessionId,
  sequenceNumber: item.sequenceNumber,
  feeWei: item.feeWei,
  networkFeeUsdMicros: item.networkFeeUsdMicros ?? null,
  networkFeeUsdExact: item.networkFeeUsdExact ?? null,
  endUserBillableUsdMicros: item.endUserBillableUsdMicros ?? null,
  endUserBillableUsdExact: item.endUserBillableUsdExact ?? null,
  ownerChargeUsdMicros: item.ownerChargeUsdMicros ?? null,
  platformFeeUsdExact: item.platformFeeUsdExact ?? null,
  platformFeeWei: item.platformFeeWei ?? null,
  termsId: item.termsId ?? null,
  priceRule: item.priceRule ?? null,
  ethUsdPrice: item.ethUsdPrice ?? null,
  billableSecs: item.billableSecs,
  pixels: item.pixels,
})

const toSession = (item: SessionMessage, clientId: string) => ({
  sessionId: item.sessionId,
  manifestId: item.manifestId,
  clientId,
  appName: item.appName,
  endUserId: item.endUserId,
  externalUserId: item.externalUserId ?? null,
  pipeline: item.pipeline,
  modelId: item.modelId,
  requestCount: toCount(item.requestCount),
  unpricedCount: toCount(item.unpricedCount),
  feeWei: item.feeWei,
  networkFeeUsdMicros: item.networkFeeUsdMicros,
  networkFeeUsdExact: item.networkFeeUsdExact,
  endUserBillableUsdMicros: item.endUserBillableUsdMicros,
  endUserBillableUsdExact: item.endUserBillableUsdExact,
  ownerChargeUsdMicros: item.ownerChargeUsdMicros,
  platformFeeUsdExact: item.platformFeeUsdExact,
  platformFeeWei: item.platformFeeWei,
  billableSecs: item.billableSecs,
  pixels: item.pixels,
  startedAt: item.startedAt,
  ...(item.endedAt === undefined ? {} : { endedAt: item.endedAt }),
})
