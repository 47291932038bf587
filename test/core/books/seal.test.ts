import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { connectCore } from '../../../deploy/cli/client.ts'
import { serviceToken } from '../support.ts'
import { type BooksWorld, startBooks, tollgate } from './support.ts'

let world: BooksWorld
beforeAll(async () => {
  world = await startBooks()
})
afterAll(() => world.stop())

const name = 'tollgate_core_books_checkpoint_age_seconds'
const minutes = (n: number) => world.clock.advance(n * 60_000)
/** In seconds. */
async function age(): Promise<number> {
  const metric = await world.metrics.getSingleMetric(name)?.get()
  return metric?.values[0]?.value ?? NaN
}

it('reports the age of the newest checkpoint while newer entries exist', async () => {
  expect(await age()).toBe(0)
  await world.ingest({ id: 'first' })
  minutes(10)
  // An app without a checkpoint counts from its first entry.
  expect(await age()).toBe(600)
  await tollgate('verify', '--head')
  minutes(5)
  expect(await age()).toBe(0)
  await world.ingest({ id: 'second' })
  expect(await age()).toBe(300)
  minutes(60)
  expect(await age()).toBe(3_900)
})

it('reports the app that has waited longest', async () => {
  await tollgate('verify', '--head', '--app', world.app.clientId)
  const other = await world.newApp()
  await world.ingest({ id: 'other', auth_id: `${other.clientId}:bob` })
  minutes(7)
  await world.ingest({ id: 'third' })
  expect(await age()).toBe(420)
  await tollgate('verify', '--head')
  expect(await age()).toBe(0)
})

it('seals once for callers at the same time, and refuses none of them', async () => {
  const core = connectCore({ target: world.core.target, token: serviceToken })
  onTestFinished(() => core.close())
  for (let round = 0; round < 5; round++) {
    await world.ingest({ id: `together ${round}` })
    const seals = Array.from({ length: 8 }, () => core.books.sealBooks({}))
    const heads = (await Promise.all(seals)).map((answer) => answer.heads)
    const newest = Math.max(...heads.flat().map(({ number }) => Number(number)))
    const { heads: after } = await core.books.sealBooks({})
    expect(Math.max(...after.map(({ number }) => Number(number)))).toBe(newest)
  }
})

describe('deleted checkpoint', () => {
  const tables = ['checkpoints', 'book_heads', 'price_chain', 'price_heads', 'plan_versions']
  const each = (text: (table: string) => string) => tables.map(text).join(';')

  /** Returns the differences that verify reports while rows of these tables are missing. */
  async function missing(damage: string, act = () => tollgate('verify')): Promise<string[]> {
    await world.damage(each((table) => `create table kept_${table} as select * from ${table}`))
    try {
      await world.damage(damage)
      const { text } = await act()
      return text.split('\n').filter((line) => line.startsWith('DIFFERENCE'))
    } finally {
      await world.damage(
        each(
          (table) =>
            `delete from ${table}; insert into ${table} ${table === 'plan_versions' ? 'overriding system value ' : ''}select * from kept_${table}; drop table kept_${table}`,
        ),
      )
    }
  }

  beforeAll(async () => {
    await world.ingest({ id: 'fourth' })
    await tollgate('verify', '--head')
  })

  const [last] = ['select max(number) from checkpoints c where c.app_id = checkpoints.app_id']
  const isGone =
    /DIFFERENCE checkpoints app_\w+ checkpoint=\d: last is missing, should be [0-9a-f]{64}/

  it('is reported when it is the last', async () => {
    expect(await missing(`delete from checkpoints where number = (${last})`)).toContainEqual(
      expect.stringMatching(isGone),
    )
  })

  it('is reported when all are deleted', async () => {
    expect(await missing('delete from checkpoints')).toContainEqual(expect.stringMatching(isGone))
  })

  it('is reported after the books are sealed again', async () => {
    const resealed = await missing(`delete from checkpoints where number = (${last})`, async () => {
      await tollgate('verify', '--head')
      return tollgate('verify')
    })
    expect(resealed).toContainEqual(
      expect.stringMatching(/checkpoint=\d: number is (\d), should be \d, by \+1/),
    )
    expect((await tollgate('verify')).text).toContain('the books are right')
  })

  it('is reported when only the head is deleted', async () => {
    expect(await missing('delete from book_heads')).toContainEqual(
      expect.stringMatching(/checkpoint=\d: last is missing, should be/),
    )
  })

  it('leaves earlier checkpoints, which reveal a rewritten end of the price chain', async () => {
    const cutOff = `
      delete from price_chain where number > 1;
      update price_heads h set number = 1, hash = (select hash from price_chain c where c.app_id = h.app_id);
      delete from plan_versions where not exists (
        select from price_chain where item = 'plan_version ' || plan_id || ' ' || version)`
    expect(await missing(cutOff)).toContainEqual(
      expect.stringMatching(/checkpoints app_\w+ checkpoint=\d: prices_hash is missing, should be/),
    )
  })
})
