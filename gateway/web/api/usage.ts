import { infiniteQueryOptions, queryOptions } from '@tanstack/react-query'
import { type Schemas, api, keepEarlier, unwrap } from './client.ts'

/** Queries of an app's usage. Every sum includes what end users are billed. */

export type Usage = Schemas['Usage']
export type Charge = Schemas['UsageCharge']['data']
export type Grouping =
  | 'none'
  | 'day'
  | 'hour'
  | 'daily_top_models'
  | 'hourly_top_models'
  | 'user'
  | 'pipeline_model'
  | 'session'

interface Dates {
  readonly startDate: string
  readonly endDate: string
}

/** The tickets of an app that a view shows: of one user, pipeline or model. */
export interface UsageFilter {
  readonly user?: string | undefined
  readonly pipeline?: string | undefined
  readonly model?: string | undefined
}

export interface UsageSelection extends UsageFilter {
  readonly dates: Dates
  readonly groupBy: Grouping
}

const refreshMs = 15_000
const slowRefreshMs = 60_000
const pastStaleMs = 300_000
/** Larger answers are not read again and again. */
const rowsToRefresh = 1_000

/** Shows the answer for earlier dates until that for the new ones is there. */
export function usageQuery(clientId: string, selection: UsageSelection) {
  const { dates, groupBy, user, pipeline, model } = selection
  const subject = ['usage', clientId, groupBy, user ?? '', pipeline ?? '', model ?? ''] as const
  return queryOptions({
    queryKey: [...subject, dates] as const,
    refetchInterval: ({ state: { data } }) =>
      data && countRows(data) > rowsToRefresh ? false : refreshMs,
    placeholderData: keepEarlier(subject),
    queryFn: () =>
      unwrap(
        api.GET('/api/v1/internal/apps/{clientId}/usage', {
          params: {
            path: { clientId },
            query: {
              ...dates,
              groupBy,
              include: 'retail',
              ...(user !== undefined && { externalUserId: user }),
              ...(pipeline !== undefined && { pipeline }),
              ...(model !== undefined && { modelId: model }),
            },
          },
        }),
      ),
  })
}

/** Like `usageQuery`, for a range that is over. */
export const pastUsageQuery = (clientId: string, selection: UsageSelection) => ({
  ...usageQuery(clientId, selection),
  refetchInterval: false as const,
  staleTime: pastStaleMs,
})

const countRows = ({ byUser, bySession, byDailyTopModels, byHourlyTopModels }: Usage): number =>
  [byUser, bySession, byDailyTopModels, byHourlyTopModels].reduce(
    (count, rows) => count + (rows?.length ?? 0),
    0,
  )

/** How many tickets of any time wait for a price. */
export const unpricedQuery = (clientId: string) =>
  queryOptions({
    queryKey: ['unpriced', clientId],
    refetchInterval: slowRefreshMs,
    queryFn: async () => {
      const { totals } = await unwrap(
        api.GET('/api/v1/internal/apps/{clientId}/usage', { params: { path: { clientId } } }),
      )
      return totals.unpricedCount
    },
  })

export const lossQuery = (clientId: string, dates: Dates) =>
  infiniteQueryOptions({
    queryKey: ['loss', clientId, dates] as const,
    placeholderData: keepEarlier(['loss', clientId]),
    initialPageParam: '',
    getNextPageParam: ({ nextCursor }: Schemas['UsageLoss']) => nextCursor,
    queryFn: ({ pageParam: cursor }) =>
      unwrap(
        api.GET('/api/v1/internal/apps/{clientId}/usage/loss', {
          params: {
            path: { clientId },
            query: { ...dates, limit: '50', ...(cursor !== '' && { cursor }) },
          },
        }),
      ),
  })

export const testClockQuery = (clientId: string) =>
  queryOptions({
    queryKey: ['test-clock', clientId],
    queryFn: () =>
      unwrap(api.GET('/api/v1/apps/{clientId}/test-clock', { params: { path: { clientId } } })),
  })

/** The address of the live charges, for EventSource. */
export const streamAddress = (clientId: string, user: string | undefined): string =>
  `/api/v1/internal/apps/${encodeURIComponent(clientId)}/usage/stream${
    user === undefined ? '' : `?externalUserId=${encodeURIComponent(user)}`
  }`
