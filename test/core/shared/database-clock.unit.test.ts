import { beforeEach, describe, expect, it } from 'vitest'
import { type DatabaseClock, createDatabaseClock } from '../../../core/shared/database-clock.ts'

/** Milliseconds of the database's clock, this machine's clock, and a monotonic clock. */
const clocks = { database: 0, wall: 0, mono: 0 }
let readings = 0
let answerMs = 0
/** Milliseconds for which the machine is suspended while it waits for the next response. */
let suspendedMs = 0
let clock: DatabaseClock
const now = (): number => clock.now().getTime()

function pass(ms: number): void {
  clocks.database += ms
  clocks.wall += ms
  clocks.mono += ms
}

beforeEach(async () => {
  Object.assign(clocks, { database: 1_000_000, wall: 5_000_000, mono: 70 })
  readings = answerMs = suspendedMs = 0
  clock = createDatabaseClock({
    read: async () => {
      readings += 1
      pass(answerMs / 2)
      const at = new Date(clocks.database)
      pass(answerMs / 2)
      clocks.database += suspendedMs
      clocks.wall += suspendedMs
      suspendedMs = 0
      return at
    },
    mono: () => clocks.mono,
    wall: () => clocks.wall,
  })
  await clock.measure()
})

describe('createDatabaseClock', () => {
  it("shows the database's time while the machine's clock changes", async () => {
    clocks.wall += 600_000
    pass(3_000)
    expect(now()).toBe(1_003_000)
    clocks.wall -= 1_200_000
    await clock.measure()
    expect([now(), clock.jumpedAt().getTime()]).toEqual([1_003_000, 0])
  })

  it('reads the database first when the machine may have been suspended', async () => {
    pass(1_000)
    expect((await clock.current()).getTime()).toBe(1_001_000)
    expect(readings).toBe(1)
    clocks.database += 60_000
    clocks.wall += 60_000
    expect((await clock.current()).getTime()).toBe(1_061_000)
    expect(readings).toBe(2)
    await clock.current()
    expect(readings).toBe(2)
  })

  it('reads again when the machine was suspended during a reading', async () => {
    suspendedMs = 60_000
    await clock.measure()
    expect([now(), readings]).toEqual([1_060_000, 3])
  })

  it("reports a jump of the database's clock in either direction", async () => {
    clocks.database += 60_000
    await clock.measure()
    expect([now(), clock.jumpedAt().getTime()]).toEqual([1_060_000, 1_060_000])
    pass(5_000)
    clocks.database -= 60_000
    await clock.measure()
    expect([now(), clock.jumpedAt().getTime()]).toEqual([1_005_000, 1_005_000])
  })

  it('follows drift without a jump, and ignores readings less exact than the difference', async () => {
    clocks.database += 900
    await clock.measure()
    expect([now(), clock.jumpedAt().getTime()]).toEqual([1_000_900, 0])
    answerMs = 4_000
    clocks.database += 1_500
    await clock.measure()
    expect([now(), clock.jumpedAt().getTime()]).toEqual([1_004_900, 0])
  })

  it('keeps counting when the database does not answer', async () => {
    const away = createDatabaseClock({
      read: () => Promise.reject(new Error('away')),
      mono: () => clocks.mono,
      wall: () => clocks.wall,
    })
    await expect(away.measure()).rejects.toThrow('away')
    expect(away.now().getTime()).toBe(5_000_000)
  })
})
