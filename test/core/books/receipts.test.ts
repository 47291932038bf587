import { randomUUID } from 'node:crypto'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import { connectCore } from '../../../deploy/cli/client.ts'
import { createRoots } from '../../../core/books/receipts/roots.ts'
import { buildTree } from '../../../core/books/receipts/tree.ts'
import { silentLog } from '../../../core/lib/log.ts'
import { createPool, tx } from '../../../core/lib/sql.ts'
import { appId } from '../../../core/platform/ids.ts'
import { chainEarlierPrices, priceReads } from '../../../core/plans/prices/chain.ts'
import { begin, day, observedRate, serviceToken, until } from '../support.ts'
import { verifyReceipt } from '../../support/receipt-verifier.ts'
import { type BooksWorld, buildRoots, startBooks, tollgate } from './support.ts'

let world: BooksWorld
let folder: string
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'tollgate-receipts-'))
  world = await startBooks(observedRate)
})
afterAll(async () => {
  await world.stop()
  await rm(folder, { recursive: true, force: true })
})

const file = (name: string): string => join(folder, name)

/** Advances the clock by a day and builds the roots of the previous day. Returns that day. */
async function nextDay(): Promise<string> {
  const ended = world.clock.now().toISOString().slice(0, 10)
  world.clock.advance(day)
  await buildRoots(world)
  return ended
}

async function rateAt(instant: Date): Promise<void> {
  await world.sql.query(
    `insert into rates (usd_attos_per_eth, source, observed_at, created_at) values (3111.1 * 10::numeric ^ 18, 'test', $1, $1)`,
    [instant],
  )
}

/** Books tickets of one user, signed now. Returns their event ids. */
async function book(
  count: number,
  more: Readonly<Record<string, unknown>> = {},
): Promise<string[]> {
  const ids = Array.from({ length: count }, () => randomUUID())
  const now = world.clock.now().getTime()
  const current_time = new Date(now).toISOString()
  await rateAt(world.clock.now())
  await world.ingest(
    ...ids.map((id, i) => ({
      id,
      current_time,
      session_id: id,
      sequence_number: i,
      computed_fee: String(8_420_000_000_001n + BigInt(i)),
      ...more,
    })),
  )
  return ids
}

const get = (id: string, name: string) =>
  tollgate('receipt', 'get', id, '--out', file(name), '--jwks', file('keys.json'))
const verify = (name: string, ...more: string[]) =>
  tollgate('receipt', 'verify', file(name), '--jwks', file('keys.json'), ...more)

