import { DomainError } from '../../../proto/errors.ts'
import { type Pool, tx } from '../../lib/sql.ts'
import { type Now, addSeconds } from '../../lib/time.ts'
import * as keyStore from './rotation-store.ts'
import type { SigningKeys } from './signing-keys.ts'
import * as store from './store.ts'

/** How long verifiers may keep the key set: what its Cache-Control says. */
export const jwksCacheSeconds = 300
// Other core processes look again within 30 s, and clocks differ a little.
const marginSeconds = 60
const daySeconds = 86_400

export interface KeyRotationDeps {
  readonly pool: Pool
  readonly signingKeys: SigningKeys
  /** The longest life of a JWT. */
  readonly tokenTtlSecondsMax: number
  /** 0 means: only by command. */
  readonly everyDays: number
  readonly now: Now
}

interface Reason {
  readonly actor: string
  readonly force: boolean
  /** Whether it is still wanted, asked under the lock. */
  readonly wanted: (active: keyStore.KeyState) => boolean
}

/** Rotation of the issuer's keys, by command and by schedule (decision 11). */
export function createKeyRotation(deps: KeyRotationDeps) {
  const { pool, signingKeys, tokenTtlSecondsMax, everyDays, now } = deps

  /**
   * The next key signs from now on, the active one stays published until its last token is dead, and a new next
   * one is published. CONFLICT while a verifier may not know the next key yet, unless forced.
   */
  async function rotate({ force }: { force: boolean }) {
    const done = await rotateWhen({ actor: 'operator', force, wanted: () => true })
    if (!done)
      throw new DomainError(
        'CONFLICT',
        'there is no pair of an active and a next key; restart core',
      )
    return done
  }

  /** Rotates when the active key is old enough. Of many cores that ask at once one does it. */
  async function rotateIfDue(): Promise<boolean> {
    if (everyDays === 0) return false
    const isDue = (key: keyStore.KeyState) =>
      addSeconds(key.activated_at ?? key.created_at, everyDays * daySeconds) <= now()
    const active = (await keyStore.keyStates(pool, now())).find(({ status }) => status === 'active')
    if (!active || !isDue(active)) return false
    return (await rotateWhen({ actor: 'schedule', force: false, wanted: isDue })) !== null
  }

  async function rotateWhen({ actor, force, wanted }: Reason) {
    // Made before the lock is taken: it is the slow part.
    const fresh = await signingKeys.generate('next')
    const done = await tx(pool, async (db) => {
      await keyStore.lockRotation(db)
      const states = await keyStore.keyStates(db, now())
      const active = states.find(({ status }) => status === 'active')
      const next = states.find(({ status }) => status === 'next')
      if (!active || !next || !wanted(active)) return null
      if (!force) requirePublished(next)
      const retireAt = addSeconds(now(), tokenTtlSecondsMax + jwksCacheSeconds + marginSeconds)
      const succession = { from: active.kid, to: next.kid, at: now(), retireAt }
      await keyStore.succeed(db, succession)
      await store.insertSigningKey(db, fresh)
      await keyStore.recordRotation(db, succession, actor)
      return { activeKid: next.kid, nextKid: fresh.kid }
    })
    if (done) await signingKeys.refresh()
    return done
  }

  function requirePublished({ created_at }: keyStore.KeyState): void {
    const ready = addSeconds(created_at, jwksCacheSeconds + marginSeconds)
    if (ready <= now()) return
    throw new DomainError(
      'CONFLICT',
      `verifiers may not know the next key before ${ready.toISOString()}; wait, or rotate by force`,
    )
  }

  const list = () => keyStore.keyStates(pool, now())

  /** What is due once a minute: the schedule, and forgetting what has retired. */
  async function tend(): Promise<void> {
    await rotateIfDue()
    await keyStore.deleteRetired(pool, now())
  }

  return { rotate, rotateIfDue, list, tend }
}

export type KeyRotation = ReturnType<typeof createKeyRotation>
