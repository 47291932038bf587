import { infiniteQueryOptions, queryOptions, useQueryClient } from '@tanstack/react-query'
import { useChange } from './change.ts'
import { type Schemas, api, unwrap } from './client.ts'

const pageSize = '50'
const queryKey = ['operate', 'quarantine'] as const

export type QuarantinedEvent = Schemas['QuarantinedEvent']
export type QuarantineStatus = QuarantinedEvent['status']
export const quarantineStatuses: readonly QuarantineStatus[] = ['open', 'redriven', 'discarded']
export type Waiting = Schemas['QuarantineList']['waiting'][number]
export type RedriveProgress = Schemas['QuarantineProgress']

export interface QuarantineFilter {
  readonly status?: QuarantineStatus
  readonly reason?: string
}

export const quarantineQuery = (filter: QuarantineFilter) =>
  infiniteQueryOptions({
    queryKey: [...queryKey, 'list', filter],
    initialPageParam: '',
    refetchInterval: 30_000,
    getNextPageParam: ({ nextCursor }: { nextCursor?: string }) => nextCursor,
    queryFn: ({ pageParam: cursor }) =>
      unwrap(
        api.GET('/api/v1/internal/operate/quarantine', {
          params: { query: { ...filter, limit: pageSize, ...(cursor !== '' && { cursor }) } },
        }),
      ),
  })

export const quarantinedQuery = (quarantineId: string) =>
  queryOptions({
    queryKey: [...queryKey, 'event', quarantineId],
    queryFn: () =>
      unwrap(
        api.GET('/api/v1/internal/operate/quarantine/{quarantineId}', {
          params: { path: { quarantineId } },
        }),
      ),
  })

/** Reads everything about quarantine again. */
export function useQuarantineRefresh(): () => Promise<void> {
  const queries = useQueryClient()
  return () => queries.invalidateQueries({ queryKey })
}

/** Decisions about one event. */
export function useDecisions(quarantineId: string) {
  const params = { path: { quarantineId } }
  const url = '/api/v1/internal/operate/quarantine/{quarantineId}'
  return {
    redrive: useChange([queryKey], (underNewId: boolean) =>
      unwrap(api.POST(`${url}/redrive`, { params, body: { underNewId } })),
    ),
    attribute: useChange([queryKey], (body: { clientId: string; externalUserId: string }) =>
      unwrap(api.POST(`${url}/attribute`, { params, body })),
    ),
    discard: useChange([queryKey], (reason: string) =>
      unwrap(api.POST(`${url}/discard`, { params, body: { reason } })),
    ),
  }
}

interface RedriveCall {
  readonly reason: string
  readonly cursor: string | undefined
  readonly signal: AbortSignal
}

/** Redrives events with a reason for a few seconds. Continue with `nextCursor`. */
export const redriveReason = ({ reason, cursor, signal }: RedriveCall): Promise<RedriveProgress> =>
  unwrap(
    api.POST('/api/v1/internal/operate/quarantine/redrive', {
      body: { reason, ...(cursor !== undefined && { cursor }) },
      signal,
    }),
  )
