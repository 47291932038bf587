import { DomainError } from '../../../proto/errors.ts'
import type { Db } from '../../lib/sql.ts'
import type { Now } from '../../lib/time.ts'
import type { UserId, UserKey } from '../../shared/ids.ts'
import { findKind } from '../processor/kind-store.ts'
import { findChargeable } from './card-store.ts'

/**
 * Returns a function that finds the users with a card that can be charged now: at the deployment's
 * payment processor, in the current plane and account of their app, and not expired. It throws
 * UNAVAILABLE before core's first start, which stores the processor.
 */
export const createFindCards =
  (now: Now) =>
  async (db: Db, users: readonly UserKey[]): Promise<ReadonlySet<UserId>> => {
    if (users.length === 0) return new Set()
    const kind = await findKind(db)
    if (kind === null)
      throw new DomainError('UNAVAILABLE', 'the payment processor is unknown; start core once')
    return kind === 'none' ? new Set() : findChargeable(db, users, { kind, at: now() })
  }
