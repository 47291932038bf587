import { type QueryKey, queryOptions } from '@tanstack/react-query'
import { useChange } from './change.ts'
import { type Schemas, api, unwrap } from './client.ts'
import { appQuery, appsQuery } from './queries.ts'

export type TrustedIssuer = Schemas['TrustedIssuer']
export type TokenCheck = Schemas['TokenCheck']

export const domainsQuery = (clientId: string) =>
  queryOptions({
    queryKey: ['domains', clientId],
    queryFn: () =>
      unwrap(api.GET('/api/v1/apps/{clientId}/domains', { params: { path: { clientId } } })),
  })

export const issuersQuery = (clientId: string) =>
  queryOptions({
    queryKey: ['issuers', clientId],
    queryFn: () =>
      unwrap(
        api.GET('/api/v1/apps/{clientId}/trusted-issuers', { params: { path: { clientId } } }),
      ),
  })

export const routingQuery = (clientId: string) =>
  queryOptions({
    queryKey: ['routing', clientId],
    queryFn: () =>
      unwrap(api.GET('/api/v1/apps/{clientId}/signer/routing', { params: { path: { clientId } } })),
  })

const appKeys = (clientId: string): QueryKey[] => [appQuery(clientId).queryKey, appsQuery.queryKey]

export interface AppChange {
  readonly name?: string
  readonly developerName?: string
  readonly websiteUrl?: string
  readonly redirectUris?: string[]
  readonly postLogoutRedirectUris?: string[]
}

export const useUpdateApp = (clientId: string) =>
  useChange(appKeys(clientId), (body: AppChange) =>
    unwrap(api.PUT('/api/v1/apps/{clientId}', { params: { path: { clientId } }, body })),
  )

/** Makes a new client secret. `revokeOld` ends the older ones and what was made with them. */
export const useRotateSecret = (clientId: string) =>
  useChange(appKeys(clientId), ({ revokeOld }: { revokeOld: boolean }) =>
    unwrap(
      api.POST('/api/v1/apps/{clientId}/credentials', {
        params: {
          path: { clientId },
          query: { target: 'm2m', revokeOld: revokeOld ? 'true' : 'false' },
        },
      }),
    ),
  )

export function useDomainChanges(clientId: string) {
  const keys = [domainsQuery(clientId).queryKey]
  const url = '/api/v1/apps/{clientId}/domains'
  return {
    add: useChange(keys, (domain: string) =>
      unwrap(api.POST(url, { params: { path: { clientId } }, body: { domain } })),
    ),
    remove: useChange(keys, (domainId: string) =>
      unwrap(api.DELETE(url, { params: { path: { clientId }, query: { domainId } } })),
    ),
  }
}

export interface IssuerRules {
  readonly issuer: string
  readonly audiences: string[]
  readonly userClaim?: string
}

export function useIssuerChanges(clientId: string) {
  const keys = [issuersQuery(clientId).queryKey]
  const url = '/api/v1/apps/{clientId}/trusted-issuers'
  const path = { clientId }
  return {
    add: useChange(keys, (body: IssuerRules) => unwrap(api.POST(url, { params: { path }, body }))),
    remove: useChange(keys, (issuerId: string) =>
      unwrap(api.DELETE(url, { params: { path, query: { issuerId } } })),
    ),
    check: useChange([], (token: string) =>
      unwrap(api.POST(`${url}/check`, { params: { path }, body: { token } })),
    ),
  }
}
