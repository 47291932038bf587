import * as fc from 'fast-check'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { maxRanges } from '../../../../core/metering/ingest/session-store.ts'
import { createWorld, envelope, recordRate, type World } from '../harness.ts'
import { testSeed } from '../../../support/run/sizes.ts'

let world: World
beforeAll(async () => {
  world = await createWorld()
  await recordRate(world.pool, '2026-09-14T10:15:00Z')
})
afterAll(() => world.stop())

const grace = 300
let sessions = 0

interface Arrival {
  readonly kind: 'arrive'
  readonly numbers: readonly number[]
}
interface Pause {
  readonly kind: 'pause'
  readonly seconds: number
}

const steps = fc.array(
  fc.oneof(
    {
      weight: 3,
      arbitrary: fc.record({
        kind: fc.constant('arrive' as const),
        numbers: fc.array(fc.nat(14), { minLength: 1, maxLength: 6 }),
      }),
    },
    {
      weight: 2,
      arbitrary: fc.record({
        kind: fc.constant('pause' as const),
        seconds: fc.constantFrom(0, 1, 150, 299, 300, 301, 900),
      }),
    },
  ),
  { minLength: 1, maxLength: 14 },
)

/** A model of a session: for each missing number, the look that first missed it. */
function createModel() {
  const seen = new Set<number>()
  const since = new Map<number, number>()
  const lost = new Set<number>()
  let forked = 0
  let lastLook: number | null = null

  function arrive(numbers: readonly number[]): void {
    for (const n of numbers) {
      if (seen.has(n)) forked += 1
      seen.add(n)
    }
  }

  const holes = (): number[] =>
    Array.from({ length: Math.max(-1, ...seen) + 1 }, (_, n) => n).filter((n) => !seen.has(n))

  /** Dates holes by looks one grace time apart; a settled hole needs no further looks. */
  function look(at: number): void {
    const filled = [...lost].filter((n) => seen.has(n))
    for (const n of filled) lost.delete(n)
    // A look that only finds arrived lost tickets also sets the date, the earliest for new holes.
    const isSettled = filled.length === 0 && holes().every((n) => lost.has(n))
    if (isSettled || (lastLook !== null && at < lastLook + grace)) return
    for (const n of holes()) {
      if (since.has(n)) lost.add(n)
      else since.set(n, at)
    }
    lastLook = at
  }

  return { arrive, look, forked: () => forked, lost, since, holes }
}

async function sessionOf(sessionId: string) {
  const { rows } = await world.pool.query(`
    select lost::text, lost_count, replayed_count, gapped, watched
    from ticket_sessions
    where session_id = '${sessionId}'`)
  return rows[0] as
    | {
        lost: string
        lost_count: bigint
        replayed_count: bigint
        gapped: boolean
        watched: boolean
      }
    | undefined
}

const numbersIn = (multirange: string): number[] =>
  [...multirange.matchAll(/\[(\d+),(\d+)\)/g)].flatMap(([, from, to]) =>
    Array.from({ length: Number(to) - Number(from) }, (_, i) => Number(from) + i),
  )

describe(`the loss watch against a model (TEST_SEED=${testSeed})`, () => {
  it('loses exactly the numbers missing at two looks a grace time apart', async () => {
    const metering = world.metering()
    await fc.assert(
      fc.asyncProperty(steps, async (script: readonly (Arrival | Pause)[]) => {
        const model = createModel()
        const session_id = `m${sessions++}`
        for (const step of script) {
          if (step.kind === 'arrive') {
            model.arrive(step.numbers)
            await metering.ingestEvents(
              step.numbers.map((sequence_number) =>
                envelope({ auth_id: `${world.app.clientId}:alice`, session_id, sequence_number }),
              ),
            )
            continue
          }
          world.clock.at = new Date(world.clock.at.getTime() + step.seconds * 1000)
          await metering.watchLoss()
          model.look(world.clock.at.getTime() / 1000)
        }
        // After two silent grace times every hole is lost, and the session is no longer watched.
        for (const quiet of [0, grace, grace]) {
          world.clock.at = new Date(world.clock.at.getTime() + quiet * 1000)
          await metering.watchLoss()
          model.look(world.clock.at.getTime() / 1000)
          const found = await sessionOf(session_id)
          if (!found) return
          const lost = [...model.lost].toSorted((a, b) => a - b)
          expect(numbersIn(found.lost)).toEqual(lost)
          expect(found).toMatchObject({
            lost_count: BigInt(lost.length),
            replayed_count: BigInt(model.forked()),
            gapped: model.holes().length > 0,
            // A settled session may be watched for another grace time.
            watched: lost.length < model.holes().length || found.watched,
          })
        }
        expect(model.lost.size).toBe(model.holes().length)
        expect(await sessionOf(session_id)).toMatchObject({ watched: false })
      }),
      { numRuns: 60, seed: testSeed },
    )
  }, 120_000)
})

