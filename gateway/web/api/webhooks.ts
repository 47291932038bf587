import {
  type UseMutationResult,
  infiniteQueryOptions,
  queryOptions,
  useMutation,
  useQueryClient,
} from '@tanstack/react-query'
import { type Schemas, api, unwrap } from './client.ts'

const pageSize = '50'
/** Deliveries that wait are read again, so that an answer appears without a reload. */
const pendingMs = 2_000

export type Endpoint = Schemas['WebhookEndpoint']
export type Delivery = Schemas['WebhookDelivery']
export type DeliveryStatus = Delivery['status']

export const endpointsQuery = (clientId: string) =>
  queryOptions({
    queryKey: ['webhooks', clientId, 'list'],
    queryFn: () =>
      unwrap(
        api.GET('/api/v1/apps/{clientId}/webhook-endpoints', { params: { path: { clientId } } }),
      ),
  })

export const endpointQuery = (clientId: string, endpointId: string) =>
  queryOptions({
    queryKey: ['webhooks', clientId, 'endpoint', endpointId],
    queryFn: () =>
      unwrap(
        api.GET('/api/v1/apps/{clientId}/webhook-endpoints/{endpointId}', {
          params: { path: { clientId, endpointId } },
        }),
      ),
  })

export interface DeliveryFilter {
  readonly clientId: string
  readonly endpointId: string
  readonly status: DeliveryStatus | undefined
}

export const deliveriesQuery = ({ clientId, endpointId, status }: DeliveryFilter) =>
  infiniteQueryOptions({
    queryKey: ['webhooks', clientId, 'deliveries', endpointId, status],
    initialPageParam: '',
    getNextPageParam: ({ nextCursor }: Schemas['WebhookDeliveryList']) => nextCursor,
    refetchInterval: ({ state }) =>
      state.data?.pages.some(({ deliveries }) => deliveries.some(isPending)) ? pendingMs : false,
    queryFn: ({ pageParam: cursor }) =>
      unwrap(
        api.GET('/api/v1/apps/{clientId}/webhook-endpoints/{endpointId}/deliveries', {
          params: {
            path: { clientId, endpointId },
            query: {
              limit: pageSize,
              ...(cursor !== '' && { cursor }),
              ...(status !== undefined && { status }),
            },
          },
        }),
      ),
  })

const isPending = ({ status }: Delivery): boolean => status === 'pending'

/** Runs a change of an app's endpoints, then reads all of them again. */
function useChange<Input, Output>(
  clientId: string,
  mutationFn: (input: Input) => Promise<Output>,
): UseMutationResult<Output, Error, Input> {
  const queries = useQueryClient()
  return useMutation({
    mutationFn,
    onSuccess: () => queries.invalidateQueries({ queryKey: ['webhooks', clientId] }),
  })
}

/** Like `useChange`, without reading what is gone. */
function useRemoval<Output>(
  clientId: string,
  mutationFn: () => Promise<Output>,
): UseMutationResult<Output, Error, void> {
  const queries = useQueryClient()
  return useMutation({
    mutationFn,
    onSuccess: () => queries.invalidateQueries({ queryKey: ['webhooks', clientId, 'list'] }),
  })
}

export interface NewEndpoint {
  readonly url: string
  readonly description: string
  readonly eventTypes: Endpoint['eventTypes']
  readonly signing: 'hmac' | 'ed25519'
}

export const useCreateEndpoint = (clientId: string) =>
  useChange(clientId, (body: NewEndpoint) =>
    unwrap(
      api.POST('/api/v1/apps/{clientId}/webhook-endpoints', {
        params: { path: { clientId } },
        body,
      }),
    ),
  )

/** Changes of one endpoint. */
export function useEndpointChanges(clientId: string, endpointId: string) {
  const params = { path: { clientId, endpointId } }
  const url = '/api/v1/apps/{clientId}/webhook-endpoints/{endpointId}'
  return {
    setStatus: useChange(clientId, (status: Endpoint['status']) =>
      unwrap(api.PUT(url, { params, body: { status } })),
    ),
    remove: useRemoval(clientId, () => unwrap(api.DELETE(url, { params }))),
    rotate: useChange(clientId, () =>
      unwrap(api.POST(`${url}/rotate-secret`, { params, body: {} })),
    ),
    ping: useChange(clientId, () => unwrap(api.POST(`${url}/ping`, { params }))),
    replay: useChange(clientId, (body: { deliveryId: string } | { failedSince: string }) =>
      unwrap(api.POST(`${url}/deliveries/replay`, { params, body })),
    ),
  }
}
