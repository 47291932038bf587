import { internalTag } from '../../http/endpoint.ts'

export const meUrl = '/api/v1/internal/me/apps'

/** Address of what a person is and has in an app. */
export const ownUrl = `${meUrl}/:clientId`

/**
 * Rules of a person's own routes. Core takes the end user from the session's account and the app in
 * the path, so no request can name another user.
 */
export const ownRules = { guard: { kind: 'self' }, tags: [internalTag] } as const
