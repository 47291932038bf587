import { DomainError } from '../../../proto/errors.ts'
import { microsDown, microsUp, usdAttos } from '../../lib/money.ts'
import type { Db } from '../../lib/sql.ts'
import { normalizeEmail } from '../../lib/text/email.ts'
import { findApp } from '../../shared/clients.ts'
import type { AppId } from '../../shared/ids.ts'
import type { Shared } from '../../shared/shared.ts'
import type { Exposures } from './exposure.ts'
import * as store from './owner-store.ts'

export interface NetworkQuotaDeps extends Pick<Shared, 'pool' | 'now'> {
  readonly exposures: Pick<Exposures, 'read'>
}

/**
 * Identifies an owner by the account's e-mail address or by one of its apps. Exactly one is not
 * empty.
 */
export interface OwnerName {
  readonly email: string
  readonly clientId: string
}

const reachedMax = 20

/** What owners' accounts can pay for their apps, for platform admins and operators. */
export function createNetworkQuota({ pool, exposures, now }: NetworkQuotaDeps) {
  /** Throws NOT_FOUND for an unknown address or app, CONFLICT for an app that no owner pays for. */
  async function read(name: OwnerName) {
    const { app, email } = await getOwned(pool, name)
    return view(email, app)
  }

  async function view(email: string, app: AppId | null) {
    const apps = app === null ? [] : [app]
    const find = await exposures.read(pool, apps, { at: now(), isExact: true })
    const { money = 0n, held = 0n } = (app === null ? null : find(app)?.owner) ?? {}
    return {
      email,
      clientId: '',
      maxUsdMicros: microsDown(usdAttos(money)).toString(),
      unpaidUsdMicros: microsUp(usdAttos(held)).toString(),
    }
  }

  /** Returns owners whose accounts have nothing left for their apps. */
  async function listReached() {
    const near = await store.findNear(pool, reachedMax)
    const quotas = await Promise.all(near.map(({ email, app }) => view(email, app)))
    return quotas.filter((quota) => BigInt(quota.unpaidUsdMicros) >= BigInt(quota.maxUsdMicros))
  }

  return { read, listReached }
}

export type NetworkQuota = ReturnType<typeof createNetworkQuota>

async function getOwned(db: Db, { email, clientId }: OwnerName): Promise<store.OwnedApp> {
  if ((email === '') === (clientId === ''))
    throw new DomainError('REQUEST_INVALID', 'name the owner by email or by clientId')
  const owned = email === '' ? await ownerOfApp(db, clientId) : await ownerByEmail(db, email)
  if (owned === null)
    throw new DomainError(
      'NOT_FOUND',
      email === '' ? 'there is no such app' : 'no account has this e-mail address',
    )
  return owned
}

async function ownerByEmail(db: Db, text: string): Promise<store.OwnedApp | null> {
  const email = normalizeEmail(text)
  return email === null ? null : store.findByEmail(db, email)
}

async function ownerOfApp(db: Db, clientId: string): Promise<store.OwnedApp | null> {
  const app = await findApp(db, clientId)
  if (app === null) return null
  const owned = await store.findByApp(db, app)
  if (owned === null)
    throw new DomainError(
      'CONFLICT',
      'no owner pays for the app: it is platform-owned, or has no owner, so its cost is not bounded',
    )
  return owned
}
