import {
  type UseMutationResult,
  infiniteQueryOptions,
  queryOptions,
  useMutation,
} from '@tanstack/react-query'
import { useState } from 'react'
import { useChange } from './change.ts'
import { useIdempotencyKey } from './submission.ts'
import { type Schemas, api, unwrap } from './client.ts'

export type Wallet = Schemas['Wallet']
export type Processor = Schemas['PaymentProcessor']

/** Whose money is shown: of a user in billing mode merchant, otherwise of the app's owner. */
export interface Payer {
  readonly clientId: string
  readonly externalUserId: string | undefined
  /** The owner's in any billing mode. */
  readonly isOwner?: true
}

function payerQuery({ externalUserId, isOwner }: Payer) {
  if (isOwner) return { payer: 'owner' as const }
  return externalUserId === undefined ? {} : { externalUserId }
}

export const moneyKey = (clientId: string) => ['money', clientId] as const
const keysOf = (clientId: string) => [moneyKey(clientId)]

export const processorQuery = (clientId: string) =>
  queryOptions({
    queryKey: [...moneyKey(clientId), 'processor'],
    queryFn: () =>
      unwrap(
        api.GET('/api/v1/apps/{clientId}/billing/processor', { params: { path: { clientId } } }),
      ),
  })

export const walletQuery = (payer: Payer, since: number | null = null) =>
  queryOptions({
    queryKey: [...moneyKey(payer.clientId), 'wallet', payerQuery(payer)],
    refetchInterval: untilReported(since),
    queryFn: () =>
      unwrap(
        api.GET('/api/v1/apps/{clientId}/billing/wallet', {
          params: { path: { clientId: payer.clientId }, query: payerQuery(payer) },
        }),
      ),
  })

export const transactionsQuery = (payer: Payer, since: number | null = null) =>
  infiniteQueryOptions({
    queryKey: [...moneyKey(payer.clientId), 'transactions', payerQuery(payer)],
    refetchInterval: untilReported(since),
    initialPageParam: '',
    getNextPageParam: ({ nextCursor }: Schemas['WalletTransactions']) => nextCursor,
    queryFn: ({ pageParam: cursor }) => readTransactions(payer, cursor),
  })

/**
 * Reads a page of transactions; an empty cursor is the first page. With `whose`, those of the named
 * user, also while the owner pays.
 */
export const readTransactions = (payer: Payer, cursor: string, whose?: 'user') =>
  unwrap(
    api.GET('/api/v1/apps/{clientId}/billing/wallet/transactions', {
      params: {
        path: { clientId: payer.clientId },
        query: {
          ...payerQuery(payer),
          ...(whose !== undefined && { payer: whose }),
          ...(cursor !== '' && { cursor }),
        },
      },
    }),
  )

/** Changes of what owners and platform admins may set. Absent members stay. */
interface BillingChange {
  readonly billingMode?: Processor['billingMode']
  /** Null for the deployment's. */
  readonly endUserCap?: number | null
  /** Null for none. */
  readonly platformCutPercent?: number | null
}

export const billingSettingsQuery = (clientId: string) =>
  queryOptions({
    queryKey: [...moneyKey(clientId), 'settings'],
    queryFn: () =>
      unwrap(
        api.GET('/api/v1/apps/{clientId}/billing/settings', { params: { path: { clientId } } }),
      ),
  })

/** Wallets are not read again: in another mode, this view shows those of other payers. */
export const useUpdateBillingSettings = <Input>(
  clientId: string,
  toBody: (input: Input) => BillingChange,
) =>
  useChange(
    [
      processorQuery(clientId).queryKey,
      billingSettingsQuery(clientId).queryKey,
      ...['app', 'billing', 'billing-state'].map((name) => [name, clientId]),
    ],
    (input: Input) => {
      const params = { path: { clientId } }
      const body = toBody(input)
      return unwrap(api.PUT('/api/v1/apps/{clientId}/billing/settings', { params, body }))
    },
  )

