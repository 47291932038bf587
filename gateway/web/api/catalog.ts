import { queryOptions } from '@tanstack/react-query'
import { type Schemas, api, unwrap } from './client.ts'

export type Catalog = Schemas['Catalog']

/** What plans may name changes seldom. */
const staleTime = 300_000

export const appCatalogQuery = (clientId: string) =>
  queryOptions({
    queryKey: ['catalog', clientId],
    staleTime,
    queryFn: () =>
      unwrap(
        api.GET('/api/v1/internal/apps/{clientId}/catalog', { params: { path: { clientId } } }),
      ),
  })

export const catalogQuery = queryOptions({
  queryKey: ['operate', 'catalog'],
  queryFn: () => unwrap(api.GET('/api/v1/internal/operate/catalog')),
})
