import { afterAll, beforeAll, expect } from 'vitest'
import { begin } from '../support.ts'
import { type BooksWorld, startBooks, tollgate } from './support.ts'

/** Books of a few tickets with overage, for tests of verify. */

export let world: BooksWorld

/** Registers the hooks of a test file. Files of a worker share this module, so each calls it. */
export function setUpBooks(): void {
  beforeAll(async () => {
    world = await startBooks()
    const m2m = world.as(world.app.basic)
    await m2m.upsertUser({ clientId: world.app.clientId, externalUserId: 'idle' })
    const at = (seconds: number) => new Date(begin.getTime() + seconds * 1_000).toISOString()
    // 3000 USD per ETH: 10^15 wei are 3 USD.
    await world.ingest(
      {
        session_id: 'a',
        sequence_number: 0,
        computed_fee: '1000000000000000',
        billable_secs: 1.5,
        current_time: at(0),
      },
      {
        session_id: 'a',
        sequence_number: 1,
        computed_fee: '7',
        billable_secs: '0.25',
        current_time: at(1),
      },
      { session_id: 'a', sequence_number: 3, computed_fee: '1', current_time: at(2) },
      {
        session_id: 'b',
        sequence_number: 0,
        computed_fee: '5',
        current_time: at(3),
        auth_id: `${world.app.clientId}:bob`,
      },
    )
    await m2m.createGrant({
      clientId: world.app.clientId,
      externalUserId: 'ada',
      amountUsdMicros: '250000',
    })
    // Exceeds the remaining credit, so there is overage.
    await world.ingest({
      session_id: 'a',
      sequence_number: 4,
      computed_fee: '2000000000000000',
      current_time: at(4),
    })
    await tollgate('rebuild')
  })
  afterAll(() => world.stop())
}

export const verify = (...more: string[]) => tollgate('verify', ...more)
export const lines = (text: string) =>
  text.split('\n').filter((line) => line.startsWith('DIFFERENCE'))

/** Damages the books, returns the reported differences, and undoes the damage. */
export async function found(damage: string, repair: string): Promise<string[]> {
  await world.damage(damage)
  try {
    const { code, text } = await verify()
    expect(code).toBe(1)
    return lines(text)
  } finally {
    await world.damage(repair)
  }
}
