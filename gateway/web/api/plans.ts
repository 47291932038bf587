import { queryOptions, useMutation } from '@tanstack/react-query'
import { useChange } from './change.ts'
import { type Schemas, api, unwrap } from './client.ts'
import type { PlanTerms } from './plan-terms.ts'

export type { Plan, PlanTerms } from './plan-terms.ts'

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

/** A plan in each of its newest versions, the newest first. */
export const planVersionsQuery = (clientId: string, planId: string) =>
  queryOptions({
    queryKey: [...plansQuery(clientId).queryKey, planId, 'versions'],
    queryFn: async () => {
      const path = { clientId, planId }
      const url = '/api/v1/apps/{clientId}/plans/{planId}/versions'
      return (await unwrap(api.GET(url, { params: { path } }))).versions
    },
  })

const keysOf = (clientId: string) => [plansQuery(clientId).queryKey]

export function usePlanChanges(clientId: string) {
  const url = '/api/v1/apps/{clientId}/plans'
  const path = { clientId }
  return {
    create: useChange(keysOf(clientId), (body: PlanTerms) =>
      unwrap(api.POST(url, { params: { path }, body: { ...body } })),
    ),
    update: useChange(keysOf(clientId), (body: PlanTerms & { readonly id: string }) =>
      unwrap(api.PUT(url, { params: { path }, body: { ...body } })),
    ),
    remove: useChange(keysOf(clientId), (planId: string) =>
      unwrap(api.DELETE(url, { params: { path, query: { planId } } })),
    ),
    sync: useChange(keysOf(clientId), (planId: string) =>
      unwrap(
        api.POST('/api/v1/apps/{clientId}/plans/{planId}/sync', {
          params: { path: { clientId, planId } },
        }),
      ),
    ),
  }
}

export const useUpdateStarter = (clientId: string) =>
  useChange(keysOf(clientId), (includedUsdMicros: string) =>
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

export type Catalog = Schemas['Catalog']

/** Pipelines and models that the app's plans may name, which change seldom. */
export const appCatalogQuery = (clientId: string) =>
  queryOptions({
    queryKey: ['catalog', clientId],
    staleTime: 300_000,
    queryFn: () =>
      unwrap(
        api.GET('/api/v1/internal/apps/{clientId}/catalog', { params: { path: { clientId } } }),
      ),
  })
