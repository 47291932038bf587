import { randomUUID } from 'node:crypto'
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { type TestCore, second, startTestCore } from '../../support.ts'
import { emptyEscrow, escrowUser } from './support.ts'

let core: TestCore
let ada: Awaited<ReturnType<typeof escrowUser>>
beforeAll(async () => {
  // With these settings, core's own rounds end nothing.
  core = await startTestCore({ EVENT_LAG_SECONDS: '3600', HOLD_MAX_SECONDS: '86400' })
})
afterAll(() => core.stop())
beforeEach(async () => {
  await emptyEscrow(core)
  ada = await escrowUser(core, await core.newApp())
})

const setClock = (seconds: number) => core.clock.set(new Date(ada.begin + seconds * second))
const call = (seconds: number) => ({ sequence: seconds, ms: seconds * second })

/** Authorises calls of a sidecar, each at a second after the start. */
async function authorise(sidecarId: string, ...seconds: readonly number[]): Promise<void> {
  for (const at of seconds) await ada.authorise({ ...call(at), session: sidecarId }, { sidecarId })
}

/** Returns the gauge, and the figures of each sidecar. */
async function read() {
  const { sidecars } = await core.asOperator().listSidecars({})
  const gauge = (await core.metrics.metrics())
    .split('\n')
    .find((line) => line.startsWith('tollgate_escrow_stream_behind_seconds{'))
  return {
    gauge: Number(gauge?.split(' ').at(-1)),
    sidecars: sidecars.map(({ id, secondsBehind, stalled }) => [id, secondsBehind, stalled]),
  }
}

describe('how far a sidecar is behind', () => {
  it('is zero without sidecars, and for one without calls', async () => {
    expect(await read()).toEqual({ gauge: 0, sidecars: [] })
    await core.sql.query(
      'insert into sidecars (id, instance, started_at, seen_at) values ($1, $2, $3, $3)',
      ['idle', randomUUID(), new Date(ada.begin)],
    )
    setClock(90)
    expect(await read()).toEqual({ gauge: 0, sidecars: [['idle', 0, false]] })
  })

  it('is the time from its oldest call without an event to its latest, stalled after 60 s', async () => {
    await authorise('east', 0, 60)
    setClock(90)
    expect(await read()).toEqual({ gauge: 60, sidecars: [['east', 60, false]] })
    await authorise('east', 61)
    expect(await read()).toEqual({ gauge: 61, sidecars: [['east', 61, true]] })
  })

  it('begins after the latest booked call', async () => {
    await authorise('east', 0, 40, 100)
    setClock(100)
    await ada.book({ ...call(40), session: 'east' })
    expect(await read()).toEqual({ gauge: 60, sidecars: [['east', 60, false]] })
    await ada.book({ ...call(0), session: 'east' })
    expect(await read()).toEqual({ gauge: 0, sidecars: [['east', 0, false]] })
  })

  it('leaves out calls whose ticket waits for a price', async () => {
    await authorise('east', 0, 70, 80)
    setClock(80)
    await core.sql.query('update authorisations set ticketed = true where sequence_number = 0')
    expect(await read()).toEqual({ gauge: 10, sidecars: [['east', 10, false]] })
    await core.sql.query('update authorisations set ticketed = true')
    expect(await read()).toEqual({ gauge: 0, sidecars: [['east', 0, false]] })
  })

  it('ends now, even if the latest call is recorded in the future', async () => {
    await authorise('east', 0, 10)
    setClock(3)
    expect(await read()).toEqual({ gauge: 3, sidecars: [['east', 3, false]] })
    const { sidecars } = await core.asOperator().listSidecars({})
    expect(sidecars[0]?.lastAuthorisedAt).toBe(core.clock.now().toISOString())
  })

  it('is the largest of all sidecars in the gauge, and the list begins with it', async () => {
    await authorise('east', 0, 5)
    await authorise('north', 0, 70)
    await authorise('west', 0, 5)
    setClock(90)
    expect(await read()).toEqual({
      gauge: 70,
      sidecars: [
        ['north', 70, true],
        ['east', 5, false],
        ['west', 5, false],
      ],
    })
  })
})
