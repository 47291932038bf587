import { queryOptions } from '@tanstack/react-query'
import { api, unwrap } from './client.ts'

const usageUrl = '/api/v1/builder/apps/{clientId}/usage'

/** The signed receipt of a ticket. */
export const receiptQuery = (clientId: string, eventId: string) =>
  queryOptions({
    queryKey: ['receipt', clientId, eventId],
    queryFn: () =>
      unwrap(
        api.GET(`${usageUrl}/requests/{eventId}/receipt`, {
          params: { path: { clientId, eventId } },
        }),
      ),
  })

/** The signed root of an app's day, or null. Other apps have none for the reader. */
export async function findRoot(clientId: string, day: string): Promise<string | null> {
  const params = { path: { clientId }, query: { from: day, to: day } }
  const { roots } = await unwrap(api.GET(`${usageUrl}/roots`, { params }))
  return roots.find((root) => root.day === day)?.statement ?? null
}

/** The issuer and the public keys that it publishes now. */
export const issuerQuery = queryOptions({
  queryKey: ['issuer'],
  queryFn: async () => {
    const [{ issuer }, keys] = await Promise.all([
      unwrap(api.GET('/api/v1/oidc/.well-known/openid-configuration')),
      unwrap(api.GET('/api/v1/oidc/jwks')),
    ])
    return { issuer, keys: JSON.stringify(keys) }
  },
})
