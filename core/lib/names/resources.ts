import { withoutFinalSlashes } from '../text/urls.ts'

/** Where the routes of the edge are, for the documents that describe them and for the tokens that name them. */
export const usagePath = (clientId: string): string => `/api/v1/apps/${clientId}/usage`

const usage = /^\/api\/v1\/apps\/app_[0-9a-f]{24}\/usage$/

/**
 * Returns whether a `resource` parameter (RFC 8707) names what tokens of the issuer are for: the issuer itself, and where
 * there is an edge, that and an app's usage there.
 */
export function createResourceCheck({
  issuer,
  edgeUrl,
}: {
  readonly issuer: string
  readonly edgeUrl: string | undefined
}): (target: string) => boolean {
  return (target) => {
    const name = withoutFinalSlashes(target)
    if (name === issuer) return true
    if (edgeUrl === undefined || !name.startsWith(edgeUrl)) return false
    const path = name.slice(edgeUrl.length)
    return path === '' || usage.test(path)
  }
}
