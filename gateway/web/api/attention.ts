import { queryOptions } from '@tanstack/react-query'
import { api, unwrap } from './client.ts'

/** Queries for what needs attention in an app. */

/** How often what needs attention is read again. */
export const refetchInterval = 60_000
const newestInvoices = '100'

/** Whether the app's owner may spend. Only for apps whose owner pays. */
export const ownerStateQuery = (clientId: string) =>
  queryOptions({
    queryKey: ['billing-state', clientId, 'owner'],
    refetchInterval,
    queryFn: () =>
      unwrap(api.GET('/api/v1/apps/{clientId}/billing/state', { params: { path: { clientId } } })),
  })

export type InvoicePayer = 'users' | 'owner'

/** The newest invoices to the app's users, or to its owner. */
export const newestInvoicesQuery = (clientId: string, payer: InvoicePayer) =>
  queryOptions({
    queryKey: ['newest-invoices', clientId, payer],
    refetchInterval,
    queryFn: async () => {
      const query = { payer, pageSize: newestInvoices }
      const { items } = await unwrap(
        api.GET('/api/v1/apps/{clientId}/billing/invoices', {
          params: { path: { clientId }, query },
        }),
      )
      return items
    },
  })

/** Only owners may read it. */
export const signerSecretsQuery = (clientId: string) =>
  queryOptions({
    queryKey: ['signer-secrets-state', clientId],
    refetchInterval,
    queryFn: async () => {
      const { secrets } = await unwrap(
        api.GET('/api/v1/apps/{clientId}/signer-secrets', { params: { path: { clientId } } }),
      )
      return secrets
    },
  })
