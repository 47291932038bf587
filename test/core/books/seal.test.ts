import { afterAll, beforeAll, expect, it } from 'vitest'
import { type BooksWorld, startBooks, tollgate } from './support.ts'

let world: BooksWorld
beforeAll(async () => {
  world = await startBooks()
})
afterAll(() => world.stop())

const name = 'tollgate_core_books_checkpoint_age_seconds'
const minutes = (n: number) => world.clock.advance(n * 60_000)
/** Seconds. */
async function age(): Promise<number> {
  const metric = await world.metrics.getSingleMetric(name)?.get()
  return metric?.values[0]?.value ?? NaN
}

it('tells how old the newest checkpoint is, once entries came that it does not cover', async () => {
  expect(await age()).toBe(0)
  await world.ingest({ id: 'first' })
  minutes(10)
  // An app without a checkpoint: since its first entry.
  expect(await age()).toBe(600)
  await tollgate('verify', '--head')
  minutes(5)
  expect(await age()).toBe(0)
  await world.ingest({ id: 'second' })
  expect(await age()).toBe(300)
  minutes(60)
  expect(await age()).toBe(3_900)
})

it('is that of the app that has waited longest', async () => {
  await tollgate('verify', '--head', '--app', world.app.clientId)
  const other = await world.newApp()
  await world.ingest({ id: 'other', auth_id: `${other.clientId}:bob` })
  minutes(7)
  await world.ingest({ id: 'third' })
  expect(await age()).toBe(420)
  await tollgate('verify', '--head')
  expect(await age()).toBe(0)
})
