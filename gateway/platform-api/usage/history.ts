import type { FastifyReply } from 'fastify'
import { Type } from 'typebox'
import type { App } from '../../http/app.ts'
import { get } from '../../http/endpoint.ts'
import { addSchemas, ref } from '../../http/schemas.ts'
import { AppParams, oneOf, text } from '../schemas.ts'
import { dateQuery, refuseOtherUser, userQuery, withOneUser } from './query.ts'
import {
  RequestHistory,
  SessionHistory,
  UsageHistory,
  UsageRequest,
  UsageSession,
} from './schemas.ts'

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

const readOwnHistory = get({
  url: '/api/v1/user/usage/requests',
  guard: { kind: 'user' },
  metered: true,
  operationId: 'listOwnUsageRequests',
  summary: `Own tickets or sessions, ${summary}`,
  description:
    "Lists the user's own tickets or, with groupBy=session, its signer sessions, in pages of at most 50.",
  tags: ['end user'],
  querystring: Type.Object(historyQuery),
  response: { 200: ref(UsageHistory) },
  self: {
    operationId: 'listRequestsOfMe',
    summary: 'Your calls with their prices, newest first',
    description:
      'Lists your tickets or, with groupBy=session, your signer sessions, in pages of at most 50; without dates those of the current UTC month.',
    params: AppParams,
    querystring: Type.Object(historyQuery),
  },
  handler: async ({ query: { groupBy, limit, ...query }, core }, reply) => {
    refuseOtherUser(query)
    const filter = { ...query, limit: Number(limit ?? 0) }
    if (groupBy === 'session') {
      const { sessions, ...page } = await core.usage.listOwnUsageSessions(filter)
      return sendHistory(reply, { ...page, items: sessions, groupBy })
    }
    const { requests, ...page } = await core.usage.listOwnUsageRequests(filter)
    return sendHistory(reply, { ...page, items: requests })
  },
})

const readHistory = get({
  url: '/api/v1/builder/apps/:clientId/usage/requests',
  guard: { kind: 'm2m_basic' },
  members: 'read',
  limit: 'failures',
  metered: true,
  operationId: 'listUsageRequests',
  summary: `Tickets or sessions of the app, ${summary}`,
  description:
    'Lists tickets of the app or, with groupBy=session, its signer sessions, in pages of at most 50; of one user if the query names it.',
  tags: ['usage'],
  params: AppParams,
  querystring: AppQuery,
  response: { 200: ref(UsageHistory) },
  handler: async ({ params, query: { groupBy, limit, ...query }, core }, reply) => {
    const filter = { ...params, ...withOneUser(query), limit: Number(limit ?? 0) }
    if (groupBy === 'session') {
      const { sessions, ...page } = await core.usage.listUsageSessions(filter)
      return sendHistory(reply, { ...page, ...params, items: sessions, groupBy })
    }
    const { requests, ...page } = await core.usage.listUsageRequests(filter)
    return sendHistory(reply, { ...page, ...params, items: requests })
  },
})

interface History {
  readonly clientId: string
  readonly openmeterConfigured: boolean
  readonly items: readonly object[]
  readonly groupBy?: 'session'
}

/** Sends a page of tickets or sessions, each by its own schema. */
function sendHistory(reply: FastifyReply, page: History): FastifyReply {
  const { clientId, groupBy = 'request', openmeterConfigured } = page
  const schema = groupBy === 'session' ? SessionHistory : RequestHistory
  const serialize = reply.compileSerializationSchema(schema)
  return reply
    .type('application/json; charset=utf-8')
    .serializer(serialize)
    .send({
      ...page,
      groupBy,
      // Existing clients expect this spelling of the flag.
      openMeterConfigured: openmeterConfigured,
      items: page.items.map((item) => ({ ...item, clientId })),
    })
}
