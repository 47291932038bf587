import { mkdtemp, readdir, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import { buildRoots, tollgate } from '../../books/support.ts'
import { day, serviceToken } from '../../support.ts'
import {
  type OwnersWorld,
  differences,
  expectRightBooks,
  perTicket,
  startOwners,
  ticketOf,
} from './owner-world.ts'

/** Owner charges of tickets that take another way than the stream: redrive, import, archive. */

let world: OwnersWorld
let folder: string

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'tollgate-owners-'))
  const archive = join(folder, 'archive')
  world = await startOwners({ RETENTION_MONTHS: '1', ARCHIVE_DIR: archive })
})
afterAll(async () => {
  await world.stop()
  await rm(folder, { recursive: true })
})

async function run(...argv: string[]): Promise<string> {
  const { code, text } = await tollgate(...argv)
  expect([code, text]).toEqual([0, expect.anything()])
  return text
}

describe('a ticket out of quarantine', () => {
  it('is charged to the owner once, when it is attributed to a user', async () => {
    const shop = await world.ownedApp()
    const nameless = ticketOf(shop, '', { auth_id: '' })
    await world.ingestBytes(nameless)
    expect(await world.accountOf(shop)).toBeNull()
    const [event] = JSON.parse(await run('quarantine', 'list', '--json')).events
    await run('quarantine', 'attribute', event.id, '--app', shop.clientId, '--user', 'zoe')
    await world.ingestBytes(nameless)
    expect((await world.accountOf(shop))?.charges).toEqual([
      { clientId: shop.clientId, amount: perTicket, tickets: 1 },
    ])
    await expectRightBooks()
  })
})

describe('imported tickets', () => {
  it('cost the owner nothing, because the deployment that booked them charged it', async () => {
    const shop = await world.ownedApp()
    await world.ingestBytes(ticketOf(shop), ticketOf(shop, 'bob'))
    const file = join(folder, 'shop.ndjson.zst')
    await run('export', '--app', shop.clientId, '--out', file)
    const before = await world.accountOf(shop)
    const to = await startOwners()
    try {
      const other = await to.ownedApp()
      await run('import', file, '--app', other.clientId)
      expect(await to.accountOf(other)).toBeNull()
      await to.ingestBytes(ticketOf(other))
      expect((await to.accountOf(other))?.consumed).toBe(perTicket)
      await expectRightBooks()
    } finally {
      await to.stop()
      vi.stubEnv('CORE_TARGET', world.core.target)
      vi.stubEnv('CORE_TOKEN', serviceToken)
    }
    await run('import', file)
    expect(await world.accountOf(shop)).toEqual(before)
    await expectRightBooks()
  })
})

describe('an archived month', () => {
  it('keeps what the owner paid for it, and lets verify find an altered share', async () => {
    await world.operator.metering.recordRate({
      usdPerEth: '3000',
      source: 'desk',
      observedAt: '2026-01-03T10:00:00Z',
    })
    const shop = await world.ownedApp()
    const old = { current_time: '2026-01-03T10:01:00Z' }
    // One batch makes one charge per user, so charges span months.
    await world.ingestBytes(
      ticketOf(shop, 'ada', old),
      ticketOf(shop),
      ticketOf(shop, 'bob', old),
      ticketOf(shop, 'bob', old),
    )
    const before = await world.accountOf(shop)
    expect(before?.consumed).toBe(4n * perTicket)
    world.clock.advance(day)
    await buildRoots(world)
    expect(await run('archive')).toContain(`2026-01  ${shop.clientId}  3 `)
    expect(await readdir(join(folder, 'archive'))).toHaveLength(1)
    expect(await world.rows('select 1 from archived_charges where owner_attos > 0')).toHaveLength(2)
    expect(await world.accountOf(shop)).toEqual(before)
    await expectRightBooks()
    await world.damage('update archived_charges set owner_attos = owner_attos + 1')
    const found = differences((await tollgate('verify')).text)
    expect(found).toHaveLength(2)
    for (const line of found) expect(line).toMatch(/DIFFERENCE charges .* owner_attos is .*by -1$/)
    await world.damage('update archived_charges set owner_attos = owner_attos - 1')
    await expectRightBooks()
  })
})
