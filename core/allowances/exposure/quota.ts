import { DomainError } from '../../../proto/errors.ts'
import { type UsdMicros, microsToAttos, microsUp, usdAttos } from '../../lib/money.ts'
import { type Db, type Pool, tx } from '../../lib/sql.ts'
import { normalizeEmail } from '../../lib/text/email.ts'
import type { Now } from '../../lib/time.ts'
import { audit } from '../../platform/audit.ts'
import { findApp } from '../../platform/clients.ts'
import type { QuotaActor } from '../quota.ts'
import { windowStart } from './exposure.ts'
import * as store from './store.ts'

export interface NetworkQuotaDeps {
  readonly pool: Pool
  /** Default quota per owner. */
  readonly defaultMax: UsdMicros
  readonly now: Now
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

/** Limits of the unpaid network cost of owners' apps, for platform admins and operators. */
export function createNetworkQuota({ pool, defaultMax, now }: NetworkQuotaDeps) {
  const fallback = microsToAttos(defaultMax)

  /** Throws NOT_FOUND for an unknown address or app. */
  async function read(name: OwnerName) {
    return view(await getOwner(pool, name))
  }

  async function view(owner: store.OwnerId) {
    const max = (await store.findMax(pool, owner)) ?? fallback
    const unpaid = await store.countExposure(pool, owner, windowStart(now()))
    return {
      ...(await store.nameOf(pool, owner)),
      maxUsdMicros: micros(max),
      unpaidUsdMicros: micros(unpaid),
    }
  }

  /** Sets the owner's quota; null restores the deployment's default. */
  async function change(name: OwnerName, max: UsdMicros | null, actor: QuotaActor) {
    const owner = await tx(pool, async (db) => {
      const owner = await getOwner(db, name)
      const [before] = await store.lockExposures(db, [owner])
      await store.saveMax(db, owner, max === null ? null : microsToAttos(max))
      await audit(db, {
        appId: null,
        actor: actor.name,
        action: 'quota_changed',
        status: 'success',
        correlationId: actor.correlationId,
        details: {
          quota: 'network',
          ownerId: owner,
          fromUsdMicros: micros(before?.max ?? fallback),
          toUsdMicros: max === null ? null : max.toString(),
        },
        at: now(),
      })
      return owner
    })
    return view(owner)
  }

  /** Returns the owners that have reached their quota. */
  async function listReached() {
    const near = await store.findReached(pool, fallback, reachedMax)
    const quotas = await Promise.all(near.map(view))
    return quotas.filter((quota) => BigInt(quota.unpaidUsdMicros) >= BigInt(quota.maxUsdMicros))
  }

  return { read, change, listReached }
}

export type NetworkQuota = ReturnType<typeof createNetworkQuota>

async function getOwner(db: Db, { email, clientId }: OwnerName): Promise<store.OwnerId> {
  if ((email === '') === (clientId === ''))
    throw new DomainError('REQUEST_INVALID', 'name the owner by email or by clientId')
  const owner = email === '' ? await ownerOfApp(db, clientId) : await ownerByEmail(db, email)
  if (owner === null)
    throw new DomainError(
      'NOT_FOUND',
      email === '' ? 'there is no such app' : 'no account has this e-mail address',
    )
  return owner
}

async function ownerByEmail(db: Db, text: string): Promise<store.OwnerId | null> {
  const email = normalizeEmail(text)
  return email === null ? null : store.findAccount(db, email)
}

async function ownerOfApp(db: Db, clientId: string): Promise<store.OwnerId | null> {
  const app = await findApp(db, clientId)
  if (app === null) return null
  const owner = (await store.findOwners(db, [app])).get(app)
  if (owner === undefined)
    throw new DomainError(
      'CONFLICT',
      'the app is platform-owned, so its network cost is not bounded',
    )
  return owner
}

const micros = (attos: bigint): string => microsUp(usdAttos(attos)).toString()
