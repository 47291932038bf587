import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import {
  createHistory,
  type History,
  type HistoryQuery,
} from '../../../core/usage/history/history.ts'
import { createSealing } from '../../../core/shared/sealing/sealing.ts'
import { createWorld, envelope, recordRate, type World } from '../metering/harness.ts'

let world: World
let history: History

// Ten sessions in rotation, of two users; a ticket every minute, pairs in the same microsecond.
const start = Date.parse('2026-04-10T09:00:00Z')
const count = 60
const userOf = (i: number): string => (i % 3 === 0 ? 'bob' : 'ann')
const instantOf = (i: number): string =>
  new Date(start + (i - (i % 2)) * 60_000).toISOString().replace('Z', '123Z')

beforeAll(async () => {
  world = await createWorld('2026-04-10T10:02:00Z')
  await recordRate(world.pool, '2026-04-10T08:59:00Z')
  await recordRate(world.pool, '2026-04-10T09:50:00Z', 2000)
  await world.metering({ fixed: false }).ingestEvents([
    ...Array.from({ length: count }, (_, i) =>
      envelope(
        {
          auth_id: `${world.app.clientId}:${userOf(i)}`,
          current_time: instantOf(i),
          sequence_number: Math.floor(i / 10),
          session_id: `s${i % 10}`,
          request_id: `r${i}`,
          manifest_id: i % 10 === 4 ? '' : `m${i % 10}`,
          computed_fee: String(i + 1),
          pixels: i,
          billable_secs: 1.5,
        },
        { id: `e${String(i).padStart(2, '0')}` },
      ),
    ),
    envelope(
      {
        auth_id: `${world.app.clientId}:ann`,
        current_time: '2026-03-31T23:59:59.999999Z',
        session_id: 'march',
      },
      { id: 'march' },
    ),
  ])
  history = createHistory({
    pool: world.pool,
    users: world.users,
    sealing: createSealing(['x'.repeat(32)]),
    now: () => world.clock.at,
  })
})
afterAll(() => world.stop())

const nothing: HistoryQuery = {
  startDate: undefined,
  endDate: undefined,
  manifestId: undefined,
  limit: 0,
  cursor: undefined,
}
type Listing = 'requests' | 'sessions'

/** Returns the ids of all pages, and the lengths of the pages. */
async function walk(
  list: Listing,
  query: Partial<HistoryQuery>,
  of?: string,
): Promise<{ ids: string[]; pages: number[] }> {
  const ids: string[] = []
  const pages: number[] = []
  let cursor: string | undefined
  do {
    const asked = { ...nothing, ...query, cursor }
    const found =
      list === 'requests'
        ? await history.requests(world.app.id, asked, of)
        : await history.sessions(world.app.id, asked, of)
    ids.push(
      ...found.items.map((item) =>
        'eventId' in item ? item.eventId : `${item.sessionId}:${item.externalUserId}`,
      ),
    )
    pages.push(found.items.length)
    cursor = found.nextCursor
  } while (cursor !== undefined)
  return { ids, pages }
}

const eventsOf = (keep: (i: number) => boolean): string[] =>
  Array.from({ length: count }, (_, i) => i)
    .filter(keep)
    .toSorted((a, b) =>
      instantOf(a) === instantOf(b) ? b - a : instantOf(a) < instantOf(b) ? 1 : -1,
    )
    .map((i) => `e${String(i).padStart(2, '0')}`)

