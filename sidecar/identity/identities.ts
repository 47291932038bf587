import { randomBytes } from 'node:crypto'
import { fingerprint } from '../../core/lib/crypto.ts'
import type { Log } from '../../core/lib/log.ts'
import type { Now } from '../../core/lib/time.ts'
import type { AccessBook, Account } from '../accounts/access.ts'
import { createBoundedMap } from './bounded-map.ts'
import { createChaskey } from './chaskey.ts'
import type { Marks } from './versions.ts'
import { type Refusal, refusals } from '../authorize/refusals.ts'
import { createSingleFlight } from './single-flight.ts'
import type { Presented, Source, Verdict, Verifier } from './verifiers/types.ts'
import { type Who, createWho } from './bound-identity.ts'

/** Who it is, or why not. */
export type Found =
  | { readonly who: Who; readonly account: Account; readonly source: Source }
  | { readonly refusal: Refusal; readonly source: Source }

type Entry = Found & {
  readonly until: number
  /** The point in the order of invalidations at which it was read. */
  readonly since: number
}

export interface IdentitiesOptions {
  readonly verify: Verifier
  readonly access: Pick<AccessBook, 'accountOf'>
  readonly marks: Marks
  readonly max: number
  readonly log: Log
  readonly now: Now
}

const refusedMs = 5_000

/**
 * Identities in this process, by a name of the credential: long for who somebody is, five seconds
 * for an unknown key, never for a fault. One verification at a time for each credential.
 */
export function createIdentities({ verify, access, marks, max, log, now }: IdentitiesOptions) {
  // Refusals live apart, so that a flood of wrong keys cannot push out the right ones.
  const known = createBoundedMap<Entry>({ max })
  const refused = createBoundedMap<Entry>({ max })
  const once = createSingleFlight<Found>()
  const nameOf = createNames()

  /** Answers at once from memory where it can at `at`, Unix milliseconds; a fault is thrown. */
  function find(presented: Presented, at: number): Found | Promise<Found> {
    const { credential } = presented
    if (credential.kind !== 'given') return verifyNow(presented, null)
    const name = nameOf(credential.text)
    const entry = known.get(name) ?? refused.get(name)
    if (entry && isGood(entry, at)) return entry
    return once(name, () => verifyNow(presented, name))
  }

  function isGood(entry: Entry, at: number): boolean {
    if (entry.until <= at) return false
    if ('refusal' in entry) return true
    const { who, account, since } = entry
    if (account.forgotten) return false
    return !marks.isStale(who.keyId, since) && !marks.isStale(who.userId, since)
  }

  async function verifyNow(presented: Presented, name: string | null): Promise<Found> {
    const since = marks.point()
    const verdict = await verify(presented)
    const found = toFound(verdict, presented)
    if (verdict?.kind === 'yes' && 'refusal' in found) {
      const { issuer, clientId } = verdict.identity
      log.error(
        { issuer, clientId: clientId.slice(0, 64) },
        'a verified identity cannot be bound to an auth_id',
      )
    }
    if (name === null || !verdict) return found
    const remembered = { ...found, source: 'memory', since } as const
    if (verdict.kind === 'no') {
      if (verdict.remember) refused.set(name, { ...remembered, until: now().getTime() + refusedMs })
    } else if (verdict.identity.keepUntil > now().getTime()) {
      known.set(name, { ...remembered, until: verdict.identity.keepUntil })
      refused.remove(name)
    }
    return found
  }

  function toFound(verdict: Verdict | null, { credential }: Presented): Found {
    if (!verdict) return { refusal: unclaimed(credential.kind), source: 'none' }
    if (verdict.kind === 'no') return { refusal: verdict.refusal, source: 'none' }
    const who = createWho(verdict.identity)
    if (!('authId' in who)) return { refusal: who, source: 'none' }
    return { who, account: access.accountOf(who.authId), source: verdict.source }
  }

  const sizes = () => ({ identities: known.size(), refused: refused.size() })

  return { find, sizes }
}

export type Identities = ReturnType<typeof createIdentities>

// A key has no fewer characters than its secret, and a token has more.
const ownLength = 49

/**
 * Names credentials, so that none is kept. The name of one as long as ours is 128 bits under a key
 * that is this process's own secret: nobody can choose a credential that has another's name, and
 * whoever reads this memory lacks half of the 256 bits that are random in a key. SHA-256 costs three
 * times as much, and drives our code from the processor's cache; others, which may have less to
 * guess, get it all the same.
 */
function createNames(): (credential: string) => string {
  const tagOf = createChaskey(randomBytes(16))
  return (credential) =>
    credential.length < ownLength ? fingerprint(credential) : tagOf(credential)
}

function unclaimed(kind: Presented['credential']['kind']): Refusal {
  if (kind === 'missing') return refusals.missingCredential
  return kind === 'malformed' ? refusals.malformedCredential : refusals.unknownCredential
}
