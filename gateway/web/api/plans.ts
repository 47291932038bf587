import {
  type UseMutationResult,
  queryOptions,
  useMutation,
  useQueryClient,
} from '@tanstack/react-query'
import { type Schemas, api, unwrap } from './client.ts'

export type Plan = Schemas['Plan']
export type WhatIf = Schemas['WhatIf']

export const plansQuery = (clientId: string) =>
  queryOptions({
    queryKey: ['plans', clientId],
    queryFn: async () => {
      const path = { clientId }
      const plans = await unwrap(api.GET('/api/v1/apps/{clientId}/plans', { params: { path } }))
      if (!Array.isArray(plans)) throw new Error('the service answered with products, not plans')
      return plans
    },
  })

/** A plan as the form sends it. */
export interface PlanTerms {
  readonly name: string
  readonly type: Plan['type']
  readonly priceAmount: string
  readonly status: Plan['status']
  readonly includedUnits: string | null
  readonly includedUsdMicros: string | null
  readonly overageRateWei: string | null
  readonly overageRateUsd: string | null
  readonly billingCycle: Plan['billingCycle']
  readonly chargeThresholdUsd: string | null
  readonly capabilities: {
    readonly pipeline: string
    readonly modelId: string
    readonly retailRateUsd: string | null
  }[]
}

/** Runs a change of an app's plans, then reads them again. */
function useChange<Input, Output>(
  clientId: string,
  mutationFn: (input: Input) => Promise<Output>,
): UseMutationResult<Output, Error, Input> {
  const queries = useQueryClient()
  return useMutation({
    mutationFn,
    onSuccess: () => queries.invalidateQueries({ queryKey: plansQuery(clientId).queryKey }),
  })
}

export function usePlanChanges(clientId: string) {
  const url = '/api/v1/apps/{clientId}/plans'
  const path = { clientId }
  return {
    create: useChange(clientId, (body: PlanTerms) =>
      unwrap(api.POST(url, { params: { path }, body: { ...body } })),
    ),
    update: useChange(clientId, (body: PlanTerms & { readonly id: string }) =>
      unwrap(api.PUT(url, { params: { path }, body: { ...body } })),
    ),
    remove: useChange(clientId, (planId: string) =>
      unwrap(api.DELETE(url, { params: { path, query: { planId } } })),
    ),
    sync: useChange(clientId, (planId: string) =>
      unwrap(
        api.POST('/api/v1/apps/{clientId}/plans/{planId}/sync', {
          params: { path: { clientId, planId } },
        }),
      ),
    ),
  }
}

export const useUpdateStarter = (clientId: string) =>
  useChange(clientId, (includedUsdMicros: string) =>
    unwrap(
      api.PUT('/api/v1/apps/{clientId}/starter-plan', {
        params: { path: { clientId } },
        body: { includedUsdMicros },
      }),
    ),
  )

export interface Trial {
  readonly from: string
  readonly to: string
  readonly plan: PlanTerms
}

/** Replays the booked tickets of a range with a draft plan for every user. Changes nothing. */
export const useWhatIf = (clientId: string) =>
  useMutation({
    mutationFn: ({ from, to, plan }: Trial) =>
      unwrap(
        api.POST('/api/v1/apps/{clientId}/billing/whatif', {
          params: { path: { clientId } },
          body: { from, to, plans: [{ ...plan }], assign: { default: plan.name } },
        }),
      ),
  })
