import { queryOptions } from '@tanstack/react-query'
import { useChange } from '../api/change.ts'
import { type Schemas, api, unwrap } from '../api/client.ts'
import { moneyKey, leadBack, untilReported } from '../api/money.ts'

export type OwnerAccount = Schemas['OwnerAccount']
export type OwnerPlan = Schemas['OwnerPlan']

/** The account that pays for an app as its owner. Refused with 403 for everybody else. */
export const ownerAccountQuery = (clientId: string, since: number | null) =>
  queryOptions({
    queryKey: [...moneyKey(clientId), 'owner-account'],
    refetchInterval: untilReported(since),
    queryFn: () =>
      unwrap(
        api.GET('/api/v1/apps/{clientId}/billing/owner-plan', { params: { path: { clientId } } }),
      ),
  })

/** The plans to which the account can move. */
export const ownerPlansQuery = (clientId: string) =>
  queryOptions({
    queryKey: [...moneyKey(clientId), 'owner-plans'],
    queryFn: async () =>
      (
        await unwrap(
          api.GET('/api/v1/apps/{clientId}/billing/owner-plans', {
            params: { path: { clientId } },
          }),
        )
      ).plans,
  })

interface TakenPlan {
  readonly planId: string
  readonly idempotencyKey: string
}

/** Moves the account to a plan. The answer has an address if the plan must be paid first. */
export const useTakeOwnerPlan = (clientId: string) =>
  useChange([moneyKey(clientId)], ({ planId, idempotencyKey }: TakenPlan) =>
    unwrap(
      api.POST('/api/v1/apps/{clientId}/billing/owner-plan', {
        params: { path: { clientId }, header: { 'idempotency-key': idempotencyKey } },
        body: { planId, ...leadBack() },
      }),
    ),
  )
