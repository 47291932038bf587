import { DomainError } from '../../../proto/errors.ts'
import type { Users } from '../../identity/users/users.ts'
import { type Db, tx } from '../../lib/sql.ts'
import { type Actor, auditSuccess } from '../../shared/audit.ts'
import { type AppId, type UserKey, isUuid } from '../../shared/ids.ts'
import { lockAccounts } from '../accounts/read-store.ts'
import type { Shared } from '../../shared/shared.ts'
import type { Limits, LimitedSubject } from './limits.ts'
import * as store from './store.ts'
import { renderLimits } from './wire.ts'
import { deleteInBatches } from '../../shared/upkeep.ts'

/** A session without a call for this long starts again at zero. */
const sessionKeptMs = 32 * 86_400_000

export interface LimitsDeps extends Pick<Shared, 'pool' | 'invalidations' | 'log' | 'now'> {
  readonly users: Users
  /** Locks the accounts of users and recalls their leases. */
  readonly recall: (db: Db, users: readonly UserKey[], at: Date) => Promise<void>
}

/** The user or key of a request. */
export interface SubjectName {
  readonly externalUserId: string
  /** A key of the user. If absent, the user itself. */
  readonly keyId?: string | undefined
}

/** Sets limits of users and keys. `enforcement.ts` enforces them. */
export function createLimits({ pool, users, recall, invalidations, log, now }: LimitsDeps) {
  /** Returns null if no limits are set. Throws NOT_FOUND for an unknown user or key. */
  async function read(app: AppId, name: SubjectName): Promise<Limits | null> {
    return store.findLimits(pool, await subjectOf(app, name))
  }

  /** Replaces the limits of a user or key. They apply to every later call of the user. */
  async function set(
    app: AppId,
    name: SubjectName,
    { limits, actor }: { limits: Limits; actor: Actor },
  ): Promise<void> {
    const subject = await subjectOf(app, name)
    await tx(pool, async (db) => {
      const at = now()
      await recall(db, [subject], at)
      await store.saveLimits(db, subject, { limits, at })
      await note(db, subject, { actor, action: 'limits_set', details: detailsOf(limits) })
    })
    await announce(subject, 'limits set')
    await invalidations.publish({ kind: 'lease', id: subject.userId })
  }

  /** Removes the limits of a user or key. A repeated request changes nothing. */
  async function clear(app: AppId, name: SubjectName, actor: Actor): Promise<void> {
    const subject = await subjectOf(app, name)
    const removed = await tx(pool, async (db) => {
      await lockAccounts(db, [subject])
      const isRemoved = await store.deleteLimits(db, subject)
      if (isRemoved) await note(db, subject, { actor, action: 'limits_cleared', details: {} })
      return isRemoved
    })
    if (removed) await announce(subject, 'limits cleared')
  }

  async function subjectOf(app: AppId, name: SubjectName): Promise<LimitedSubject> {
    const user = await users.get(app, name.externalUserId)
    const subject = { appId: user.appId, userId: user.id }
    if (name.keyId === undefined) return { ...subject, keyId: null }
    if (!isUuid(name.keyId) || !(await store.hasKey(pool, subject, name.keyId)))
      throw new DomainError('NOT_FOUND', 'the user has no such key')
    return { ...subject, keyId: name.keyId }
  }

  async function note(
    db: Db,
    { appId, userId, keyId }: LimitedSubject,
    entry: { actor: Actor; action: string; details: Record<string, string | number | null> },
  ): Promise<void> {
    const details = { userId, keyId, ...entry.details }
    await auditSuccess(db, { ...entry, appId, at: now(), details })
  }

  async function announce(subject: LimitedSubject, message: string): Promise<void> {
    log.info({ ...subject }, message)
    await invalidations.publish({ kind: 'access', id: subject.userId })
  }

  async function forgetOld(): Promise<void> {
    const before = new Date(now().getTime() - sessionKeptMs)
    await deleteInBatches((limit) => store.forgetSessions(pool, before, limit))
  }

  return { read, set, clear, forgetOld }
}

export type LimitsService = ReturnType<typeof createLimits>

function detailsOf(limits: Limits): Record<string, string | number | null> {
  const { maxPrices, ...figures } = renderLimits(limits)
  return {
    usdMicrosPerDay: figures.usdMicrosPerDay ?? null,
    usdMicrosPerSession: figures.usdMicrosPerSession ?? null,
    callsPerMinute: figures.callsPerMinute ?? null,
    concurrentSessions: figures.concurrentSessions ?? null,
    maxPrices: maxPrices.map(({ type, app, maxWei }) => `${type}:${app}=${maxWei}`).join(' '),
  }
}
