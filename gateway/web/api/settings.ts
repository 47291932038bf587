import { type QueryKey, queryOptions } from '@tanstack/react-query'
import { signerSecretsQuery } from './attention.ts'
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

/** Deletes the app. Queries of the app itself would fail from now on, so only the list is read again. */
export const useDeleteApp = (clientId: string) =>
  useChange([appsQuery.queryKey], () =>
    unwrap(api.DELETE('/api/v1/apps/{clientId}', { params: { path: { clientId } } })),
  )

interface NewSecret {
  /** Ends the older secrets at once, with what was made with them; keys only without `keepKeys`. */
  readonly revokeOld: boolean
  readonly keepKeys?: boolean
  readonly idempotencyKey: string
}

/** Makes a new client secret. */
export const useRotateSecret = (clientId: string) =>
  useChange(appKeys(clientId), ({ revokeOld, keepKeys = false, idempotencyKey }: NewSecret) =>
    unwrap(
      api.POST('/api/v1/apps/{clientId}/credentials', {
        params: {
          path: { clientId },
          query: {
            target: 'm2m',
            revokeOld: revokeOld ? 'true' : 'false',
            ...(keepKeys && { keepKeys: 'true' as const }),
          },
          header: { 'idempotency-key': idempotencyKey },
        },
      }),
    ),
  )

interface NewSignerSecret {
  readonly body: { readonly purpose: 'decisions' | 'events'; readonly overlapSeconds?: number }
  readonly idempotencyKey: string
}

/** Changes of the secrets of the app's own signer. Only owners may. */
export function useSignerSecretChanges(clientId: string) {
  const keys = [signerSecretsQuery(clientId).queryKey]
  const url = '/api/v1/apps/{clientId}/signer-secrets'
  const path = { clientId }
  return {
    create: useChange(
      keys,
      ({ body, idempotencyKey }: NewSignerSecret) =>
        unwrap(
          api.POST(url, { params: { path, header: { 'idempotency-key': idempotencyKey } }, body }),
        ),
      { showsAtOnce: true },
    ),
    revoke: useChange(keys, (secretId: string) =>
      unwrap(api.DELETE(url, { params: { path, query: { secretId } } })),
    ),
  }
}

/** Moves the clock of a test app. Everything that is shown may change with it. */
export const useAdvanceClock = (clientId: string) =>
  useChange(
    [[]],
    (advanceSeconds: number) =>
      unwrap(
        api.POST('/api/v1/apps/{clientId}/test-clock', {
          params: { path: { clientId } },
          body: { advanceSeconds },
        }),
      ),
    { showsAtOnce: true },
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

export type IssuerRules = Omit<TrustedIssuer, 'id' | 'createdAt' | 'updatedAt'>

export function useIssuerChanges(clientId: string) {
  const keys = [issuersQuery(clientId).queryKey]
  const url = '/api/v1/apps/{clientId}/trusted-issuers'
  const path = { clientId }
  return {
    add: useChange(keys, (body: IssuerRules) => unwrap(api.POST(url, { params: { path }, body }))),
    replace: useChange(keys, ({ issuerId, body }: { issuerId: string; body: IssuerRules }) =>
      unwrap(api.PUT(url, { params: { path, query: { issuerId } }, body })),
    ),
    remove: useChange(keys, (issuerId: string) =>
      unwrap(api.DELETE(url, { params: { path, query: { issuerId } } })),
    ),
    check: useChange([], (token: string) =>
      unwrap(api.POST(`${url}/check`, { params: { path }, body: { token } })),
    ),
  }
}
