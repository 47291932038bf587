import { infiniteQueryOptions, queryOptions, useMutation } from '@tanstack/react-query'
import { useChange } from './change.ts'
import { useIdempotencyKey } from './submission.ts'
import { type Schemas, api, unwrap } from './client.ts'

export type Wallet = Schemas['Wallet']
export type Processor = Schemas['PaymentProcessor']

/** Whose money is shown: of a user in billing mode merchant, otherwise of the app's owner. */
export interface Payer {
  readonly clientId: string
  readonly externalUserId: string | undefined
}

const payerQuery = ({ externalUserId }: Payer) =>
  externalUserId === undefined ? {} : { externalUserId }

const keyOf = (clientId: string) => ['money', clientId] as const
const keysOf = (clientId: string) => [keyOf(clientId)]

export const processorQuery = (clientId: string) =>
  queryOptions({
    queryKey: [...keyOf(clientId), 'processor'],
    queryFn: () =>
      unwrap(
        api.GET('/api/v1/apps/{clientId}/billing/processor', { params: { path: { clientId } } }),
      ),
  })

export const walletQuery = (payer: Payer) =>
  queryOptions({
    queryKey: [...keyOf(payer.clientId), 'wallet', payer.externalUserId],
    queryFn: () =>
      unwrap(
        api.GET('/api/v1/apps/{clientId}/billing/wallet', {
          params: { path: { clientId: payer.clientId }, query: payerQuery(payer) },
        }),
      ),
  })

export const transactionsQuery = (payer: Payer) =>
  infiniteQueryOptions({
    queryKey: [...keyOf(payer.clientId), 'transactions', payer.externalUserId],
    initialPageParam: '',
    getNextPageParam: ({ nextCursor }: Schemas['WalletTransactions']) => nextCursor,
    queryFn: ({ pageParam: cursor }) => readTransactions(payer, cursor),
  })

/** Reads a page of transactions; an empty cursor is the first page. */
export const readTransactions = (payer: Payer, cursor: string) =>
  unwrap(
    api.GET('/api/v1/apps/{clientId}/billing/wallet/transactions', {
      params: {
        path: { clientId: payer.clientId },
        query: { ...payerQuery(payer), ...(cursor !== '' && { cursor }) },
      },
    }),
  )

export const overageQuery = (clientId: string) =>
  queryOptions({
    queryKey: [...keyOf(clientId), 'overage'],
    queryFn: () =>
      unwrap(
        api.GET('/api/v1/apps/{clientId}/billing/overage', { params: { path: { clientId } } }),
      ),
  })

/** A page of the processor leads back to this view. */
const leadBack = () => ({ successUrl: location.href, cancelUrl: location.href })

/** Changes that lead to a page of the payment processor return its address. */
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
