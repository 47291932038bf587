import { DomainError } from '../../../proto/errors.ts'
import {
  type UsdAttos,
  type UsdMicros,
  microsToAttos,
  microsUp,
  parseInteger,
  usdMicros,
} from '../../lib/money.ts'
import { type Db, tx } from '../../lib/sql.ts'
import { type Actor, auditSuccess } from '../../shared/audit.ts'
import type { AppId } from '../../shared/ids.ts'
import type { Shared } from '../../shared/shared.ts'
import { findOverageCeiling, lockSettings, saveOverageCeiling } from '../store.ts'
import { type Ceilings, minimumCeiling, minimumCharge } from './ceilings.ts'
import { highestThreshold } from './overage-store.ts'

export interface OverageDeps extends Pick<Shared, 'pool' | 'now'> {
  readonly ceilings: Ceilings
}

/** A million dollars. */
const ceilingMaxMicros = 1_000_000_000_000n

/** The ceiling that the owner of an app sets for the debt of its users. */
export function createOverage({ pool, ceilings, now }: OverageDeps) {
  async function read(app: AppId) {
    const [set, threshold] = [
      await findOverageCeiling(pool, app),
      await highestThreshold(pool, app),
    ]
    const minimum = minimumCeiling(threshold)
    return { ceiling: set ?? minimum, isDefault: set === null, minimum, minimumCharge }
  }

  /**
   * Sets the ceiling; null restores the default. Throws CONFLICT for a ceiling below the minimum.
   * Then computes the ceilings of all users again.
   */
  async function change(app: AppId, ceiling: UsdMicros | null, actor: Actor) {
    await tx(pool, async (db) => {
      const at = now()
      await lockSettings(db, app, at)
      if (ceiling !== null) await requireMinimum(db, app, microsToAttos(ceiling))
      await saveOverageCeiling(db, app, {
        ceiling: ceiling === null ? null : microsToAttos(ceiling),
        at,
      })
      const details = { ceilingUsdMicros: ceiling === null ? null : ceiling.toString() }
      await auditSuccess(db, { appId: app, actor, action: 'overage_ceiling_changed', details, at })
    })
    await ceilings.refreshApp(app)
    return read(app)
  }

  return { read, change }
}

export type OverageSettings = ReturnType<typeof createOverage>

async function requireMinimum(db: Db, app: AppId, ceiling: UsdAttos): Promise<void> {
  const minimum = minimumCeiling(await highestThreshold(db, app))
  if (ceiling < minimum)
    throw new DomainError(
      'CONFLICT',
      `the ceiling must be at least ${microsUp(minimum)} USD micros, the highest charge threshold of a plan plus the smallest charge`,
    )
}

/**
 * Checks the charge threshold of a plan against the ceiling that the app's owner has set. Throws
 * CONFLICT if a user would reach the ceiling first.
 */
export async function requireThreshold(db: Db, app: AppId, threshold: UsdAttos): Promise<void> {
  const ceiling = await findOverageCeiling(db, app)
  if (ceiling !== null && minimumCeiling(threshold) > ceiling)
    throw new DomainError(
      'CONFLICT',
      `chargeThresholdUsd is too high for the app's overage ceiling of ${microsUp(ceiling)} USD micros; raise the ceiling first`,
    )
}

export function parseCeiling(text: string): UsdMicros {
  const value = parseInteger(text)
  if (value === null || value <= 0n || value > ceilingMaxMicros)
    throw new DomainError(
      'AMOUNT_INVALID',
      `ceilingUsdMicros must be a positive integer string of at most ${ceilingMaxMicros}`,
    )
  return usdMicros(value)
}
