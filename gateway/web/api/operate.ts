import { type UseMutationResult, infiniteQueryOptions, queryOptions } from '@tanstack/react-query'
import { useChange } from './change.ts'
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

const keysOf = (noun: string) => [['operate', noun]] as const

export const signersQuery = queryOptions({
  queryKey: ['operate', 'signers'],
  queryFn: async () => (await unwrap(api.GET('/api/v1/internal/operate/signers'))).signers,
})

export interface SignerWish {
  readonly name: string
  readonly allApps: boolean
  readonly clientIds: string[]
  readonly mayPushEvents: boolean
}

export interface SignerRotation {
  readonly name: string
  readonly overlapSeconds: number
}

/** A request for secrets. Repeated with the same key it gets the same ones. */
type Repeatable<Input> = Input & { readonly idempotencyKey: string }

export type SecretsChange<Input> = UseMutationResult<SignerSecrets, Error, Repeatable<Input>>

/** Makes a signer. Only the answer has its secrets, and it is dropped with the view. */
export const useCreateSigner = (): SecretsChange<SignerWish> =>
  useChange(
    keysOf('signers'),
    ({ idempotencyKey, ...body }: Repeatable<SignerWish>) =>
      unwrap(
        api.POST('/api/v1/internal/operate/signers', {
          params: { header: { 'idempotency-key': idempotencyKey } },
          body,
        }),
      ),
    { showsAtOnce: true },
  )

/** Makes new secrets. Only the answer has them, and it is dropped with the view. */
export const useRotateSigner = (): SecretsChange<SignerRotation> =>
  useChange(
    keysOf('signers'),
    ({ name, idempotencyKey, ...body }: Repeatable<SignerRotation>) =>
      unwrap(
        api.POST('/api/v1/internal/operate/signers/{name}/rotate', {
          params: { path: { name }, header: { 'idempotency-key': idempotencyKey } },
          body,
        }),
      ),
    { showsAtOnce: true },
  )

export type SignerApps = Omit<SignerWish, 'mayPushEvents'>

/** Replaces the apps that a signer signs for. */
export const useUpdateSigner = () =>
  useChange(keysOf('signers'), ({ name, ...body }: SignerApps) =>
    unwrap(
      api.PUT('/api/v1/internal/operate/signers/{name}', { params: { path: { name } }, body }),
    ),
  )

export const useRemoveSigner = () =>
  useChange(keysOf('signers'), (name: string) =>
    unwrap(api.DELETE('/api/v1/internal/operate/signers/{name}', { params: { path: { name } } })),
  )

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
  useChange(keysOf('outbox'), () => unwrap(api.POST('/api/v1/internal/operate/outbox/retry')))

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
    keysOf('differences'),
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
  useChange(keysOf('signing-keys'), (force: boolean) =>
    unwrap(api.POST('/api/v1/internal/operate/signing-keys/rotate', { body: { force } })),
  )

export type Configuration = Schemas['Configuration']

export const configurationQuery = queryOptions({
  queryKey: ['operate', 'configuration'],
  queryFn: () => unwrap(api.GET('/api/v1/internal/operate/configuration')),
})

export type MovedClock = Schemas['MovedClocks']['clocks'][number]

/** The API lists at most this number of clocks. */
export const movedClocksMax = 1_000

export const movedClocksQuery = queryOptions({
  queryKey: ['operate', 'test-clocks'],
  queryFn: () => unwrap(api.GET('/api/v1/internal/operate/test-clocks')),
})

export type Catalog = Schemas['Catalog']

export const catalogQuery = queryOptions({
  queryKey: ['operate', 'catalog'],
  queryFn: () => unwrap(api.GET('/api/v1/internal/operate/catalog')),
})
