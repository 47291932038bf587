import { DomainError } from '../../../proto/errors.ts'
import type { Db } from '../../lib/sql.ts'
import { tx } from '../../lib/sql.ts'
import { audit } from '../../shared/audit.ts'
import type { AccountId } from '../../shared/ids.ts'
import type { Shared } from '../../shared/shared.ts'
import { parseEmail } from '../input.ts'
import * as store from './store.ts'

type Deps = Shared & {
  /** Default quota per owner. */
  readonly appsPerOwner: number
}

/** Who changes a quota, and the correlation id of the request. */
export interface QuotaActor {
  readonly name: string
  readonly correlationId: string
}

const appsMax = 1_000_000

/**
 * Limits how many apps a person may own (docs/decisions/42.md). Does not apply to operators'
 * commands.
 */
export function createAppQuota({ pool, appsPerOwner, now }: Deps) {
  /**
   * Locks the account, so that concurrent decisions about its count run one after the other. Throws
   * CONFLICT, with the name of the quota, when the account owns as many apps as it may.
   */
  async function requireRoom(db: Db, account: AccountId): Promise<void> {
    const { max, owned } = await store.lockOwner(db, account)
    const limit = max ?? appsPerOwner
    if (owned >= limit)
      throw new DomainError(
        'CONFLICT',
        `quota apps per owner: this account owns ${owned} of ${limit} apps; a platform admin can raise it`,
      )
  }

  /**
   * Returns the number of apps that the account owns, and its limit. Throws NOT_FOUND for an
   * unknown address.
   */
  async function read(email: string) {
    const account = await store.findByEmail(pool, parseEmail(email))
    if (!account) throw unknownAccount()
    const { max, owned } = await store.findOwner(pool, account.id)
    return { email: account.email, apps: owned, appsMax: max ?? appsPerOwner }
  }

  /** Sets the account's quota; null restores the deployment's quota. */
  async function change(email: string, max: number | null, actor: QuotaActor) {
    if (max !== null && (!Number.isInteger(max) || max < 0 || max > appsMax))
      throw new DomainError('REQUEST_INVALID', `appsMax must be a whole number up to ${appsMax}`)
    await tx(pool, async (db) => {
      const account = await store.findByEmail(db, parseEmail(email))
      if (!account) throw unknownAccount()
      const before = await store.lockOwner(db, account.id)
      await store.setAppsMax(db, account.id, max)
      await audit(db, {
        appId: null,
        actor: actor.name,
        action: 'quota_changed',
        status: 'success',
        correlationId: actor.correlationId,
        details: { quota: 'apps', accountId: account.id, from: before.max, to: max },
        at: now(),
      })
    })
    return read(email)
  }

  return { requireRoom, read, change }
}

export type AppQuota = ReturnType<typeof createAppQuota>

const unknownAccount = (): DomainError =>
  new DomainError('NOT_FOUND', 'no account has this e-mail address')
