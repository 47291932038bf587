import { hash } from 'node:crypto'
import type { AppId, ExternalUserId } from '../../platform/ids.ts'

/**
 * The name of an end user at a provider: 32 hex digits of a hash of the app and the external id. It is the same on every
 * try, so that a repeated creation is a conflict and not a second user, and two external ids share none.
 */
export const providerName = (user: { app: AppId; externalUserId: ExternalUserId }): string =>
  hash('sha256', `${user.app}:${user.externalUserId}`).slice(0, 32)
