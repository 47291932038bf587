import { infiniteQueryOptions, queryOptions } from '@tanstack/react-query'
import { useChange } from './change.ts'
import { type Schemas, api, unwrap } from './client.ts'
import { type PayPages, leadBack, untilReported } from './money.ts'
import { useIdempotencyKey } from './submission.ts'

/** What the person is and has as an end user of apps. No request names a user. */

export type AppInUse = Schemas['AppInUse']
export type OwnLogin = Schemas['OwnLogin']

const url = '/api/v1/internal/me/apps'
const appUrl = `${url}/{clientId}` as const
const appsMax = '1000'
const listSize = '50'
const refreshMs = 30_000

const pathOf = (clientId: string) => ({ path: { clientId } })
const keyOf = (clientId: string, part: string) => ['me', clientId, part] as const
const nextCursor = (page: { nextCursor?: string }): string | undefined => page.nextCursor
const withCursor = (cursor: string) => (cursor === '' ? {} : { cursor })

export const appsInUseQuery = queryOptions({
  queryKey: ['me'],
  queryFn: async () => {
    const { apps } = await unwrap(api.GET(url, { params: { query: { limit: appsMax } } }))
    return apps
  },
})

export const ownBalanceQuery = (clientId: string) =>
  queryOptions({
    queryKey: keyOf(clientId, 'balance'),
    refetchInterval: refreshMs,
    queryFn: () => unwrap(api.GET(`${appUrl}/usage/balance`, { params: pathOf(clientId) })),
  })

export const ownPlanQuery = (clientId: string) =>
  queryOptions({
    queryKey: keyOf(clientId, 'plan'),
    queryFn: () => unwrap(api.GET(`${appUrl}/subscription`, { params: pathOf(clientId) })),
  })

/** Sums of a UTC month such as `2026-03`, by day or by model. */
export const ownUsageQuery = (
  clientId: string,
  { month, groupBy }: { month: string; groupBy: 'day' | 'pipeline_model' },
) =>
  queryOptions({
    queryKey: [...keyOf(clientId, 'usage'), month, groupBy],
    refetchInterval: refreshMs,
    queryFn: () => {
      const query = { ...daysOf(month), groupBy, include: 'retail' as const }
      return unwrap(api.GET(`${appUrl}/usage`, { params: { ...pathOf(clientId), query } }))
    },
  })

/** Tickets of a UTC month, the newest first. */
export const ownCallsQuery = (clientId: string, month: string) =>
  infiniteQueryOptions({
    queryKey: [...keyOf(clientId, 'calls'), month],
    initialPageParam: '',
    getNextPageParam: nextCursor,
    queryFn: async ({ pageParam: cursor }) => {
      const query = { ...daysOf(month), limit: listSize, ...withCursor(cursor) }
      const params = { ...pathOf(clientId), query }
      const { items, ...page } = await unwrap(api.GET(`${appUrl}/usage/requests`, { params }))
      return { ...page, calls: items.filter((item) => 'eventId' in item) }
    },
  })

function daysOf(month: string): { startDate: string; endDate: string } {
  const [year = 0, number = 0] = month.split('-').map(Number)
  const last = new Date(Date.UTC(year, number, 0)).toISOString().slice(0, 10)
  return { startDate: `${month}-01`, endDate: last }
}

export const ownKeysQuery = (clientId: string) =>
  infiniteQueryOptions({
    queryKey: keyOf(clientId, 'keys'),
    initialPageParam: '',
    getNextPageParam: nextCursor,
    queryFn: ({ pageParam: cursor }) => {
      const query = { limit: listSize, ...withCursor(cursor) }
      return unwrap(api.GET(`${appUrl}/keys`, { params: { ...pathOf(clientId), query } }))
    },
  })

export const ownLoginsQuery = (clientId: string) =>
  queryOptions({
    queryKey: keyOf(clientId, 'logins'),
    queryFn: async () => {
      const { logins } = await unwrap(api.GET(`${appUrl}/logins`, { params: pathOf(clientId) }))
      return logins
    },
  })

export const useRevokeOwnKey = (clientId: string) =>
  useChange([keyOf(clientId, 'keys')], (keyId: string) =>
    unwrap(api.DELETE(`${appUrl}/keys/{keyId}`, { params: { path: { clientId, keyId } } })),
  )

export const useEndOwnLogin = (clientId: string) =>
  useChange([keyOf(clientId, 'logins')], (loginId: string) =>
    unwrap(api.DELETE(`${appUrl}/logins/{loginId}`, { params: { path: { clientId, loginId } } })),
  )

export const ownPayingQuery = (clientId: string) =>
  queryOptions({
    queryKey: keyOf(clientId, 'paying'),
    queryFn: () => unwrap(api.GET(`${appUrl}/billing`, { params: pathOf(clientId) })),
  })

export const ownWalletQuery = (clientId: string, since: number | null = null) =>
  queryOptions({
    queryKey: keyOf(clientId, 'wallet'),
    refetchInterval: untilReported(since),
    queryFn: () => unwrap(api.GET(`${appUrl}/billing/wallet`, { params: pathOf(clientId) })),
  })

export const ownTransactionsQuery = (clientId: string, since: number | null = null) =>
  infiniteQueryOptions({
    queryKey: keyOf(clientId, 'transactions'),
    refetchInterval: untilReported(since),
    initialPageParam: '',
    getNextPageParam: nextCursor,
    queryFn: ({ pageParam: cursor }) => {
      const params = { ...pathOf(clientId), query: withCursor(cursor) }
      return unwrap(api.GET(`${appUrl}/billing/wallet/transactions`, { params }))
    },
  })

export const ownInvoicesQuery = (clientId: string) =>
  infiniteQueryOptions({
    queryKey: keyOf(clientId, 'invoices'),
    initialPageParam: 1,
    getNextPageParam: ({ page, pageSize, totalCount }: Schemas['InvoicePage']) =>
      page * pageSize < totalCount ? page + 1 : undefined,
    queryFn: ({ pageParam: page }) => {
      const params = { ...pathOf(clientId), query: { page: String(page) } }
      return unwrap(api.GET(`${appUrl}/billing/invoices`, { params }))
    },
  })

/** Changes that lead to a page of the payment processor return its address. */
export function useOwnPayments(clientId: string): PayPages {
  // Opens the same page after a lost answer. Another amount is another page.
  const [key, renewKey] = useIdempotencyKey()
  const keys = [keyOf(clientId, 'wallet')]
  const paramsFor = (what: string) => ({
    ...pathOf(clientId),
    header: { 'idempotency-key': `${key}-${what}` },
  })
  return {
    renewKey,
    topUp: useChange(keys, async (amountUsd: string) => {
      const body = { amountUsd, ...leadBack() }
      const params = paramsFor('top-up')
      return (await unwrap(api.POST(`${appUrl}/billing/wallet/top-up`, { params, body })))
        .checkoutUrl
    }),
    addCard: useChange(keys, async () => {
      const request = { params: paramsFor('card'), body: leadBack() }
      return (await unwrap(api.POST(`${appUrl}/billing/payment-method`, request))).checkoutUrl
    }),
  }
}