export const overageQuery = (clientId: string) =>
  queryOptions({
    queryKey: [...moneyKey(clientId), 'overage'],
    queryFn: () =>
      unwrap(
        api.GET('/api/v1/apps/{clientId}/billing/overage', { params: { path: { clientId } } }),
      ),
  })

const reportMs = 60_000
const rereadMs = 3_000

/**
 * The interval of a query of money. With `since`, the time of a payment, it is read again for a
 * minute, in which the processor reports the payment.
 */
export const untilReported = (since: number | null) => (): number | false =>
  since !== null && Date.now() < since + reportMs && rereadMs

/** When the payer came back from the processor's page after a payment; null otherwise. */
export const usePaidSince = (paid: true | undefined): number | null =>
  useState(() => (paid === true ? Date.now() : null))[0]

/** The addresses to which a page of the processor leads back: this view, which knows of a payment. */
export function leadBack() {
  const back = new URL(location.href)
  back.searchParams.delete('paid')
  const paid = new URL(back)
  paid.searchParams.set('paid', 'true')
  return { successUrl: paid.href, cancelUrl: back.href }
}

/** Changes that lead to a page of the payment processor return its address. */
export interface PayPages {
  readonly topUp: UseMutationResult<string, Error, string>
  readonly addCard: UseMutationResult<string, Error, unknown>
  /** Called when another amount is typed, which is another page. */
  readonly renewKey: () => void
}

export function usePayerChanges(payer: Payer) {
  const { clientId } = payer
  const params = { path: { clientId } }
  // Opens the same page after a lost answer. Another amount is another page.
  const [key, renewKey] = useIdempotencyKey()
  const headers = (what: string) => ({ 'idempotency-key': `${key}-${what}` })
  return {
    renewKey,
    topUp: useChange(keysOf(clientId), async (amountUsd: string) => {
      const body = { amountUsd, ...payerQuery(payer), ...leadBack() }
      const url = '/api/v1/apps/{clientId}/billing/wallet/top-up'
      return (
        await unwrap(api.POST(url, { params: { ...params, header: headers('top-up') }, body }))
      ).checkoutUrl
    }),
    addCard: useChange(keysOf(clientId), async () => {
      const body = { ...payerQuery(payer), ...leadBack() }
      const url = '/api/v1/apps/{clientId}/billing/payment-method'
      return (await unwrap(api.POST(url, { params: { ...params, header: headers('card') }, body })))
        .checkoutUrl
    }),
    collect: useChange(keysOf(clientId), () =>
      unwrap(
        api.POST('/api/v1/apps/{clientId}/billing/collect', { params, body: payerQuery(payer) }),
      ),
    ),
  }
}

export function useProcessorChanges(clientId: string) {
  const params = { path: { clientId } }
  return {
    connect: useChange(keysOf(clientId), async () => {
      const url = '/api/v1/apps/{clientId}/billing/processor/connect'
      return (await unwrap(api.POST(url, { params }))).url
    }),
    disconnect: useChange(keysOf(clientId), () =>
      unwrap(api.DELETE('/api/v1/apps/{clientId}/billing/processor', { params })),
    ),
  }
}

export const useUpdateOverage = (clientId: string) =>
  useChange(keysOf(clientId), (ceilingUsdMicros: string | null) =>
    unwrap(
      api.PUT('/api/v1/apps/{clientId}/billing/overage', {
        params: { path: { clientId } },
        body: { ceilingUsdMicros },
      }),
    ),
  )

/** Reads the statement of a month as CSV. Refused for a month that has not ended. */
export const useStatement = (clientId: string) =>
  useMutation({
    mutationFn: (month: string): Promise<string> =>
      unwrap<string>(
        api.GET('/api/v1/apps/{clientId}/billing/statements/{month}', {
          params: { path: { clientId, month } },
          headers: { accept: 'text/csv' },
          parseAs: 'text',
        }),
      ),
  })

interface Credit {
  readonly amountUsd: string
  readonly reason: string
  /** Makes one credit note of a repeated request. */
  readonly idempotencyKey: string
}