describe('session with hostile sequence numbers', () => {
  const arrive = (numbers: readonly bigint[], session_id: string, metering = world.metering()) =>
    metering.ingestEvents(
      numbers.map((n) =>
        Buffer.from(
          envelope({ auth_id: `${world.app.clientId}:mallory`, session_id })
            .toString()
            .replace('"sequence_number":0', `"sequence_number":${n}`),
        ),
      ),
    )
  const stateOf = async (sessionId: string) =>
    (
      await world.pool.query(`
    select (select count(*) from unnest(seen)) as ranges, upper(seen) as upper, lost_count, closed_below, closed_count,
           replayed_count, gapped, watched
    from ticket_sessions
    where session_id = '${sessionId}'`)
    ).rows[0] as Record<string, bigint>
  const every = (step: bigint, from: bigint, count: number): bigint[] =>
    Array.from({ length: count }, (_, i) => from + BigInt(i) * step)

  it('keeps a bounded number of ranges if every second number is missing, and counts those given up', async () => {
    for (let batch = 0n; batch < 6n; batch++) await arrive(every(2n, batch * 1_400n, 700), 'odd')
    const state = await stateOf('odd')
    expect(Number(state['ranges'])).toBeLessThanOrEqual(maxRanges)
    expect(Number(state['ranges'])).toBeGreaterThan(400)
    // Below `closed_below`, every second number is missing.
    expect(state['closed_count']).toBe((state['closed_below'] ?? 0n) / 2n)
    expect(state['replayed_count']).toBe(0n)
  })

  it('does not count a hole again that was lost before it was given up', async () => {
    await arrive(every(2n, 0n, 900), 'twice')
    for (const _ of [1, 2]) {
      await world.metering().watchLoss()
      world.clock.at = new Date(world.clock.at.getTime() + grace * 1000)
    }
    await arrive(every(2n, 1_800n, 400), 'twice')
    const { lost_count: lost = 0n, closed_count: closed = 0n } = await stateOf('twice')
    expect([lost > 0n, closed > 700n, lost + closed]).toEqual([true, true, 899n])
  })

  it('bounds a single batch that consists of holes', async () => {
    await arrive(every(3n, 0n, 9_000), 'wide')
    expect(Number((await stateOf('wide'))['ranges'])).toBeLessThanOrEqual(maxRanges)
  })

  it('lowers the number of given-up tickets as they arrive, and flags no fork', async () => {
    await arrive(every(2n, 0n, 1_500), 'patient')
    const before = await stateOf('patient')
    await arrive([1n, 3n, 5n], 'patient')
    await arrive(every(2n, 7n, 1_400), 'patient')
    const after = await stateOf('patient')
    expect(before['closed_count']).toBeGreaterThan(900n)
    expect(after).toMatchObject({ closed_count: 0n, replayed_count: 0n })
  })

  it('counts a jump to 2^62 as at most a million lost tickets, without harm to other sessions', async () => {
    const metering = world.metering()
    await arrive([0n, 2n ** 62n, 2n ** 63n - 2n], 'far', metering)
    await metering.watchLoss()
    world.clock.at = new Date(world.clock.at.getTime() + grace * 1000)
    await metering.watchLoss()
    expect((await stateOf('far'))['lost_count']).toBe(2n ** 63n - 4n)
    const { sessions: listed, totals } = await metering.losses.ofApp(world.app.id, { limit: 0 })
    const far = listed.find(({ sessionId }) => sessionId === 'far')
    expect(far).toMatchObject({
      lost: 1_000_000n,
      missing: [
        { first: 1n, last: 2n ** 62n - 1n },
        { first: 2n ** 62n + 1n, last: 2n ** 63n - 3n },
      ],
    })
    expect(totals.lost).toBeLessThan(2_000_000n)
  })
})