describe('receipts', () => {
  it('prove a ticket provisionally on its day, and permanently afterwards', async () => {
    const ids = await book(3)
    const [id = ''] = ids
    expect((await get(id, 'early.json')).code).toBe(0)
    const early = await verify('early.json')
    expect(early.text).toContain('ok     network cost: 8420000000001 wei × 3111.1 USD/ETH = ')
    // The receipt is complete on the day itself, with a provisional root.
    const running = world.clock.now().toISOString().slice(0, 10)
    expect(early.text).toContain('ok     signature of the provisional root: by ')
    expect(early.text).toContain(
      `ok     app and day: app ${world.app.clientId}, ${running}, ticket `,
    )
    expect(early.text).toMatch(
      /ok {5}place in the charge: [12] hashes lead from the ticket to the root /,
    )
    expect(early.text).toContain(
      '-      place in the day: the root is provisional: get the receipt again',
    )
    expect(early.code).toBe(0)
    const document = await json('early.json')
    expect(document).toMatchObject({ provisional: true, proof: { day: running, treeSize: 3 } })
    expect(claimsOf(document)).toMatchObject({ place: { day: running, provisional: true } })
    await verifyReceipt(document, await json('keys.json'))

    const ended = await nextDay()
    await get(id, 'first.json')
    const { code, text } = await verify('first.json')
    expect(text).toContain(`ok     app and day: app ${world.app.clientId}, ${ended}, ticket `)
    expect(text).toMatch(/ok {5}place in the day: [12] hashes lead from the ticket to the root /)
    expect(text).toContain('the receipt is right')
    expect(code).toBe(0)
    expect(await json('first.json')).toMatchObject({ provisional: false, proof: { day: ended } })
    for (const one of ids) {
      await get(one, 'one.json')
      expect((await verify('one.json')).code).toBe(0)
      // Verify with an independent program, written from docs/receipts.md alone.
      await verifyReceipt(await json('one.json'), await json('keys.json'))
    }
  })

  it('place a late ticket on its booking day, and skip days without tickets', async () => {
    await nextDay()
    const signed = new Date(world.clock.now().getTime() - 3 * day)
    await rateAt(signed)
    const [late = ''] = await book(1, { current_time: signed.toISOString() })
    const [onTime = ''] = await book(1)
    const ended = await nextDay()
    await nextDay()
    for (const id of [late, onTime]) {
      await get(id, 'late.json')
      const { text, code } = await verify('late.json')
      expect(text).toContain(`, ${ended}, ticket `)
      expect(text).toContain(' of 2\n')
      expect(code).toBe(0)
    }
    const { text } = await tollgate('receipt', 'roots', '--app', world.app.clientId)
    const days = JSON.parse(text).roots.map((root: { day: string }) => root.day)
    expect(days).toEqual([begin.toISOString().slice(0, 10), ended])
  })

  it('are rejected for an unpriced and for an unknown ticket', async () => {
    const unpriced = new Date(world.clock.now().getTime() - 86_000_000).toISOString()
    const id = randomUUID()
    await world.ingest({ id, current_time: unpriced, session_id: id })
    const { text, code } = await get(id, 'unpriced.json')
    expect(code).toBe(1)
    expect(text).toContain('waits for a rate')
    expect((await get('no-such-event', 'none.json')).text).toContain('no ticket has this event id')
  })

  it("place a test app's ticket on its booking day by the app's clock", async () => {
    const trial = await world.newApp({ isTest: true })
    const operator = connectCore({ target: world.core.target, token: serviceToken })
    const move = async (advanceSeconds: number): Promise<void> => {
      world.clock.advance(1_000)
      const by = { to: undefined, advanceSeconds }
      await operator.moveTestClock({ clientId: trial.clientId, move: by })
      world.clock.advance(1_000)
    }
    const of = { auth_id: `${trial.clientId}:ada` }
    const dayOf = (ahead: number) =>
      new Date(world.clock.now().getTime() + ahead * day).toISOString().slice(0, 10)
    const proves = async (id: string, expected: string, ending: string): Promise<void> => {
      await get(id, 'trial.json')
      const { text, code } = await verify('trial.json')
      expect(text).toContain(`ok     app and day: app ${trial.clientId}, ${expected}, ticket `)
      expect([code, text]).toEqual([0, expect.stringContaining(ending)])
      await verifyReceipt(await json('trial.json'), await json('keys.json'))
    }
    const build = async (ended = ''): Promise<void> => {
      const { core } = await world.startAnother(observedRate)
      const made = `select from receipt_roots r join clients c using (app_id)
        where c.client_id = '${trial.clientId}' and r.day = '${ended}'`
      await until(async () => (await world.rows(made)).length === 1)
      await core.stop()
    }
    // The move ends the clock's day, on the same real day.
    const days = [dayOf(0), dayOf(40), dayOf(41)]
    const before = await book(2, of)
    await move(40 * 86_400)
    const after = await book(3, of)
    const shown = new Date(world.clock.now().getTime() + 40 * day).toISOString()
    await build(days[0])
    for (const id of before) await proves(id, days[0] ?? '', ' of 2\n')
    const [first = ''] = after
    await proves(first, days[1] ?? '', 'the root is provisional')
    expect(claimsOf(await json('trial.json'))).toMatchObject({
      ticket: { signedAt: shown.replace('Z', '000Z') },
    })
    // A move within the day does not end it. Then the clock passes midnight while the real day
    // continues.
    await move(60)
    const [later = ''] = await book(1, of)
    await move(86_400)
    await build(days[1])
    for (const id of [...after, later]) await proves(id, days[1] ?? '', ' of 4\n')
    const [last = ''] = await book(1, of)
    world.clock.advance(day)
    await build(days[2])
    await proves(last, days[2] ?? '', ' of 1\n')
    operator.close()
    const roots = await tollgate('receipt', 'roots', '--app', trial.clientId)
    expect(JSON.parse(roots.text).roots.map((root: { day: string }) => root.day)).toEqual(days)
    expect((await tollgate('verify')).text).toContain('the books are right')
    // Damage the cuts of test days.
    await world.damage(
      `create table kept as select * from test_days; update test_days set snapshot = '7:9:8'`,
    )
    expect((await tollgate('verify')).text).toMatch(/DIFFERENCE receipts .*: tree_size is/)
    await world.damage(
      'delete from test_days; insert into test_days select * from kept; drop table kept',
    )
    expect((await tollgate('verify')).code).toBe(0)
  })
})

