import { infiniteQueryOptions, queryOptions } from '@tanstack/react-query'
import type { InvoicePayer } from './attention.ts'
import { api, keepEarlier, keepIdentity, unwrap } from './client.ts'

const appPageSize = '200'
const auditPageSize = '50'
export const invoicePageSize = 25

export const sessionQuery = queryOptions({
  queryKey: ['session'],
  staleTime: 60_000,
  queryFn: async () => {
    const session = await unwrap(api.GET('/api/v1/session'))
    keepIdentity(session)
    return session
  },
})

/** Apps of the account, or all apps for a platform admin. */
export const appsQuery = infiniteQueryOptions({
  queryKey: ['apps'],
  initialPageParam: '',
  getNextPageParam: ({ nextCursor }: { nextCursor?: string }) => nextCursor,
  queryFn: async ({ pageParam: cursor, client }) => {
    const { isPlatformAdmin } = await client.ensureQueryData(sessionQuery)
    const query = {
      limit: appPageSize,
      ...(cursor !== '' && { cursor }),
      ...(isPlatformAdmin && { all: 'true' as const }),
    }
    return unwrap(api.GET('/api/v1/apps', { params: { query } }))
  },
})

export const invitationsQuery = queryOptions({
  queryKey: ['invitations'],
  queryFn: async () => {
    const { invitations } = await unwrap(api.GET('/api/v1/invitations'))
    return invitations
  },
})

export const appQuery = (clientId: string) =>
  queryOptions({
    queryKey: ['app', clientId],
    queryFn: () => unwrap(api.GET('/api/v1/apps/{clientId}', { params: { path: { clientId } } })),
  })

export const billingQuery = (clientId: string) =>
  queryOptions({
    queryKey: ['billing', clientId],
    refetchInterval: 30_000,
    queryFn: () =>
      unwrap(api.GET('/api/v1/apps/{clientId}/billing', { params: { path: { clientId } } })),
  })

/** Filters of a list of invoices: a status of invoices, or credit notes. */
export const shownStatuses = [
  'issued',
  'payment_processing',
  'overdue',
  'paid',
  'uncollectible',
  'void',
  'credit_note',
] as const
export type ShownStatus = (typeof shownStatuses)[number]

export interface InvoiceFilter {
  /** Whose invoices: those that the app issued to users, or the platform to the app's owner. */
  readonly payer: InvoicePayer
  /** Only of this user, among those that the app issued. */
  readonly user?: string | undefined
  readonly status?: ShownStatus | undefined
}

const statusQuery = (status: ShownStatus | undefined) => {
  if (status === undefined) return {}
  return status === 'credit_note'
    ? ({ invoiceType: status } as const)
    : ({ invoiceType: 'standard', status } as const)
}

/** A page of invoices. While another one of the same filter loads, the page before stays. */
export function invoicesQuery(
  clientId: string,
  { page, payer, user, status }: InvoiceFilter & { readonly page: number },
) {
  const subject = ['invoices', clientId, payer, user, status] as const
  return queryOptions({
    queryKey: [...subject, page] as const,
    placeholderData: keepEarlier(subject),
    queryFn: () =>
      unwrap(
        api.GET('/api/v1/apps/{clientId}/billing/invoices', {
          params: {
            path: { clientId },
            query: {
              page: String(page),
              pageSize: String(invoicePageSize),
              payer,
              ...(user !== undefined && { externalUserId: user }),
              ...statusQuery(status),
            },
          },
        }),
      ),
  })
}

export const invoiceQuery = (clientId: string, invoiceId: string) =>
  queryOptions({
    queryKey: ['invoice', clientId, invoiceId],
    queryFn: () =>
      unwrap(
        api.GET('/api/v1/apps/{clientId}/billing/invoices/{invoiceId}', {
          params: { path: { clientId, invoiceId } },
        }),
      ),
  })

export const teamQuery = (clientId: string) =>
  queryOptions({
    queryKey: ['team', clientId],
    queryFn: () =>
      unwrap(api.GET('/api/v1/apps/{clientId}/admins', { params: { path: { clientId } } })),
  })

export interface AuditFilter {
  readonly action?: string
  readonly actor?: string
  /** UTC days, both inclusive. */
  readonly from?: string
  readonly to?: string
}

const dayMs = 86_400_000

/** Returns the filter as query of the list and of the export. Their `until` is exclusive. */
export const toAuditQuery = ({ from, to, ...names }: AuditFilter) => ({
  ...names,
  ...(from !== undefined && { since: from }),
  ...(to !== undefined && { until: new Date(Date.parse(to) + dayMs).toISOString() }),
})

export const auditQuery = (clientId: string, filter: AuditFilter) =>
  infiniteQueryOptions({
    queryKey: ['audit', clientId, filter],
    initialPageParam: '',
    getNextPageParam: ({ nextCursor }: { nextCursor?: string | null }) => nextCursor ?? undefined,
    queryFn: ({ pageParam: cursor }) =>
      unwrap(
        api.GET('/api/v1/apps/{clientId}/audit', {
          params: {
            path: { clientId },
            query: {
              limit: auditPageSize,
              ...(cursor !== '' && { cursor }),
              ...toAuditQuery(filter),
            },
          },
        }),
      ),
  })
