import { infiniteQueryOptions, queryOptions } from '@tanstack/react-query'
import { type Schemas, api, keepEarlier, unwrap } from './client.ts'
import { readTransactions } from './money.ts'

const listSize = '50'
/** Who asks for more users gets more at once. */
const furtherSize = '500'
const foundSize = '5'
export const decisionsMax = 100

/** A user of an app, as every route below `…/users/{externalUserId}` names it. */
export interface UserRef {
  readonly clientId: string
  readonly externalUserId: string
}

export interface UserFilter {
  readonly status?: Schemas['User']['status']
  /** The beginning of the external id or of the e-mail address. */
  readonly user?: string
}

const nextCursor = (page: { nextCursor?: string }): string | undefined => page.nextCursor
const withCursor = (cursor: string) => (cursor === '' ? {} : { cursor })

/** Users by status and beginning. While others load, those of the app by the filter before stay. */
export const usersQuery = (clientId: string, { status, user }: UserFilter) =>
  infiniteQueryOptions({
    queryKey: ['users', clientId, { status, user }],
    initialPageParam: '',
    getNextPageParam: nextCursor,
    placeholderData: keepEarlier(['users', clientId]),
    queryFn: ({ pageParam: cursor, signal }) => {
      const query = {
        limit: cursor === '' ? listSize : furtherSize,
        ...withCursor(cursor),
        ...(status !== undefined && { status }),
        ...(user !== undefined && { startsWith: user }),
      }
      return unwrap(
        api.GET('/api/v1/internal/apps/{clientId}/users', {
          params: { path: { clientId }, query },
          signal,
        }),
      )
    },
  })

/** The first users whose external ids or e-mail addresses begin with the text. */
export const usersBeginningQuery = (clientId: string, startsWith: string) =>
  queryOptions({
    queryKey: ['users', clientId, 'beginning', startsWith],
    queryFn: async ({ signal }) => {
      const query = { limit: foundSize, startsWith }
      const { users } = await unwrap(
        api.GET('/api/v1/internal/apps/{clientId}/users', {
          params: { path: { clientId }, query },
          signal,
        }),
      )
      return users
    },
  })

const about = ({ clientId, externalUserId }: UserRef, part: string) =>
  ['user', clientId, externalUserId, part] as const

/** Keys of everything that is read about one user. */
export const userKey = ({ clientId, externalUserId }: UserRef) =>
  ['user', clientId, externalUserId] as const

/** The user, or null if the app has none with this id. */
export const userQuery = (user: UserRef) =>
  queryOptions({
    queryKey: about(user, 'user'),
    queryFn: async () => {
      const { clientId, externalUserId } = user
      const { users } = await unwrap(
        api.GET('/api/v1/internal/apps/{clientId}/users', {
          params: { path: { clientId }, query: { externalUserId } },
        }),
      )
      return users[0] ?? null
    },
  })

export const allowanceQuery = (user: UserRef) =>
  queryOptions({
    queryKey: about(user, 'allowance'),
    refetchInterval: 30_000,
    queryFn: () =>
      unwrap(
        api.GET('/api/v1/internal/apps/{clientId}/users/{externalUserId}/allowances', {
          params: { path: { ...user } },
        }),
      ),
  })

/** What is held of the user's money now. */
export const userHoldsQuery = (user: UserRef) =>
  queryOptions({
    queryKey: about(user, 'holds'),
    refetchInterval: 5_000,
    queryFn: () =>
      unwrap(
        api.GET('/api/v1/internal/apps/{clientId}/users/{externalUserId}/holds', {
          params: { path: { ...user } },
        }),
      ),
  })

export const subscriptionQuery = (user: UserRef) =>
  queryOptions({
    queryKey: about(user, 'subscription'),
    queryFn: () =>
      unwrap(
        api.GET('/api/v1/apps/{clientId}/users/{externalUserId}/subscription', {
          params: { path: { ...user } },
        }),
      ),
  })

export const keysQuery = (user: UserRef) =>
  infiniteQueryOptions({
    queryKey: about(user, 'keys'),
    initialPageParam: '',
    getNextPageParam: nextCursor,
    queryFn: ({ pageParam: cursor }) =>
      unwrap(
        api.GET('/api/v1/internal/apps/{clientId}/users/{externalUserId}/keys', {
          params: { path: { ...user }, query: { limit: listSize, ...withCursor(cursor) } },
        }),
      ),
  })

export type SignerSession = Schemas['SignerSessionList']['sessions'][number]

/** Signer sessions, the newest first. */
export const signerSessionsQuery = (user: UserRef) =>
  infiniteQueryOptions({
    queryKey: about(user, 'signer-sessions'),
    initialPageParam: '',
    getNextPageParam: nextCursor,
    queryFn: ({ pageParam: cursor }) =>
      unwrap(
        api.GET('/api/v1/internal/apps/{clientId}/users/{externalUserId}/signer-sessions', {
          params: { path: { ...user }, query: { limit: listSize, ...withCursor(cursor) } },
        }),
      ),
  })

