import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { createWorld, envelope, recordRate, type World } from '../harness.ts'

let world: World
let metering: ReturnType<World['metering']>
beforeEach(async () => {
  world = await createWorld()
  await recordRate(world.pool, '2026-09-14T10:15:00Z')
  metering = world.metering()
})
afterEach(() => world.stop())

type Data = Parameters<typeof envelope>[0]
const alice = (data: Data = {}): Buffer =>
  envelope({ auth_id: `${world.app.clientId}:alice`, ...data })
/** Ingests tickets of one session with these sequence numbers, in one batch. */
const arrive = (numbers: readonly (number | string)[], data: Data = {}) =>
  metering.ingestEvents(numbers.map((sequence_number) => alice({ sequence_number, ...data })))
const rows = async (text: string): Promise<Record<string, unknown>[]> =>
  (await world.pool.query(text)).rows

/** Runs a round, so many seconds later. */
async function look(afterSeconds = 0): Promise<void> {
  world.clock.at = new Date(world.clock.at.getTime() + afterSeconds * 1000)
  await metering.watchLoss()
}
const grace = 300
const lossOf = async (of = world) => await metering.losses.ofApp(of.app.id, { limit: 0 })
const missing = async () =>
  (await lossOf()).sessions.map((session) => [
    session.sessionId,
    session.lost,
    session.missing.map(({ first, last }) => `${first}-${last}`).join(' '),
  ])
const value = async (name: string): Promise<number> =>
  Number((await world.metric(`${name}{`))[0]?.split(' ').at(-1))

describe('hole in the sequence numbers of a session', () => {
  it('is a lost ticket if it still exists after the grace time (K6)', async () => {
    await arrive([0, 1, 3])
    await look()
    await look(grace - 1)
    expect(await missing()).toEqual([])
    await look(1)
    expect(await missing()).toEqual([['9f86d081', 1n, '2-2']])
    expect(await value('tollgate_metering_lost_tickets')).toBe(1)
    expect(await value('tollgate_metering_lost_found_total')).toBe(1)
  })

  it('closes when all tickets have arrived, in any order and after any delay (K7)', async () => {
    for (const n of [1, 0, 2]) {
      await arrive([n])
      await look(1)
    }
    await look(grace * 2)
    await arrive([3], { current_time: '2026-09-14T10:20:00Z' })
    await look(grace)
    await look(grace)
    expect(await missing()).toEqual([])
    expect(
      await rows('select gapped, watched, irregular, lost_count from ticket_sessions'),
    ).toEqual([{ gapped: false, watched: false, irregular: false, lost_count: 0n }])
  })

  it('is no longer lost when its ticket arrives later', async () => {
    await arrive([0, 2, 4])
    await look()
    await look(grace)
    expect(await missing()).toEqual([['9f86d081', 2n, '1-1 3-3']])
    await arrive([1])
    await look()
    expect(await missing()).toEqual([['9f86d081', 1n, '3-3']])
    await arrive([3])
    await look()
    expect(await missing()).toEqual([])
    expect(await value('tollgate_metering_lost_tickets')).toBe(0)
    expect(await value('tollgate_metering_lost_found_total')).toBe(2)
    expect(await rows('select watched, lost from ticket_sessions')).toEqual([
      { watched: false, lost: '{}' },
    ])
  })

  it('has its own grace time, even after an earlier hole is lost', async () => {
    await arrive([0, 2])
    await look()
    await look(grace)
    await arrive([5])
    await look(1)
    await look(grace)
    await look(grace - 2)
    expect(await missing()).toEqual([['9f86d081', 1n, '1-1']])
    await look(2)
    expect(await missing()).toEqual([['9f86d081', 3n, '1-1 3-4']])
  })

  it('is not examined again once it is lost, while the session continues', async () => {
    await arrive([0, 2])
    await look()
    await look(grace)
    const watched = () => rows('select watched, lost_count from ticket_sessions')
    expect(await watched()).toEqual([{ watched: false, lost_count: 1n }])
    await arrive([3])
    await arrive([4, 5])
    expect(await watched()).toEqual([{ watched: false, lost_count: 1n }])
    await arrive([7])
    expect(await watched()).toEqual([{ watched: true, lost_count: 1n }])
  })

  it('counts at the beginning of a session', async () => {
    await arrive([2])
    await look()
    await look(grace)
    expect(await missing()).toEqual([['9f86d081', 2n, '0-1']])
  })

  it('is counted once if several cores look at the same time', async () => {
    for (let n = 0; n < 30; n++) await arrive([0, 2], { session_id: `s${n}` })
    await look()
    world.clock.at = new Date(world.clock.at.getTime() + grace * 1000)
    const others = Array.from({ length: 3 }, () => world.metering())
    await Promise.all(others.map((core) => core.watchLoss()))
    metering = world.metering()
    await look()
    expect((await lossOf()).totals).toMatchObject({ sessions: 30n, lost: 30n })
    expect((await missing()).every(([, lost, ranges]) => lost === 1n && ranges === '1-1')).toBe(
      true,
    )
  })
})

describe('fork', () => {
  it('is flagged, counted and billed: same session and sequence number, other time (K5)', async () => {
    await arrive([0, 1])
    await arrive([1], { current_time: '2026-09-14T10:15:31Z' })
    expect((await lossOf()).sessions).toMatchObject([
      { sessionId: '9f86d081', lost: 0n, forked: 1n, tickets: 3n },
    ])
    expect(await value('tollgate_metering_forked_tickets_total')).toBe(1)
    expect(await rows('select sequence_number from tickets where replayed')).toEqual([
      { sequence_number: 1n },
    ])
  })
})

describe('ticket that arrives long after signing', () => {
  it('is counted, in the totals and as a metric', async () => {
    await arrive([0, 1], { current_time: '2026-09-14T10:04:00Z' })
    await arrive([2], { current_time: '2026-09-14T10:06:00Z' })
    const { totals, sessions } = await lossOf()
    expect(totals).toMatchObject({ late: 2n, lost: 0n, forked: 0n })
    expect(sessions).toEqual([])
    expect(await value('tollgate_metering_late_tickets_total')).toBe(2)
  })
})