/** Corrections of an invoice that the app issued. Each answers the document that it changed or made. */
export function useInvoiceChanges(clientId: string, invoiceId: string) {
  const path = { clientId, invoiceId }
  const keys = [
    ['invoice', clientId],
    ['invoices', clientId],
    ['newest-invoices', clientId],
    moneyKey(clientId),
  ]
  const url = '/api/v1/apps/{clientId}/billing/invoices/{invoiceId}' as const
  return {
    voidIt: useChange(keys, (reason: string) =>
      unwrap(api.POST(`${url}/void`, { params: { path }, body: { reason } })),
    ),
    credit: useChange(keys, ({ idempotencyKey, ...body }: Credit) => {
      const header = { 'idempotency-key': idempotencyKey }
      return unwrap(api.POST(`${url}/credit-notes`, { params: { path, header }, body }))
    }),
  }
}

/** The app's balance at the payment processor, which core reads at most once a minute. */
export const processorBalanceQuery = (clientId: string) =>
  queryOptions({
    queryKey: [...moneyKey(clientId), 'processor-balance'],
    queryFn: () =>
      unwrap(
        api.GET('/api/v1/internal/apps/{clientId}/billing/balance', {
          params: { path: { clientId } },
        }),
      ),
  })

export type Payout = Schemas['PayoutList']['payouts'][number]

/** Payouts to the owner, newest first. */
export const payoutsQuery = (clientId: string) =>
  infiniteQueryOptions({
    queryKey: [...moneyKey(clientId), 'payouts'],
    initialPageParam: '',
    getNextPageParam: ({ nextCursor }: Schemas['PayoutList']) => nextCursor,
    queryFn: ({ pageParam: cursor }) =>
      unwrap(
        api.GET('/api/v1/internal/apps/{clientId}/billing/payouts', {
          params: {
            path: { clientId },
            query: { limit: '10', ...(cursor !== '' && { cursor }) },
          },
        }),
      ),
  })

export type Payment = Schemas['PaymentList']['payments'][number]

export const paymentStates = ['received', 'partly_refunded', 'refunded', 'disputed'] as const

/** A filter of payments. Days are in UTC, both included. */
export interface PaymentFilter {
  readonly state?: Payment['state']
  /** External id of the user. */
  readonly user?: string
  readonly from?: string
  readonly to?: string
}

const pageSize = '50'
const dayMs = 86_400_000

const toQuery = ({ state, user, from, to }: PaymentFilter) => ({
  ...(state !== undefined && { state }),
  ...(user !== undefined && { externalUserId: user }),
  ...(from !== undefined && { since: from }),
  ...(to !== undefined && { until: new Date(Date.parse(to) + dayMs).toISOString() }),
})

/** Payments of the app's users, newest first. */
export const paymentsQuery = (clientId: string, filter: PaymentFilter) =>
  infiniteQueryOptions({
    queryKey: [...moneyKey(clientId), 'payments', filter],
    initialPageParam: '',
    getNextPageParam: ({ nextCursor }: Schemas['PaymentList']) => nextCursor,
    queryFn: async ({ pageParam: cursor }): Promise<Schemas['PaymentList']> => {
      const list = await unwrap(
        api.GET('/api/v1/internal/apps/{clientId}/payments', {
          params: {
            path: { clientId },
            query: { limit: pageSize, ...(cursor !== '' && { cursor }), ...toQuery(filter) },
          },
        }),
      )
      if (typeof list === 'string') throw new Error('expected a list, got a table')
      return list
    },
  })

/** Reads all payments of a filter as CSV. */
export const usePaymentTable = (clientId: string) =>
  useMutation({
    mutationFn: (filter: PaymentFilter): Promise<string> =>
      unwrap<string>(
        api.GET('/api/v1/internal/apps/{clientId}/payments', {
          params: { path: { clientId }, query: toQuery(filter) },
          headers: { accept: 'text/csv' },
          parseAs: 'text',
        }),
      ),
  })
