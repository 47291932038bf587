import { withoutFinalSlashes } from '../text/urls.ts'

/** What a user of an app reaches at the edge: usage over HTTP, and the same as a tool of the Model Context Protocol. */
export const resourceNames = ['usage', 'mcp'] as const

export type ResourceName = (typeof resourceNames)[number]

/** Where it is, for the documents that describe it and for the tokens that name it. */
export const resourcePath = (clientId: string, name: ResourceName): string =>
  `/api/v1/apps/${clientId}/${name}`

const resource = new RegExp(`^/api/v1/apps/app_[0-9a-f]{24}/(?:${resourceNames.join('|')})$`)

export const isResourcePath = (path: string): boolean => resource.test(path)

/**
 * Returns whether a `resource` parameter (RFC 8707) names what tokens of the issuer are for: the issuer itself, and where
 * there is an edge, that and what an app has there.
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
    return path === '' || isResourcePath(path)
  }
}