describe('request history', () => {
  it('shows every field of a ticket', async () => {
    const { items } = await history.requests(world.app.id, { ...nothing, limit: 1 }, 'ann')
    expect(items).toMatchObject([
      {
        signedAt: instantOf(59),
        eventId: 'e59',
        requestId: 'r59',
        externalUserId: 'ann',
        appName: 'acme/echo',
        pipeline: 'live',
        modelId: 'unknown',
        manifestId: 'm9',
        sessionId: 's9',
        sequenceNumber: 5n,
        fee: 60n,
        cost: 120000n,
        usdAttosPerEth: 2000n * 10n ** 18n,
        billableSecs: '1.5',
        pixels: '59',
      },
    ])
  })

  it.each([1, 7, 25, 50])(
    'returns pages of %i without a gap or a repeat, for a user and the app',
    async (limit) => {
      expect((await walk('requests', { limit }, 'ann')).ids).toEqual(
        eventsOf((i) => userOf(i) === 'ann'),
      )
      expect((await walk('requests', { limit })).ids).toEqual(eventsOf(() => true))
    },
  )

  it('defaults to 25 per page and the current month', async () => {
    expect((await walk('requests', {})).pages).toEqual([25, 25, 10])
    expect((await walk('requests', { startDate: '2026-03-01' }, 'ann')).ids.at(-1)).toBe('march')
    expect((await walk('requests', { startDate: '2026-03-01' })).ids.at(-1)).toBe('march')
  })

  it('stays in the month of its first page', async () => {
    const first = await history.requests(world.app.id, { ...nothing, limit: 50 })
    const before = world.clock.at
    world.clock.at = new Date('2026-05-01T00:00:00Z')
    expect(
      (await history.requests(world.app.id, { ...nothing, limit: 50, cursor: first.nextCursor }))
        .items,
    ).toHaveLength(10)
    expect((await history.requests(world.app.id, nothing)).items).toEqual([])
    world.clock.at = before
  })

  it('filters by manifest, by session without a manifest, and by range', async () => {
    expect((await walk('requests', { manifestId: 'm2', limit: 2 })).ids).toEqual(
      eventsOf((i) => i % 10 === 2),
    )
    expect((await walk('requests', { manifestId: 'm2', limit: 2 }, 'bob')).ids).toEqual(
      eventsOf((i) => i % 10 === 2 && userOf(i) === 'bob'),
    )
    expect((await walk('requests', { manifestId: 's4' })).ids).toEqual(
      eventsOf((i) => i % 10 === 4),
    )
    expect((await walk('requests', { manifestId: 'none' })).ids).toEqual([])
    const range = { startDate: '2026-04-10T09:10:00Z', endDate: '2026-04-10T09:19:59Z' }
    for (const of of [undefined, 'ann']) {
      expect((await walk('requests', { ...range, limit: 3 }, of)).ids).toEqual(
        eventsOf((i) => i >= 10 && i < 20 && (of === undefined || userOf(i) === of)),
      )
    }
  })

  it('accepts a cursor only in the list that returned it', async () => {
    const { nextCursor = '' } = await history.requests(
      world.app.id,
      { ...nothing, limit: 5 },
      'ann',
    )
    const wrong: [Partial<HistoryQuery>, string?][] = [
      [{ cursor: nextCursor }],
      [{ cursor: nextCursor }, 'bob'],
      [{ cursor: nextCursor, manifestId: 'm1' }, 'ann'],
      [{ cursor: nextCursor, startDate: '2026-04-01' }, 'ann'],
      [{ cursor: `${nextCursor.slice(0, -2)}AA` }, 'ann'],
      [{ cursor: 'b2Zmc2V0OjI1' }, 'ann'],
      [{ cursor: '!' }, 'ann'],
      [{ cursor: 'x'.repeat(5_000) }, 'ann'],
    ]
    for (const [query, of] of wrong) {
      await expect(
        history.requests(world.app.id, { ...nothing, ...query }, of),
      ).rejects.toMatchObject({ reason: 'REQUEST_INVALID' })
    }
    await expect(
      history.sessions(world.app.id, { ...nothing, cursor: nextCursor }, 'ann'),
    ).rejects.toMatchObject({ reason: 'REQUEST_INVALID' })
    expect(
      (
        await history.requests(
          world.app.id,
          { ...nothing, cursor: nextCursor },
          (await world.users.get(world.app.id, 'ann')).id,
        )
      ).items,
    ).toHaveLength(25)
  })

  it.each([
    [{ limit: 51 }],
    [{ limit: -1 }],
    [{ startDate: 'x' }],
    [{ startDate: '2026-05-01', endDate: '2026-04-01' }],
  ])('rejects %j', async (query) => {
    await expect(history.requests(world.app.id, { ...nothing, ...query })).rejects.toMatchObject({
      reason: 'REQUEST_INVALID',
    })
  })

  it('returns NOT_FOUND for an unknown user', async () => {
    await expect(history.requests(world.app.id, nothing, 'nobody')).rejects.toMatchObject({
      reason: 'NOT_FOUND',
    })
  })
})

describe('session history', () => {
  it('sums a session, rounds it once, and ends it after five idle minutes', async () => {
    const { items } = await history.sessions(world.app.id, nothing, 'ann')
    const byId = new Map(items.map((item) => [item.sessionId, item]))
    expect(byId.get('s4')).toMatchObject({
      manifestId: 's4',
      requests: 4n,
      unpriced: 3n,
      billableSecs: '6',
      externalUserId: 'ann',
    })
    // The last tickets were signed at 09:58 and, by ann in session 2, at 09:52.
    expect([byId.get('s8'), byId.get('s2')].map((item) => item?.endedAt?.toISOString())).toEqual([
      undefined,
      '2026-04-10T09:52:00.000Z',
    ])
  })

  it.each([1, 3, 50])('returns pages of %i, the latest start first', async (limit) => {
    const all = await walk('sessions', { limit })
    expect(new Set(all.ids).size).toBe(all.ids.length)
    expect(all.ids).toHaveLength(20)
    expect(all.ids[0]).toBe('s7:bob')
    const ann = await walk('sessions', { limit }, 'ann')
    expect(ann.ids).toEqual(all.ids.filter((id) => id.endsWith(':ann')))
    expect((await walk('sessions', { limit, manifestId: 'm2' })).ids.toSorted()).toEqual([
      's2:ann',
      's2:bob',
    ])
    expect(
      (await walk('sessions', { limit, startDate: '2026-03-31', endDate: '2026-03-31' })).ids,
    ).toEqual(['march:ann'])
  })
})
