import { describe, expect, it } from 'vitest'
import { appId, userId } from '../../../core/shared/ids.ts'
import { createStreamPlaces } from '../../../core/usage/feed/places.ts'

const bounds = {
  total: 12,
  perOwner: 6,
  perApp: 5,
  perUser: 2,
  reservedPerApp: 1,
  totalWithReserved: 14,
}
const uuid = (n: number): string => `00000000-0000-4000-8000-${String(n).padStart(12, '0')}`
const holder = (app: number, owner: string, user?: number) => ({
  appId: appId(uuid(app)),
  owner,
  userId: user === undefined ? null : userId(uuid(user)),
})
const reasonOf = (take: () => void): string | null => {
  try {
    take()
    return null
  } catch (error) {
    return error instanceof Error && 'reason' in error ? String(error.reason) : 'other'
  }
}

describe('stream places', () => {
  it('are limited per user, app and owner, and free again when a stream ends', () => {
    const places = createStreamPlaces(bounds)
    const take = (...of: Parameters<typeof holder>) => reasonOf(() => places.take(holder(...of)))
    expect([take(1, 'ann', 7), take(1, 'ann', 7), take(1, 'ann', 7)]).toEqual([
      null,
      null,
      'RATE_LIMITED',
    ])
    expect([take(1, 'ann'), take(1, 'ann'), take(1, 'ann'), take(1, 'ann')]).toEqual([
      null,
      null,
      null,
      'RATE_LIMITED',
    ])
    places.giveBack(holder(1, 'ann', 7))
    expect([take(1, 'ann', 7), take(1, 'ann', 7)]).toEqual([null, 'RATE_LIMITED'])
  })

  it('reserve one for each app, even if its owner has used the others', () => {
    const places = createStreamPlaces(bounds)
    const take = (...of: Parameters<typeof holder>) => reasonOf(() => places.take(holder(...of)))
    for (let i = 0; i < 5; i++) expect(take(1, 'ann')).toBeNull()
    expect([take(2, 'ann'), take(2, 'ann')]).toEqual([null, 'RATE_LIMITED'])
    expect([take(3, 'ann'), take(3, 'ann')]).toEqual([null, 'RATE_LIMITED'])
    expect(take(4, 'bob')).toBeNull()
  })

  it('of one owner leave room for others, up to the limit of the process', () => {
    const places = createStreamPlaces(bounds)
    const take = (...of: Parameters<typeof holder>) => reasonOf(() => places.take(holder(...of)))
    for (let i = 0; i < 6; i++) {
      take(i < 5 ? 1 : 2, 'ann')
      take(i < 5 ? 3 : 4, 'bob')
    }
    expect(places.count()).toBe(12)
    expect(take(5, 'cy')).toBeNull()
    expect(take(5, 'cy')).toBe('UNAVAILABLE')
    expect([take(6, 'di'), take(7, 'ed')]).toEqual([null, 'UNAVAILABLE'])
  })
})