/** Decodes the claims of a receipt. */
const claimsOf = ({ receipt }: Record<string, unknown>): unknown =>
  JSON.parse(Buffer.from(String(receipt).split('.')[1] ?? '', 'base64url').toString())

const poolOptions = { max: 2, name: 'receipts-test', statementTimeoutMs: 20_000 }
const json = async (name: string): Promise<Record<string, unknown>> =>
  JSON.parse(await readFile(file(name), 'utf8'))
const put = (name: string, value: unknown) => writeFile(file(name), JSON.stringify(value))

describe('tollgate receipt verify', () => {
  let ids: string[]
  beforeAll(async () => {
    ids = await book(40)
    await nextDay()
    await get(ids[0] ?? '', 'a.json')
    await get(ids[1] ?? '', 'b.json')
    const saved = ['--out', file('roots.json'), '--jwks', file('root-keys.json')]
    await tollgate('receipt', 'roots', '--app', world.app.clientId, ...saved)
  })

  it.each<readonly [string, string, () => Promise<unknown>]>([
    [
      'a forged figure',
      'WRONG  signature of the receipt',
      async () => {
        const { receipt, ...rest } = await json('a.json')
        const [head, body = '', signature] = String(receipt).split('.')
        const claims = JSON.parse(Buffer.from(body, 'base64url').toString())
        claims.ticket.retailCostUsd = '0'
        const forged = Buffer.from(JSON.stringify(claims)).toString('base64url')
        await put('forged.json', { ...rest, receipt: [head, forged, signature].join('.') })
      },
    ],
    [
      'the proof of another ticket',
      'WRONG  place in the day',
      async () => {
        const { proof } = await json('b.json')
        await put('forged.json', { ...(await json('a.json')), proof })
      },
    ],
    [
      'a receipt with a place but without a proof',
      'WRONG  place in the day: the receipt names place ',
      async () => {
        const { receipt } = await json('a.json')
        await put('forged.json', { receipt, proof: null, root: null })
      },
    ],
    [
      "a provisional root in place of the day's root",
      'WRONG  signature of the root: its type is tollgate-receipt-provisional-root+jwt',
      async () => {
        const { root } = await json('early.json')
        await put('forged.json', { ...(await json('a.json')), root })
      },
    ],
    [
      'a provisional receipt without its proof',
      'WRONG  place in the day: the receipt names place ',
      async () => {
        const { receipt } = await json('early.json')
        await put('forged.json', { receipt, proof: null, root: null })
      },
    ],
    [
      'a provisional root of another charge',
      'WRONG  charge: the root is of charge ',
      async () => {
        const [other = ''] = await book(1)
        await get(other, 'other.json')
        const { proof, root } = await json('other.json')
        await put('forged.json', { ...(await json('early.json')), proof, root })
      },
    ],
    [
      'a root that is signed as a receipt',
      'WRONG  signature of the root: its type is tollgate-receipt+jwt',
      async () => {
        const a = await json('a.json')
        await put('forged.json', { ...a, root: a['receipt'] })
      },
    ],
    [
      'a truncated file',
      'WRONG  file: ',
      async () =>
        writeFile(file('forged.json'), (await readFile(file('a.json'), 'utf8')).slice(0, -9)),
    ],
    [
      'a file that is too large',
      'is larger than 1048576 bytes',
      async () => writeFile(file('forged.json'), ' '.repeat(1024 * 1024 + 1)),
    ],
    ['a missing file', 'cannot be read', async () => rm(file('forged.json'))],
    [
      'an invalid inclusion path',
      'has a bad proof',
      async () => {
        const a = await json('a.json')
        await put('forged.json', { ...a, proof: { ...Object(a['proof']), inclusionPath: ['00'] } })
      },
    ],
  ])('rejects %s', async (_, line, forge) => {
    await put('forged.json', {})
    await forge()
    const { code, text } = await verify('forged.json')
    expect(text).toContain(line)
    expect(code).toBe(1)
  })

  it('rejects untrusted keys, and requires --jwks', async () => {
    const keys = await json('keys.json')
    await put('other-keys.json', { keys: [] })
    const other = ['--jwks', file('other-keys.json')]
    const { code, text } = await tollgate('receipt', 'verify', file('a.json'), ...other)
    expect(text).toContain('is not among the 0 trusted ones')
    expect(code).toBe(1)
    expect(keys).toMatchObject({ keys: [{ use: 'sig' }] })
    // Without keys it prints no verdict on the receipt.
    const none = await tollgate('receipt', 'verify', file('a.json'), '--jwks', file('none.json'))
    expect(none.text).toMatch(/^tollgate: .*none\.json cannot be read/)
    expect(none.code).toBe(1)
    expect((await tollgate('receipt', 'verify', file('a.json'))).code).toBe(2)
    expect((await tollgate('receipt')).code).toBe(2)
    expect((await tollgate('receipt', 'roots')).code).toBe(2)
  })

  it('compares with stored roots, and detects a missing one', async () => {
    const whole = await verify('a.json', '--roots', file('roots.json'))
    expect(whole.text).toContain('ok     kept root: ')
    expect(whole.text).toContain('ok     chain of roots: 3 roots, each names the one before')
    expect(whole.code).toBe(0)
    const { roots } = (await json('roots.json')) as { roots: unknown[] }
    await put('gap.json', { roots: roots.toSpliced(1, 1) })
    const gap = await verify('a.json', '--roots', file('gap.json'))
    expect(gap.text).toContain('it does not follow the root before it')
    expect(gap.code).toBe(1)
    await put('short.json', { roots: roots.slice(0, 1) })
    const early = await verify('early.json', '--roots', file('roots.json'))
    expect(early.text).toContain('WRONG  place in the day: the root is provisional')
    expect(early.code).toBe(1)
    const short = await verify('a.json', '--roots', file('short.json'), '--json')
    expect(JSON.parse(short.text)).toMatchObject({ ok: false })
  })

  it('accepts stored keys after a key rotation', async () => {
    world.clock.advance(day)
    await tollgate('keys', 'rotate', '--force')
    expect((await verify('a.json')).code).toBe(0)
    await tollgate(
      'receipt',
      'get',
      ids[0] ?? '',
      '--out',
      file('c.json'),
      '--jwks',
      file('new.json'),
    )
    const keys = await json('new.json')
    expect(keys['keys']).toHaveLength(2)
    await verifyReceipt(await json('c.json'), keys)
  })
})

