import { randomUUID } from 'node:crypto'
import { readFile, rm, writeFile } from 'node:fs/promises'
import { beforeAll, describe, expect, it } from 'vitest'
import { connectCore } from '../../../deploy/cli/client.ts'
import { begin, day, observedRate, serviceToken, until } from '../support.ts'
import { verifyReceipt } from '../../support/usage/receipt-verifier.ts'
import { tollgate } from './support.ts'
import {
  world,
  file,
  nextDay,
  rateAt,
  book,
  get,
  verify,
  claimsOf,
  failuresInBrowser,
  json,
  put,
  setUpReceipts,
} from './receipts-world.ts'

setUpReceipts()

describe('receipts', () => {
  it('prove a ticket provisionally on its day, and permanently afterwards', async () => {
    const ids = await book(3)
    const [id = ''] = ids
    expect((await get(id, 'early.json')).code).toBe(0)
    const early = await verify('early.json')
    expect(early.text).toContain('ok     Network cost: 8420000000001 wei × 3111.1 USD/ETH = ')
    // The receipt is complete on the day itself, with a provisional root.
    const running = world.clock.now().toISOString().slice(0, 10)
    expect(early.text).toContain('ok     Signature of the provisional root: By ')
    expect(early.text).toContain(
      `ok     App and day: App ${world.app.clientId}, ${running}, ticket `,
    )
    expect(early.text).toMatch(
      /ok {5}Place in the charge: [12] hashes lead from the ticket to the signed root /,
    )
    expect(early.text).toContain(
      '-      Place in the day: The root is provisional: it covers the tickets of one charge. Get the receipt again',
    )
    expect(early.code).toBe(0)
    const document = await json('early.json')
    expect(document).toMatchObject({ provisional: true, proof: { day: running, treeSize: 3 } })
    expect(claimsOf(document)).toMatchObject({ place: { day: running, provisional: true } })
    await verifyReceipt(document, await json('keys.json'))

    const ended = await nextDay()
    await get(id, 'first.json')
    const { code, text } = await verify('first.json')
    expect(text).toContain(`ok     App and day: App ${world.app.clientId}, ${ended}, ticket `)
    expect(text).toMatch(
      /ok {5}Place in the day: [12] hashes lead from the ticket to the signed root /,
    )
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
      expect(text).toContain(' of 2.\n')
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
      await operator.testClocks.advanceTestClock({ clientId: trial.clientId, move: by })
      world.clock.advance(1_000)
    }
    const of = { auth_id: `${trial.clientId}:ada` }
    const dayOf = (ahead: number) =>
      new Date(world.clock.now().getTime() + ahead * day).toISOString().slice(0, 10)
    const proves = async (id: string, expected: string, ending: string): Promise<void> => {
      await get(id, 'trial.json')
      const { text, code } = await verify('trial.json')
      expect(text).toContain(`ok     App and day: App ${trial.clientId}, ${expected}, ticket `)
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
    for (const id of before) await proves(id, days[0] ?? '', ' of 2.\n')
    const [first = ''] = after
    await proves(first, days[1] ?? '', 'The root is provisional')
    expect(claimsOf(await json('trial.json'))).toMatchObject({
      ticket: { signedAt: shown.replace('Z', '000Z') },
    })
    // A move within the day does not end it. Then the clock passes midnight while the real day
    // continues.
    await move(60)
    const [later = ''] = await book(1, of)
    await move(86_400)
    await build(days[1])
    for (const id of [...after, later]) await proves(id, days[1] ?? '', ' of 4.\n')
    const [last = ''] = await book(1, of)
    world.clock.advance(day)
    await build(days[2])
    await proves(last, days[2] ?? '', ' of 1.\n')
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
      'WRONG  Signature of the receipt',
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
      'WRONG  Place in the day',
      async () => {
        const { proof } = await json('b.json')
        await put('forged.json', { ...(await json('a.json')), proof })
      },
    ],
    [
      'a receipt with a place but without a proof',
      'WRONG  Place in the day: The receipt names place ',
      async () => {
        const { receipt } = await json('a.json')
        await put('forged.json', { receipt, proof: null, root: null })
      },
    ],
    [
      "a provisional root in place of the day's root",
      'WRONG  Signature of the root: Its type is tollgate-receipt-provisional-root+jwt',
      async () => {
        const { root } = await json('early.json')
        await put('forged.json', { ...(await json('a.json')), root })
      },
    ],
    [
      'a provisional receipt without its proof',
      'WRONG  Place in the day: The receipt names place ',
      async () => {
        const { receipt } = await json('early.json')
        await put('forged.json', { receipt, proof: null, root: null })
      },
    ],
    [
      'a provisional root of another charge',
      'WRONG  Charge: The root is that of charge ',
      async () => {
        const [other = ''] = await book(1)
        await get(other, 'other.json')
        const { proof, root } = await json('other.json')
        await put('forged.json', { ...(await json('early.json')), proof, root })
      },
    ],
    [
      'a root that is signed as a receipt',
      'WRONG  Signature of the root: Its type is tollgate-receipt+jwt',
      async () => {
        const a = await json('a.json')
        await put('forged.json', { ...a, root: a['receipt'] })
      },
    ],
    [
      'a truncated file',
      'WRONG  File: ',
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
      'The proof has another form',
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

  it('accepts receipts in the browser, and compares them with the listed root', async () => {
    for (const name of ['a.json', 'b.json', 'early.json'])
      expect(await failuresInBrowser(name)).toEqual([])
    const { root } = await json('a.json')
    expect(await failuresInBrowser('a.json', { listed: String(root) })).toEqual([])
    const other = ['Root that the service lists']
    expect(await failuresInBrowser('a.json', { listed: 'e30.e30.e30' })).toEqual(other)
    await put('no-keys.json', { keys: [] })
    expect(await failuresInBrowser('a.json', { keys: 'no-keys.json' })).toEqual([
      'Signature of the receipt',
    ])
  })

  it('calls a receipt of an unknown key neither right nor wrong, and requires --jwks', async () => {
    const keys = await json('keys.json')
    await put('other-keys.json', { keys: [] })
    const other = ['--jwks', file('other-keys.json')]
    const { code, text } = await tollgate('receipt', 'verify', file('a.json'), ...other)
    expect(text).toMatch(/^- {6}Signature of the receipt: .* is not among the 0 trusted keys: /)
    expect(text).toContain('the receipt could not be checked, so it is neither right nor wrong')
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
    expect(whole.text).toContain('ok     Kept root: ')
    expect(whole.text).toContain('ok     Chain of roots: 3 roots, each names the one before')
    expect(whole.code).toBe(0)
    const { roots } = (await json('roots.json')) as { roots: unknown[] }
    await put('gap.json', { roots: roots.toSpliced(1, 1) })
    const gap = await verify('a.json', '--roots', file('gap.json'))
    expect(gap.text).toContain('It does not follow the root before it')
    expect(gap.code).toBe(1)
    await put('short.json', { roots: roots.slice(0, 1) })
    const early = await verify('early.json', '--roots', file('roots.json'))
    expect(early.text).toContain('WRONG  Place in the day: The root is provisional')
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
