import { isObject, parseObject } from '../../core/lib/json.ts'
import type { Apps } from '../callers/signers.ts'

/**
 * Returns the app of the first event outside `apps`; null without one. An event without an
 * app goes to core, which charges no user for it; so does one with a repeated member, which core
 * quarantines.
 */
export function foreignApp(envelopes: readonly Buffer[], apps: Apps): string | null {
  if (apps === null) return null
  for (const envelope of envelopes)
    for (const app of appsIn(envelope)) if (!apps.has(app)) return app
  return null
}

/** Returns every app that core could assign the event to (docs/signer-events.md). */
function appsIn(envelope: Buffer): string[] {
  const data = parseObject(envelope.toString())?.['data']
  if (!isObject(data)) return []
  const { auth_id: authId, client_id: clientId } = data
  const apps = typeof authId === 'string' ? [authId.slice(0, Math.max(0, authId.indexOf(':')))] : []
  if (typeof clientId === 'string') apps.push(clientId)
  return apps.filter((app) => app !== '')
}
