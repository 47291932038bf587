import {
  type UseMutationResult,
  infiniteQueryOptions,
  queryOptions,
  useMutation,
  useQueryClient,
} from '@tanstack/react-query'
import { type Schemas, api, unwrap } from './client.ts'

const pageSize = '50'
const freshMs = 15_000

export type Signer = Schemas['Signer']
export type SignerSecrets = Schemas['SignerSecrets']
export type IngestStatus = Schemas['IngestStatus']
export type Outbox = Schemas['Outbox']
export type LossReport = Schemas['LossReport']
export type ProcessorDifference = Schemas['ProcessorDifference']
export type UserHolds = Schemas['HoldList']['users'][number]

/** Runs a change, then reads everything with the key again. */
function useChange<Input, Output>(
  noun: string,
  mutationFn: (input: Input) => Promise<Output>,
): UseMutationResult<Output, Error, Input> {
  const queries = useQueryClient()
  return useMutation({
    mutationFn,
    onSettled: () => queries.invalidateQueries({ queryKey: ['operate', noun] }),
  })
}

export const signersQuery = queryOptions({
  queryKey: ['operate', 'signers'],
  queryFn: async () => (await unwrap(api.GET('/api/v1/internal/operate/signers'))).signers,
})

export interface SignerApps {
  readonly allApps: boolean
  readonly clientIds: string[]
}

/** Changes of signers. */
export function useSignerChanges() {
  const url = '/api/v1/internal/operate/signers/{name}'
  return {
    create: useChange('signers', (body: SignerApps & { name: string; mayPushEvents: boolean }) =>
      unwrap(api.POST('/api/v1/internal/operate/signers', { body })),
    ),
    setApps: useChange('signers', ({ name, ...body }: SignerApps & { name: string }) =>
      unwrap(api.PUT(url, { params: { path: { name } }, body })),
    ),
    rotate: useChange('signers', ({ name, ...body }: { name: string; overlapSeconds: number }) =>
      unwrap(api.POST(`${url}/rotate`, { params: { path: { name } }, body })),
    ),
    remove: useChange('signers', (name: string) =>
      unwrap(api.DELETE(url, { params: { path: { name } } })),
    ),
  }
}

export const ingestQuery = queryOptions({
  queryKey: ['operate', 'ingest'],
  refetchInterval: freshMs,
  queryFn: () => unwrap(api.GET('/api/v1/internal/operate/ingest')),
})

export const outboxQuery = queryOptions({
  queryKey: ['operate', 'outbox'],
  refetchInterval: freshMs,
  queryFn: () => unwrap(api.GET('/api/v1/internal/operate/outbox')),
})

export const useRetryOutbox = () =>
  useChange('outbox', () => unwrap(api.POST('/api/v1/internal/operate/outbox/retry')))

export interface HoldFilter {
  readonly clientId?: string
  readonly externalUserId?: string
}

export const holdsQuery = (filter: HoldFilter) =>
  infiniteQueryOptions({
    queryKey: ['operate', 'holds', filter],
    initialPageParam: '',
    getNextPageParam: ({ nextCursor }: { nextCursor?: string }) => nextCursor,
    queryFn: ({ pageParam: cursor }) =>
      unwrap(
        api.GET('/api/v1/internal/operate/holds', {
          params: { query: { ...filter, limit: pageSize, ...(cursor !== '' && { cursor }) } },
        }),
      ),
  })

export interface LossFilter {
  /** UTC days, both inclusive. */
  readonly from?: string
  readonly to?: string
}

export const lossesQuery = ({ from, to }: LossFilter) =>
  queryOptions({
    queryKey: ['operate', 'losses', from, to],
    queryFn: () =>
      unwrap(
        api.GET('/api/v1/internal/operate/losses', {
          params: {
            query: {
              ...(from !== undefined && { startDate: `${from}T00:00:00.000Z` }),
              ...(to !== undefined && { endDate: `${to}T23:59:59.999Z` }),
            },
          },
        }),
      ),
  })

export const differencesQuery = (isAll: boolean) =>
  infiniteQueryOptions({
    queryKey: ['operate', 'differences', isAll],
    initialPageParam: '',
    getNextPageParam: ({ nextCursor }: { nextCursor?: string }) => nextCursor,
    queryFn: ({ pageParam: cursor }) =>
      unwrap(
        api.GET('/api/v1/internal/operate/processor-differences', {
          params: {
            query: {
              limit: pageSize,
              ...(cursor !== '' && { cursor }),
              ...(isAll && { all: 'true' as const }),
            },
          },
        }),
      ),
  })

export const useResolveDifference = () =>
  useChange(
    'differences',
    ({ differenceId, resolution }: Record<'differenceId' | 'resolution', string>) =>
      unwrap(
        api.POST('/api/v1/internal/operate/processor-differences/{differenceId}/resolve', {
          params: { path: { differenceId } },
          body: { resolution },
        }),
      ),
  )

export const signingKeysQuery = queryOptions({
  queryKey: ['operate', 'signing-keys'],
  queryFn: async () => (await unwrap(api.GET('/api/v1/internal/operate/signing-keys'))).keys,
})

export const useRotateSigningKeys = () =>
  useChange('signing-keys', (force: boolean) =>
    unwrap(api.POST('/api/v1/internal/operate/signing-keys/rotate', { body: { force } })),
  )
