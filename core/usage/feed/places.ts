import { DomainError } from '../../../proto/errors.ts'
import type { AppId, UserId } from '../../shared/ids.ts'

/** The holder of an open stream. */
export interface StreamHolder {
  readonly appId: AppId
  /** Null for all users of the app. */
  readonly userId: UserId | null
  /** The account that owns the app, or the app if it has no owner. */
  readonly owner: string
}

export interface StreamBounds {
  /** Maximum in this process. */
  readonly total: number
  /** Maximum for all apps of one owner, in addition to each app's reserved places. */
  readonly perOwner: number
  readonly perApp: number
  readonly perUser: number
  /**
   * Places that are free for each app, however many streams its owner's other apps and other owners
   * have open.
   */
  readonly reservedPerApp: number
  /** Higher than `total`, for the reserved places. */
  readonly totalWithReserved: number
}

const streamBounds: StreamBounds = {
  total: 500,
  perOwner: 150,
  perApp: 100,
  perUser: 5,
  reservedPerApp: 4,
  totalWithReserved: 1_000,
}

/**
 * Limits the number of open streams, so that no owner can use all places: an owner has a share for
 * all its apps, and each app has a few places that its owner's other apps cannot take.
 */
export function createStreamPlaces(bounds: StreamBounds = streamBounds) {
  const counts = new Map<string, number>()
  const countOf = (name: string): number => counts.get(name) ?? 0
  let total = 0

  const namesOf = ({ appId, userId, owner }: StreamHolder): string[] => [
    `app ${appId}`,
    `owner ${owner}`,
    ...(userId === null ? [] : [`user ${appId} ${userId}`]),
  ]

  /**
   * Throws RATE_LIMITED if the user, app or owner has used its share; UNAVAILABLE if this process
   * has no free places.
   */
  function take(holder: StreamHolder): void {
    requirePlace(holder)
    total++
    for (const name of namesOf(holder)) counts.set(name, countOf(name) + 1)
  }

  function giveBack(holder: StreamHolder): void {
    total--
    for (const name of namesOf(holder)) {
      const rest = countOf(name) - 1
      if (rest > 0) counts.set(name, rest)
      else counts.delete(name)
    }
  }

  function requirePlace(holder: StreamHolder): void {
    const [app = '', owner = '', user] = namesOf(holder)
    if (user !== undefined && countOf(user) >= bounds.perUser) throw tooMany('user', bounds.perUser)
    if (countOf(app) >= bounds.perApp) throw tooMany('app', bounds.perApp)
    const isReserved = countOf(app) < bounds.reservedPerApp
    if (!isReserved && countOf(owner) >= bounds.perOwner) throw tooMany('owner', bounds.perOwner)
    if (total >= (isReserved ? bounds.totalWithReserved : bounds.total))
      throw new DomainError(
        'UNAVAILABLE',
        'no more streams can be opened here now; try again later',
      )
  }

  return { take, giveBack, count: () => total }
}

const tooMany = (what: string, max: number): DomainError =>
  new DomainError('RATE_LIMITED', `too many streams are open; at most ${max} for one ${what}`)
