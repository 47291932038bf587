import { internalTag, ownAppsUrl } from '../../http/endpoint.ts'

/** Address of what a person is and has in an app. */
export const ownUrl = `${ownAppsUrl}/:clientId`

/**
 * Rules of a person's own routes. Core takes the end user from the session's account and the app in
 * the path, so no request can name another user.
 */
export const ownRules = { guard: { kind: 'self' }, tags: [internalTag] } as const
