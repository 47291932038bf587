import { withoutFinalSlashes } from '../text/urls.ts'

/**
 * An app's resources at the edge: usage over HTTP, and usage as a tool of the Model Context
 * Protocol.
 */
const resourceNames = ['usage', 'mcp'] as const

export type ResourceName = (typeof resourceNames)[number]

/** The resource's path, for the documents that describe it and the tokens that name it. */
export const resourcePath = (clientId: string, name: ResourceName): string =>
  `/api/v1/apps/${clientId}/${name}`

const resource = new RegExp(`^/api/v1/apps/app_[0-9a-f]{24}/(?:${resourceNames.join('|')})$`)

export const isResourcePath = (path: string): boolean => resource.test(path)

/**
 * Returns a function that checks whether tokens of the issuer may be for a `resource` parameter
 * (RFC 8707): the issuer itself and, if there is an edge, the edge and each app's resources there.
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
