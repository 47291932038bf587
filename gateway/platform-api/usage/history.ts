import { Type } from 'typebox'
import { DomainError } from '../../../proto/errors.ts'
import type { App } from '../../http/listener.ts'
import { AppParams, text } from '../request-schemas.ts'
import { route } from '../../http/route.ts'
import { oneOf, ref } from '../schemas.ts'
import { UsageHistory } from './schemas.ts'
import { refuseOtherUser } from '../users/end-user.ts'
import { dateQuery } from './usage.ts'
import { toRequest, toSession } from './reply.ts'

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
  userId: Type.Optional(text('an endUserId or an externalUserId')),
  externalUserId: Type.Optional(text('the same')),
})

const summary = 'the newest first; without dates those of the current UTC month'

/** Tickets and sessions one by one, for their user and for the app's backend. */
export function usageHistoryRoutes(app: App): void {
  app.get(
    '/api/v1/user/usage/requests',
    route(
      { guard: { kind: 'user' }, metered: true },
      {
        summary: `Own tickets or sessions, ${summary}`,
        tags: ['end user'],
        querystring: Type.Object(historyQuery),
        response: { 200: ref(UsageHistory) },
      },
    ),
    async ({ query: { groupBy = 'request', limit, ...query }, core }) => {
      refuseOtherUser(query)
      const asked = { ...query, limit: Number(limit ?? 0) }
      if (groupBy === 'session') {
        const { sessions, clientId, externalUserId, nextCursor } =
          await core.usage.ownSessions(asked)
        return {
          ...headOf({ clientId, groupBy, nextCursor }),
          externalUserId,
          items: sessions.map((item) => toSession(item, clientId)),
        }
      }
      const { requests, clientId, externalUserId, nextCursor } = await core.usage.ownRequests(asked)
      return {
        ...headOf({ clientId, groupBy, nextCursor }),
        externalUserId,
        items: requests.map((item) => toRequest(item, clientId)),
      }
    },
  )

  app.get(
    '/api/v1/builder/apps/:clientId/usage/requests',
    route(
      { guard: { kind: 'm2m_basic' }, metered: true },
      {
        summary: `Tickets or sessions of the app, ${summary}`,
        tags: ['usage'],
        params: AppParams,
        querystring: AppQuery,
        response: { 200: ref(UsageHistory) },
      },
    ),
    async ({
      params,
      query: { groupBy = 'request', limit, userId, externalUserId, ...query },
      core,
    }) => {
      if (userId !== undefined && externalUserId !== undefined) {
        throw new DomainError(
          'REQUEST_INVALID',
          'name the user by userId or by externalUserId, not by both',
        )
      }
      const asked = {
        ...params,
        ...query,
        userId: userId ?? externalUserId,
        limit: Number(limit ?? 0),
      }
      const { clientId } = params
      if (groupBy === 'session') {
        const { sessions, nextCursor } = await core.usage.sessions(asked)
        return {
          ...headOf({ clientId, groupBy, nextCursor }),
          items: sessions.map((item) => toSession(item, clientId)),
        }
      }
      const { requests, nextCursor } = await core.usage.requests(asked)
      return {
        ...headOf({ clientId, groupBy, nextCursor }),
        items: requests.map((item) => toRequest(item, clientId)),
      }
    },
  )
}

interface Head {
  readonly clientId: string
  readonly groupBy: string
  readonly nextCursor: string | undefined
}

// The name of the flag is what existing clients read.
const headOf = ({ clientId, groupBy, nextCursor }: Head) => ({
  clientId,
  groupBy,
  openMeterConfigured: true,
  ...(nextCursor === undefined ? {} : { nextCursor }),
})
