import { queryOptions } from '@tanstack/react-query'
import { useChange } from './change.ts'
import { type Schemas, api, unwrap } from './client.ts'

export type Check = Schemas['CheckList']['checks'][number]
export type CheckRun = Schemas['CheckRun']

const queryKey = ['operate', 'checks'] as const
const runningMs = 2_000
const idleMs = 30_000

/** Read often while a check runs: another platform admin may have started it. */
export const checksQuery = queryOptions({
  queryKey,
  refetchInterval: ({ state: { data } }) =>
    data?.some(({ last }) => last?.state === 'running') ? runningMs : idleMs,
  queryFn: async () => (await unwrap(api.GET('/api/v1/internal/operate/checks'))).checks,
})

export const useStartCheck = () =>
  useChange([queryKey], (name: Check['name']) =>
    unwrap(
      api.POST('/api/v1/internal/operate/checks/{name}/start', { params: { path: { name } } }),
    ),
  )
