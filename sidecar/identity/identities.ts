import { fingerprint } from '../../core/lib/crypto.ts'
import type { Log } from '../../core/lib/log.ts'
import type { Now } from '../../core/lib/time.ts'
import type { Account, Accounts } from '../wallets/accounts.ts'
import { type Refusal, refusals } from '../decision/refusals.ts'
import { type BoundIdentity, bindIdentity } from './bound-identity.ts'
import { type Versions, createBoundedMap, createSingleFlight } from '../cache/cached-state.ts'
import type { Selection } from './verifiers/select.ts'
import type { Presentation, RefusalDetail, Source, Verdict } from './verifiers/verifier.ts'

/** The identity of a credential and its account, or the refusal. */
export type Resolution =
  | { readonly identity: BoundIdentity; readonly account: Account; readonly source: Source }
  | { readonly refusal: Refusal; readonly source: Source; readonly detail?: RefusalDetail }

type Entry = Resolution & {
  readonly until: number
  /** Version of cached state before its read, or when it was last found to be fresh. */
  version: number
}

export interface IdentitiesOptions extends Selection {
  readonly accounts: Pick<Accounts, 'accountOf'>
  readonly versions: Versions
  readonly max: number
  readonly log: Log
  readonly now: Now
}

const refusedMs = 5_000

/**
 * Caches identities by the fingerprint of their credential: as long as the verifier allows, five
 * seconds for an unknown key, never for a fault or a verdict that depends on headers. Runs one
 * verification at a time per credential, and per set of headers if the verifier may read them.
 */
export function createIdentities({
  verify,
  usesHeadersOnly,
  mayReadHeaders,
  accounts,
  versions,
  max,
  log,
  now,
}: IdentitiesOptions) {
  // Keep refusals apart, so that a flood of wrong keys cannot evict valid ones.
  const identities = createBoundedMap<Entry>({ max })
  const refused = createBoundedMap<Entry>({ max })
  const singleFlight = createSingleFlight<Resolution>()

  /** Returns synchronously if the identity is cached at `at` (Unix milliseconds). Throws faults. */
  function resolve(presentation: Presentation, at: number): Resolution | Promise<Resolution> {
    const { credential, headers } = presentation
    if (credential.kind !== 'given' || usesHeadersOnly?.(headers))
      return verifyNow(presentation, null)
    const key = fingerprint(credential.text)
    const entry = identities.get(key) ?? refused.get(key)
    if (entry && isValid(entry, at)) return entry
    const flight = mayReadHeaders ? fingerprint(JSON.stringify([key, headers])) : key
    return singleFlight(flight, () => verifyNow(presentation, key))
  }

  function isValid(entry: Entry, at: number): boolean {
    if (entry.until <= at) return false
    if ('refusal' in entry) return true
    if (entry.account.evicted || versions.isAnyStale(entry.identity.grants, entry.version))
      return false
    // Mark it as read now, so that an invalidation of other ids is looked up once instead of at
    // each call.
    entry.version = versions.current()
    return true
  }

  async function verifyNow(presentation: Presentation, key: string | null): Promise<Resolution> {
    const version = versions.current()
    const verdict = await verify(presentation)
    const resolution = resolutionOf(verdict, presentation)
    if (verdict?.kind === 'yes' && 'refusal' in resolution) {
      const { issuer, clientId } = verdict.identity
      log.error(
        { issuer, clientId: clientId.slice(0, 64) },
        'a verified identity cannot be bound to an auth_id',
      )
    }
    if (key === null || !verdict || verdict.byHeaders) return resolution
    const entry = { ...resolution, source: 'memory' as const, version }
    if (verdict.kind === 'no') {
      if (verdict.remember) refused.set(key, { ...entry, until: now().getTime() + refusedMs })
    } else if (verdict.identity.keepUntil > now().getTime()) {
      identities.set(key, { ...entry, until: verdict.identity.keepUntil })
      refused.remove(key)
    }
    return resolution
  }

  function resolutionOf(verdict: Verdict | null, { credential }: Presentation): Resolution {
    if (!verdict) return { refusal: refuseUnclaimed(credential.kind), source: 'none' }
    if (verdict.kind === 'no') {
      const { refusal, detail } = verdict
      return { refusal, source: 'none', ...(detail && { detail }) }
    }
    const identity = bindIdentity(verdict.identity, now().getTime())
    if (!('authId' in identity)) return { refusal: identity, source: 'none' }
    return { identity, account: accounts.accountOf(identity.authId), source: verdict.source }
  }

  const sizes = () => ({ identities: identities.size(), refused: refused.size() })

  return { resolve, sizes }
}

export type Identities = ReturnType<typeof createIdentities>

/** The refusal of a credential that no verifier recognises. */
function refuseUnclaimed(kind: Presentation['credential']['kind']): Refusal {
  if (kind === 'missing') return refusals.missingCredential
  return kind === 'malformed' ? refusals.malformedCredential : refusals.unknownCredential
}
