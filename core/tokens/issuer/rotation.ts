import { Gauge } from 'prom-client'
import { DomainError } from '../../../proto/errors.ts'
import type { Metrics } from '../../lib/metrics.ts'
import { tx } from '../../lib/sql.ts'
import { addSeconds } from '../../lib/time.ts'
import type { Shared } from '../../shared/shared.ts'
import type { SigningKeys } from './signing-keys.ts'
import * as store from './store.ts'

/** Time in seconds for which verifiers may cache the key set (its Cache-Control). */
const jwksCacheSeconds = 300
// Other core processes reload their keys within 30 s, and clocks differ a little.
const marginSeconds = 60
const daySeconds = 86_400

type Deps = Pick<Shared, 'pool' | 'now' | 'metrics'> & {
  readonly signingKeys: SigningKeys
  /** The longest lifetime of a JWT. */
  readonly tokenTtlSecondsMax: number
  /** Days between rotations; 0 rotates only by command. */
  readonly everyDays: number
}

interface RotationRequest {
  readonly actor: string
  /** Whether to rotate although verifiers may not have the next key yet. */
  readonly force: boolean
  /** Whether the active key should be rotated. Checked under the lock. */
  readonly isDue: (active: store.KeyState) => boolean
}

/** Rotates the issuer's keys, by command and by schedule (decision 11). */
export function createKeyRotation(deps: Deps) {
  const { pool, signingKeys, tokenTtlSecondsMax, everyDays, metrics, now } = deps
  registerKeyGauges(metrics, {
    everyDays,
    activeSeconds: async () => {
      const active = (await store.keyStates(pool, now())).find(({ status }) => status === 'active')
      return active ? (now().getTime() - signsSince(active).getTime()) / 1000 : NaN
    },
  })

  /**
   * Makes the next key active, keeps the old active key published until its last token has expired,
   * and publishes a new next key. Throws CONFLICT while verifiers may not have the next key yet,
   * unless `force` is set.
   */
  async function rotate({ force, actor }: { force: boolean; actor: string }) {
    const rotation = await rotateWhenDue({ actor, force, isDue: () => true })
    if (!rotation)
      throw new DomainError(
        'CONFLICT',
        'there is no pair of an active and a next key; restart core',
      )
    return rotation
  }

  /**
   * Rotates when the active key is old enough. Only one of several cores that call this
   * concurrently rotates.
   */
  async function rotateIfDue(): Promise<boolean> {
    if (everyDays === 0) return false
    const isDue = (key: store.KeyState) =>
      addSeconds(signsSince(key), everyDays * daySeconds) <= now()
    const active = (await store.keyStates(pool, now())).find(({ status }) => status === 'active')
    if (!active || !isDue(active)) return false
    return (await rotateWhenDue({ actor: 'schedule', force: false, isDue })) !== null
  }

  /**
   * Makes a key of the configured algorithm active when TOKEN_ALG was changed. Earlier tokens stay
   * valid. Verifiers with a cached key set fetch it again when they find an unknown key id.
   */
  async function adoptAlgorithm(): Promise<void> {
    const isForeign = ({ alg }: store.KeyState): boolean => alg !== signingKeys.alg
    const states = await store.keyStates(pool, now())
    if (!states.some((key) => key.status !== 'retired' && isForeign(key))) return
    const newKey = await signingKeys.generate('next')
    await tx(pool, async (db) => {
      await store.lockRotation(db)
      const next = (await store.keyStates(db, now())).find(({ status }) => status === 'next')
      if (next && isForeign(next)) await store.replaceNext(db, next.kid, newKey)
    })
    await rotateWhenDue({ actor: 'TOKEN_ALG', force: true, isDue: isForeign })
    await signingKeys.refresh()
  }

  async function rotateWhenDue({ actor, force, isDue }: RotationRequest) {
    // Generate the key before taking the lock, because generation is slow.
    const newKey = await signingKeys.generate('next')
    const rotation = await tx(pool, async (db) => {
      await store.lockRotation(db)
      const states = await store.keyStates(db, now())
      const active = states.find(({ status }) => status === 'active')
      const next = states.find(({ status }) => status === 'next')
      if (!active || !next || !isDue(active)) return null
      if (!force) requirePublished(next)
      const retireAt = addSeconds(now(), tokenTtlSecondsMax + jwksCacheSeconds + marginSeconds)
      const succession = { from: active.kid, to: next.kid, at: now(), retireAt }
      await store.succeed(db, succession)
      await store.insertSigningKey(db, newKey)
      await store.recordRotation(db, succession, actor)
      return { activeKid: next.kid, nextKid: newKey.kid }
    })
    if (rotation) await signingKeys.refresh()
    return rotation
  }

  function requirePublished({ created_at }: store.KeyState): void {
    const ready = addSeconds(created_at, jwksCacheSeconds + marginSeconds)
    if (ready <= now()) return
    throw new DomainError(
      'CONFLICT',
      `verifiers may not have the next key before ${ready.toISOString()}; wait, or rotate by force`,
    )
  }

  const list = () => store.keyStates(pool, now())

  /** Upkeep: rotates when due, and deletes retired keys that are no longer needed. */
  async function tend(): Promise<void> {
    await rotateIfDue()
    await store.deleteRetired(pool, now())
  }

  return { rotate, rotateIfDue, adoptAlgorithm, list, tend }
}

const signsSince = (key: store.KeyState): Date => key.activated_at ?? key.created_at

/** If a read fails, the gauges keep their values. */
function registerKeyGauges(
  metrics: Metrics,
  deps: { readonly everyDays: number; readonly activeSeconds: () => Promise<number> },
): void {
  const { everyDays, activeSeconds } = deps
  const age: Gauge = new Gauge({
    name: 'tollgate_tokens_signing_key_age_seconds',
    help: 'Time for which the active key has signed tokens',
    registers: [metrics],
    collect: () =>
      activeSeconds().then(
        (seconds) => age.set(seconds),
        () => {},
      ),
  })
  new Gauge({
    name: 'tollgate_tokens_signing_key_max_age_seconds',
    help: 'Age at which the active key is replaced (SIGNING_KEY_ROTATION_DAYS); 0 if only by command',
    registers: [metrics],
  }).set(everyDays * daySeconds)
}

export type KeyRotation = ReturnType<typeof createKeyRotation>