/** A user, or one of its keys, which may have limits of its own. */
export interface LimitedRef extends UserRef {
  readonly keyId?: string
}

const userUrl = '/api/v1/internal/apps/{clientId}/users/{externalUserId}'

export const limitsQuery = ({ keyId, ...user }: LimitedRef) =>
  queryOptions({
    queryKey: [...about(user, 'limits'), keyId],
    queryFn: () =>
      unwrap(
        keyId === undefined
          ? api.GET(`${userUrl}/limits`, { params: { path: { ...user } } })
          : api.GET(`${userUrl}/keys/{keyId}/limits`, { params: { path: { ...user, keyId } } }),
      ),
  })

/** Reads tickets, or signer sessions, of a UTC month such as `2026-03`; the newest first. */
function readHistory(
  { clientId, externalUserId }: UserRef,
  { month, cursor, groupBy }: { month: string; cursor: string; groupBy: 'request' | 'session' },
) {
  const query = {
    externalUserId,
    groupBy,
    startDate: `${month}-01`,
    endDate: lastDay(month),
    // The most that the route allows.
    limit: listSize,
    ...withCursor(cursor),
  }
  return unwrap(
    api.GET('/api/v1/internal/apps/{clientId}/usage/requests', {
      params: { path: { clientId }, query },
    }),
  )
}

export const ticketsQuery = (user: UserRef, month: string) =>
  infiniteQueryOptions({
    queryKey: [...about(user, 'tickets'), month],
    initialPageParam: '',
    getNextPageParam: nextCursor,
    queryFn: async ({ pageParam: cursor }) => {
      const { items, ...page } = await readHistory(user, { month, cursor, groupBy: 'request' })
      return { ...page, tickets: items.filter((item) => 'eventId' in item) }
    },
  })

export const sessionsQuery = (user: UserRef, month: string) =>
  infiniteQueryOptions({
    queryKey: [...about(user, 'sessions'), month],
    initialPageParam: '',
    getNextPageParam: nextCursor,
    queryFn: async ({ pageParam: cursor }) => {
      const { items, ...page } = await readHistory(user, { month, cursor, groupBy: 'session' })
      return { ...page, sessions: items.filter((item) => 'startedAt' in item) }
    },
  })

const lastDay = (month: string): string => {
  const [year = 0, number = 0] = month.split('-').map(Number)
  return new Date(Date.UTC(year, number, 0)).toISOString().slice(0, 10)
}

export const ticketQuery = (clientId: string, eventId: string) =>
  queryOptions({
    queryKey: ['ticket', clientId, eventId],
    queryFn: () =>
      unwrap(
        api.GET('/api/v1/builder/apps/{clientId}/usage/requests/{eventId}', {
          params: { path: { clientId, eventId } },
        }),
      ),
  })

export const decisionsQuery = (user: UserRef, code: string | undefined) =>
  queryOptions({
    queryKey: [...about(user, 'decisions'), code],
    queryFn: async () => {
      const { clientId, externalUserId } = user
      const query = {
        externalUserId,
        limit: String(decisionsMax),
        ...(code !== undefined && { code }),
      }
      const { decisions } = await unwrap(
        api.GET('/api/v1/apps/{clientId}/decisions', { params: { path: { clientId }, query } }),
      )
      return decisions
    },
  })

export const decisionQuery = (clientId: string, decisionId: string) =>
  queryOptions({
    queryKey: ['decision', clientId, decisionId],
    queryFn: () =>
      unwrap(
        api.GET('/api/v1/apps/{clientId}/decisions/{decisionId}', {
          params: { path: { clientId, decisionId } },
        }),
      ),
  })

/** Whether users of the app pay, so that each has a wallet. */
export const usersPayQuery = (clientId: string) =>
  queryOptions({
    queryKey: ['users-pay', clientId],
    queryFn: async () => {
      const { billingMode } = await unwrap(
        api.GET('/api/v1/apps/{clientId}/billing/settings', { params: { path: { clientId } } }),
      )
      return billingMode === 'merchant'
    },
  })

/** A user's transactions, in any billing mode. They are read again with the user's other data. */
export const transactionsQuery = (user: UserRef) =>
  infiniteQueryOptions({
    queryKey: about(user, 'transactions'),
    initialPageParam: '',
    getNextPageParam: nextCursor,
    queryFn: ({ pageParam: cursor }) => readTransactions(user, cursor, 'user'),
  })

/** The days of a UTC month on which the user was charged, the newest first, and their sum. */
export const daysQuery = (user: UserRef, month: string) =>
  queryOptions({
    queryKey: [...about(user, 'days'), month],
    queryFn: async () => {
      const { clientId, externalUserId } = user
      const query = {
        externalUserId,
        groupBy: 'day' as const,
        include: 'retail' as const,
        startDate: `${month}-01`,
        endDate: lastDay(month),
      }
      const { totals, byDay = [] } = await unwrap(
        api.GET('/api/v1/internal/apps/{clientId}/usage', {
          params: { path: { clientId }, query },
        }),
      )
      return { totals, days: byDay.filter((day) => day.requestCount > 0).toReversed() }
    },
  })
