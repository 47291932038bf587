import { isObject, parseObject } from '../../core/lib/json.ts'
import type { Apps } from './signers.ts'

/**
 * The app of the first event that belongs to none of `apps`; null when there is none. An event that names no app is
 * nobody's and goes to core, which charges nobody for it; so does one with a repeated member, which core quarantines.
 */
export function foreignApp(envelopes: readonly Buffer[], apps: Apps): string | null {
  if (apps === null) return null
  for (const envelope of envelopes)
    for (const app of appsIn(envelope)) if (!apps.has(app)) return app
  return null
}

/** Every app that core could take an event to be of (docs/signer-protocol.md). */
function appsIn(envelope: Buffer): string[] {
  const data = parseObject(envelope.toString())?.['data']
  if (!isObject(data)) return []
  const { auth_id: authId, client_id: clientId } = data
  const apps = typeof authId === 'string' ? [authId.slice(0, Math.max(0, authId.indexOf(':')))] : []
  if (typeof clientId === 'string') apps.push(clientId)
  return apps.filter((app) => app !== '')
}
