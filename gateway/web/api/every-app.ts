import { infiniteQueryOptions, queryOptions } from '@tanstack/react-query'
import { useChange } from './change.ts'
import { type Schemas, api, unwrap } from './client.ts'

/** All apps of the deployment, and quotas, for platform admins. */

export type EveryApp = Schemas['EveryApp']
export type CreditQuota = Schemas['CreditQuota']
export type AccountQuota = Schemas['AccountQuota']

const pageSize = '50'
const quotaKey = ['operate', 'quotas'] as const

export const everyAppQuery = (search: string) =>
  infiniteQueryOptions({
    queryKey: ['operate', 'apps', search],
    initialPageParam: '',
    getNextPageParam: ({ nextCursor }: Schemas['EveryAppList']) => nextCursor,
    queryFn: ({ pageParam: cursor, signal }) =>
      unwrap(
        api.GET('/api/v1/internal/operate/apps', {
          params: {
            query: {
              limit: pageSize,
              ...(search !== '' && { search }),
              ...(cursor !== '' && { cursor }),
            },
          },
          signal,
        }),
      ),
  })

export const creditQuotaQuery = (clientId: string) =>
  queryOptions({
    queryKey: [...quotaKey, 'credit', clientId],
    queryFn: () =>
      unwrap(api.GET('/api/v1/quotas/credit/{clientId}', { params: { path: { clientId } } })),
  })

export const accountQuotaQuery = (email: string) =>
  queryOptions({
    queryKey: [...quotaKey, 'account', email],
    queryFn: () => unwrap(api.GET('/api/v1/quotas/accounts', { params: { query: { email } } })),
  })

export const networkQuotaQuery = (email: string) =>
  queryOptions({
    queryKey: [...quotaKey, 'network', email],
    queryFn: () => unwrap(api.GET('/api/v1/quotas/network', { params: { query: { email } } })),
  })

/** Null is the deployment's quota. */
export const useUpdateCreditQuota = (clientId: string) =>
  useChange([quotaKey], (maxUsdMicros: string | null) =>
    unwrap(
      api.PUT('/api/v1/quotas/credit/{clientId}', {
        params: { path: { clientId } },
        body: { maxUsdMicros },
      }),
    ),
  )

/** Null is the deployment's quota. */
export const useUpdateAccountQuota = (email: string) =>
  useChange([quotaKey], (appsMax: number | null) =>
    unwrap(api.PUT('/api/v1/quotas/accounts', { body: { email, appsMax } })),
  )
