import { infiniteQueryOptions, queryOptions } from '@tanstack/react-query'
import { useChange } from './change.ts'
import { type Schemas, api, unwrap } from './client.ts'

const pageSize = '50'
/** Deliveries that are about to be sent are read again, so that an answer appears without a reload. */
const dueMs = 2_000
const soonMs = 60_000

export type Endpoint = Schemas['WebhookEndpoint']
export type Delivery = Schemas['WebhookDelivery']
export type DeliveryStatus = Delivery['status']
export const deliveryStatuses: readonly DeliveryStatus[] = ['pending', 'delivered', 'failed']

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
      state.data?.pages.some(({ deliveries }) => deliveries.some(isDue)) ? dueMs : false,
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

/** A failed delivery can wait for its next attempt for most of a day. */
const isDue = ({ status, attempts, nextAttemptAt }: Delivery): boolean =>
  status === 'pending' &&
  (attempts === 0 || (nextAttemptAt !== null && Date.parse(nextAttemptAt) < Date.now() + soonMs))

const keysOf = (clientId: string) => [['webhooks', clientId]]
/** Without the queries of a removed endpoint, which no longer exists. */
const listOf = (clientId: string) => [endpointsQuery(clientId).queryKey]

export interface NewEndpoint {
  readonly url: string
  readonly description: string
  readonly eventTypes: Endpoint['eventTypes']
  readonly signing: 'hmac' | 'ed25519'
}

export const useCreateEndpoint = (clientId: string) =>
  useChange(
    keysOf(clientId),
    ({ body, idempotencyKey }: { body: NewEndpoint; idempotencyKey: string }) =>
      unwrap(
        api.POST('/api/v1/apps/{clientId}/webhook-endpoints', {
          params: { path: { clientId }, header: { 'idempotency-key': idempotencyKey } },
          body,
        }),
      ),
  )

export type EndpointChange = Partial<Omit<NewEndpoint, 'signing'>>

/** Changes of one endpoint. */
export function useEndpointChanges(clientId: string, endpointId: string) {
  const params = { path: { clientId, endpointId } }
  const url = '/api/v1/apps/{clientId}/webhook-endpoints/{endpointId}'
  return {
    setStatus: useChange(keysOf(clientId), (status: Endpoint['status']) =>
      unwrap(api.PUT(url, { params, body: { status } })),
    ),
    update: useChange(keysOf(clientId), (body: EndpointChange) =>
      unwrap(api.PUT(url, { params, body })),
    ),
    remove: useChange(listOf(clientId), () => unwrap(api.DELETE(url, { params }))),
    rotate: useChange(keysOf(clientId), (idempotencyKey: string) =>
      unwrap(
        api.POST(`${url}/rotate-secret`, {
          params: { ...params, header: { 'idempotency-key': idempotencyKey } },
          body: {},
        }),
      ),
    ),
    ping: useChange(keysOf(clientId), () => unwrap(api.POST(`${url}/ping`, { params }))),
    replay: useChange(keysOf(clientId), (body: { deliveryId: string } | { failedSince: string }) =>
      unwrap(api.POST(`${url}/deliveries/replay`, { params, body })),
    ),
  }
}