describe('daily roots', () => {
  it('are recomputed by verify, which reports a missing one', async () => {
    const before = await tollgate('verify')
    expect(before.text).toContain('the books are right')
    const [root] = await world.rows('select day::text from receipt_roots order by day limit 1')
    await world.damage(
      `create table kept as select * from receipt_roots; delete from receipt_roots where day = '${root?.['day']}'`,
    )
    const { text, code } = await tollgate('verify')
    expect(text).toContain(`DIFFERENCE receipts`)
    expect(text).toContain(`day=${root?.['day']}: root is`)
    expect(code).toBe(1)
    await world.damage(
      'delete from receipt_roots; insert into receipt_roots select * from kept; drop table kept',
    )
    expect((await tollgate('verify')).code).toBe(0)
  })

  it('reveal lost checkpoints and prices, even when all references are deleted', async () => {
    const tables = ['checkpoints', 'book_heads', 'price_chain', 'price_heads']
    const each = (text: (table: string) => string) => tables.map(text).join(';')
    await tollgate('verify', '--head')
    await book(1)
    const ended = await nextDay()
    await world.damage(each((table) => `create table kept_${table} as select * from ${table}`))
    await world.damage(each((table) => `delete from ${table}`))
    await chainEarlierPrices(world.sql, silentLog())
    await tollgate('verify', '--head')
    await world.damage(`update price_chain set hash = sha256(hash)`)
    const { text } = await tollgate('verify')
    expect(text).toMatch(
      new RegExp(`receipts .*day=${ended}: checkpoint is .*, should be [0-9a-f]{64}`),
    )
    expect(text).toMatch(new RegExp(`receipts .*day=${ended}: price is .*, should be [0-9a-f]{64}`))
    await world.damage(
      each(
        (table) =>
          `delete from ${table}; insert into ${table} select * from kept_${table}; drop table kept_${table}`,
      ),
    )
    expect((await tollgate('verify')).text).toContain('the books are right')
  })

  it('reveal a deleted latest day, even after it is built again', async () => {
    const tables = ['receipt_days', 'receipt_roots', 'receipt_chunks', 'book_heads']
    const each = (text: (table: string) => string) => tables.map(text).join(';')
    await book(2)
    const ended = await nextDay()
    await world.damage(each((table) => `create table kept_${table} as select * from ${table}`))
    await world.damage(
      ['receipt_days', 'receipt_roots', 'receipt_chunks']
        .map((table) => `delete from ${table} where day = '${ended}'`)
        .join(';'),
    )
    expect((await tollgate('verify')).text).toMatch(
      new RegExp(`DIFFERENCE receipts .*day=${ended}: last is missing, should be [0-9a-f]{64}`),
    )
    // Core cuts the day again, with the same tickets. The new root names the deleted one.
    await buildRoots(world)
    expect((await tollgate('verify')).text).toMatch(
      new RegExp(`DIFFERENCE receipts .*day=${ended}: statement is `),
    )
    await world.damage(
      each(
        (table) =>
          `delete from ${table}; insert into ${table} select * from kept_${table}; drop table kept_${table}`,
      ),
    )
    expect((await tollgate('verify')).text).toContain('the books are right')
  })

  /**
   * Starts cores together and waits for this number of attempts at roots, including failed ones.
   */
  async function tryToBuild(count: number, attempts: number): Promise<void> {
    const cores = await Promise.all(
      Array.from({ length: count }, () => world.startAnother(observedRate)),
    )
    await until(async () => {
      const [tried] = await world.rows('select last_value from attempts where is_called')
      return Number(tried?.['last_value'] ?? 0) >= attempts
    })
    await Promise.all(cores.map(({ core }) => core.stop()))
  }

  /** Returns whether the last ended day has roots, and its number of chunks without a root. */
  const rootsAndOrphans = async () => {
    const [of] = await world.rows(
      `select exists (select from receipt_roots r where r.day = d.day) as has_roots,
              (select count(*) from receipt_chunks c left join receipt_roots r using (app_id, day)
               where c.day = d.day and r.app_id is null) as orphans
       from (select max(day) as day from receipt_days) d`,
    )
    return of
  }

  it('are built once by several cores when one is killed meanwhile', async () => {
    const ids = await book(60)
    const other = await world.newApp()
    await book(5, { auth_id: `${other.clientId}:bob` })
    world.clock.advance(day)
    // The second root of the day fails in its first attempts, as when a core is killed.
    await world.sql.query(
      `create sequence attempts; create function fail_often() returns trigger language plpgsql as $$
      begin
        if nextval('attempts') between 2 and 3 then raise exception 'killed'; end if;
        return new;
      end $$;
      create trigger fail_often before insert on receipt_roots for each row execute function fail_often()`,
    )
    await tryToBuild(3, 2)
    expect(await rootsAndOrphans()).toEqual({ has_roots: 'true', orphans: '0' })
    await tryToBuild(1, 3)
    await buildRoots(world)
    await get(ids[7] ?? '', 'many.json')
    const { text } = await verify('many.json')
    expect(text).toContain(', ticket ')
    expect(text).toContain(' of 60\n')
    expect((await tollgate('verify')).text).toContain('the books are right')
  })

  it('have several chunks when the day has many tickets', async () => {
    const ids = await book(600, { computed_fee: '7' })
    ids.push(...(await book(500, { computed_fee: '8' })))
    const ended = await nextDay()
    const chunks = await world.rows('select number from receipt_chunks where day = $1', [ended])
    expect(chunks).toHaveLength(2)
    // All were signed at the same time, so their ids define the order.
    const inOrder = ids.toSorted()
    for (const index of [0, 1023, 1024, 1099]) {
      await get(inOrder[index] ?? '', 'chunk.json')
      expect((await json('chunk.json'))['proof']).toMatchObject({
        leafIndex: index,
        treeSize: 1100,
      })
      expect((await verify('chunk.json')).code).toBe(0)
    }
    await verifyReceipt(await json('chunk.json'), await json('keys.json'))
    expect((await tollgate('verify')).text).toContain('the books are right')
  })

  it('are not built while tickets are missing, but after they are restored', async () => {
    const [id = ''] = await book(3)
    await world.damage(
      `create table gone as select * from tickets where event_id = '${id}'; delete from tickets where event_id = '${id}'`,
    )
    world.clock.advance(day)
    const pool = createPool({ ...poolOptions, url: world.databaseUrl })
    const roots = createRoots({
      pool,
      now: world.clock.now,
      log: silentLog(),
      issuer: 'https://issuer.example',
      signStatement: async () => ({ jws: 'a.b.c', jwk: {} }),
      prices: priceReads,
    })
    await expect(roots.build(new AbortController().signal)).rejects.toThrow(
      /1 tickets of app_\w+ that were booked on [\d-]+ are missing; restore archived ones with `tollgate import`/,
    )
    await pool.end()
    await world.damage('insert into tickets select * from gone; drop table gone')
    await buildRoots(world)
    await get(id, 'back.json')
    expect((await verify('back.json')).text).toContain(' of 3\n')
  })

  it('are built for other apps while the root of a test app fails', async () => {
    const operator = connectCore({ target: world.core.target, token: serviceToken })
    const trials = [await world.newApp({ isTest: true }), await world.newApp({ isTest: true })]
    for (const { clientId } of trials) {
      await book(2, { auth_id: `${clientId}:ada` })
      world.clock.advance(1_000)
      await operator.moveTestClock({ clientId, move: { to: undefined, advanceSeconds: 86_400 } })
    }
    operator.close()
    const [id = ''] = await book(1)
    const ids = trials.map(({ clientId }) => `'${clientId}'`).join()
    const first = `(select app_id from clients where client_id in (${ids}) order by app_id limit 1)`
    await world.damage(
      `create table gone as select * from tickets where app_id = ${first}; delete from tickets where app_id = ${first}`,
    )
    const rootsOf = (apps: string) =>
      `select from receipt_roots join clients using (app_id) where client_id in (${apps}) and day = '${ended}'`
    const build = async (apps: string, count: number): Promise<void> => {
      const { core } = await world.startAnother(observedRate)
      await until(async () => (await world.rows(rootsOf(apps))).length === count)
      await core.stop()
    }
    const ended = world.clock.now().toISOString().slice(0, 10)
    await build(ids, 1)
    world.clock.advance(day)
    await build(`'${world.app.clientId}'`, 1)
    await get(id, 'other.json')
    expect((await verify('other.json')).text).toContain(', ticket 1 of 1\n')
    await world.damage('insert into tickets select * from gone; drop table gone')
    await build(ids, 2)
    await buildRoots(world)
    expect((await tollgate('verify')).text).toContain('the books are right')
  })

  it('do not prove a ticket that was changed afterwards', async () => {
    const [id = ''] = await book(1)
    await nextDay()
    const change = (by: string) =>
      world.damage(
        `update tickets set received_at = received_at + interval '${by}' where event_id = '${id}'`,
      )
    await change('1 second')
    const { text, code } = await get(id, 'changed.json')
    expect(text).toContain('the ticket differs from the root of ')
    expect(code).toBe(1)
    await change('-1 second')
    expect((await get(id, 'changed.json')).code).toBe(0)
  })

  it('are built with charges of only a few users in memory', async () => {
    const pool = createPool({ ...poolOptions, url: world.databaseUrl })
    const app = { id: appId(randomUUID()), clientId: 'app_busy' }
    const snapshotNow = async (): Promise<string> =>
      String((await world.rows('select pg_current_snapshot() as now'))[0]?.['now'])
    const previous = await snapshotNow()
    await world.damage(
      `insert into ledger_entries (app_id, user_id, seq, kind, amount_attos, overage_attos, balance_after_attos, cause_id, created_at,
                                   ticket_count, hash)
       select '${app.id}', md5(u::text)::uuid, n, 'charge', -1, 0, 0, gen_random_uuid(), now(), 1, ''
       from generate_series(1, 4) u, generate_series(1, 3000) n`,
    )
    const cutAt = world.clock.now()
    const window = { day: '2026-01-01', cutAt, previous, snapshot: await snapshotNow() }
    let largest = 0
    const tree = await tx(pool, async (db) => {
      const query = db.query.bind(db)
      const seen = vi.spyOn(db, 'query').mockImplementation(async (...args: unknown[]) => {
        const result = await Reflect.apply(query, db, args)
        const values = result.rows.flatMap((row: object) => Object.values(row).flat())
        largest = Math.max(largest, values.length)
        return result
      })
      const { signal } = new AbortController()
      const made = await buildTree(db, { app, window, signal, onChunk: async () => {} })
      seen.mockRestore()
      return made
    })
    await pool.end()
    expect(tree).toMatchObject({ treeSize: 0, charged: 12_000 })
    expect(largest).toBe(1_000)
    await world.damage(`delete from ledger_entries where app_id = '${app.id}'`)
  })

  it('report their delay in a metric', async () => {
    const late = async (): Promise<number | undefined> =>
      (await world.metrics.getSingleMetric('tollgate_core_receipt_roots_late_seconds')?.get())
        ?.values[0]?.value
    expect(await late()).toBe(0)
    const midnight = Math.ceil(world.clock.now().getTime() / day) * day
    world.clock.set(new Date(midnight + 7_000_000))
    expect(await late()).toBe(7_000)
  })
})
