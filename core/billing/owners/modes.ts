import { DomainError } from '../../../proto/errors.ts'
import type { Ledger } from '../../balances/ledger/ledger.ts'
import { uuidV7 } from '../../lib/crypto.ts'
import { usdAttos } from '../../lib/money.ts'
import { type Db, tx } from '../../lib/sql.ts'
import type { AppId } from '../../shared/ids.ts'
import type { Shared } from '../../shared/shared.ts'
import * as store from './mode-store.ts'

export interface ModesDeps extends Pick<Shared, 'pool' | 'now'> {
  readonly ledger: Pick<Ledger, 'lock' | 'save' | 'collect'>
}

const pageSize = 200
/** More users than this with new overage since the pages were settled make the change fail. */
const lastMax = 1_000

/**
 * Settles what users ran up in `owner_rollup`, before their app changes to `merchant`: the owner
 * paid for it, so it must not become the users' debt. Settles page by page, because an app can have
 * many users; after a crash, a repeated change settles the rest.
 */
export function createModes({ pool, ledger, now }: ModesDeps) {
  /** Settles all users but the last ones. Returns a function that settles these in a transaction. */
  async function settle(app: AppId): Promise<(db: Db) => Promise<void>> {
    const id = uuidV7(now().getTime())
    await store.insertModeChange(pool, { appId: app, id, at: now() })
    let settled: number
    do settled = await tx(pool, (db) => settlePage(db, { app, id, limit: pageSize }))
    while (settled === pageSize)
    return async (db) => {
      if ((await settlePage(db, { app, id, limit: lastMax })) === lastMax)
        throw new DomainError('CONFLICT', 'too many users are in use now; repeat the change')
    }
  }

  async function settlePage(
    db: Db,
    { app, id, limit }: { app: AppId; id: string; limit: number },
  ): Promise<number> {
    const at = now()
    const debtors = await store.findDebtors(db, app, limit)
    const locked = debtors.length === 0 ? [] : await ledger.lock(db, debtors, at)
    for (const account of locked) {
      const amount = usdAttos(account.overage - account.collected)
      // A payment makes the credit line larger, so no lease is recalled.
      if (amount > 0n) await ledger.collect(db, account, { amount, causeId: id, at })
    }
    if (locked.length > 0) await ledger.save(db, locked, at)
    return debtors.length
  }

  return { settle }
}

export type Modes = ReturnType<typeof createModes>
