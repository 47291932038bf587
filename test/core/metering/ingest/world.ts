import { inspect, isDeepStrictEqual } from 'node:util'
import { afterEach, beforeEach } from 'vitest'
import {
  createWorld,
  differences,
  envelope,
  noDifferences,
  recordRate,
  type World,
} from '../harness.ts'

export let world: World

/**
 * Registers the hooks of a test file: each test has its own world and ends with correct books.
 * Files of a worker share this module, so each calls it.
 */
export function setUpWorld(): void {
  beforeEach(async () => {
    world = await createWorld()
    await recordRate(world.pool, '2026-09-14T10:15:00Z')
  })
  afterEach(async () => {
    const found = await differences(world.pool)
    await world.stop()
    if (!isDeepStrictEqual(found, noDifferences))
      throw new Error(`the books differ: ${inspect(found)}`)
  })
}

type Data = Parameters<typeof envelope>
export const alice = (data: Data[0] = {}, more: Data[1] = {}): Buffer =>
  envelope({ auth_id: `${world.app.clientId}:alice`, ...data }, more)
export const ingest = (...events: Buffer[]) => world.metering().ingestEvents(events)
export const rows = async (text: string): Promise<Record<string, unknown>[]> =>
  (await world.pool.query(text)).rows
export const counts = (...[ticket, duplicate = 0, ignored = 0, quarantined = 0]: number[]) => ({
  ticket,
  duplicate,
  ignored,
  quarantined,
})
