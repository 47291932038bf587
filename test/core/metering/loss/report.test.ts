import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { DomainError } from '../../../../proto/errors.ts'
import { createApps } from '../../../../core/identity/apps/apps.ts'
import { usdMicros } from '../../../../core/lib/money.ts'
import { createLedger } from '../../../../core/balances/ledger/ledger.ts'
import { createPlans } from '../../../../core/plans/service.ts'
import { createSecrets } from '../../../../core/shared/secrets.ts'
import { createWorld, envelope, recordRate, type World } from '../harness.ts'

let world: World
let metering: ReturnType<World['metering']>
beforeEach(async () => {
  world = await createWorld()
  await recordRate(world.pool, '2026-09-14T10:15:00Z')
  metering = world.metering({ fixed: false })
})
afterEach(() => world.stop())

type Data = Parameters<typeof envelope>[0]
interface Of {
  readonly clientId?: string
  readonly user?: string
  readonly session: string
  readonly fees?: readonly string[]
  readonly data?: Data
}

/** Ingests tickets of one session with these sequence numbers, the nth with the nth fee. */
const arrive = (
  numbers: readonly number[],
  { clientId = world.app.clientId, user = 'alice', session, fees = [], data }: Of,
) =>
  metering.ingestEvents(
    numbers.map((sequence_number, i) =>
      envelope({
        auth_id: `${clientId}:${user}`,
        session_id: session,
        sequence_number,
        computed_fee: fees[i] ?? '120000',
        ...data,
      }),
    ),
  )

async function settle(): Promise<void> {
  for (const _ of [1, 2]) {
    await metering.watchLoss()
    world.clock.at = new Date(world.clock.at.getTime() + 300_000)
  }
  await metering.watchLoss()
}

const otherApp = () =>
  createApps({
    pool: world.pool,
    plans: createPlans({ ledger: createLedger() }),
    now: () => world.clock.at,
    quota: { requireRoom: async () => {} },
    ownByPlatform: async () => {},
    putOwner: async () => {},
    secrets: createSecrets({ current: '1', byId: new Map([['1', Buffer.alloc(32, 7)]]) }),
  }).create({ name: 'other', included: usdMicros(0n), isPlatformOwned: false })
const ask = (query: Partial<Parameters<typeof metering.losses.ofApp>[1]> = {}) =>
  metering.losses.ofApp(world.app.id, { limit: 0, ...query })

describe('estimated cost of lost tickets', () => {
  it("is the lost tickets times the session's exact mean cost, rounded up to a micro", async () => {
    // 1 wei at 3000 USD is 3000 attos; three tickets of 10^9 + 10^9 + 1 wei: a mean of
    // 2000000001000 attos.
    await arrive([0, 1, 3], { session: 'a', fees: ['1000000000', '1000000000', '1'] })
    // A mean of exactly 3 micros, five times.
    await arrive([0, 6], { session: 'b', fees: ['1000000000', '1000000000'] })
    await settle()
    const { sessions, totals } = await ask()
    expect(
      sessions.map(({ sessionId, lost, estimate }) => [sessionId, lost, estimate]).toSorted(),
    ).toEqual([
      ['a', 1n, 3n],
      ['b', 5n, 15n],
    ])
    expect(totals).toEqual({ sessions: 2n, lost: 6n, estimate: 18n, forked: 0n, late: 0n })
  })

  it('is exact for fees beyond a float', async () => {
    const fee = 10n ** 20n - 1n
    await arrive([0, 1, 3], { session: 'a', fees: [String(fee), '0', '0'] })
    await settle()
    const [session] = (await ask()).sessions
    const whole = 3n * 10n ** 12n
    expect(session?.estimate).toBe((fee * 3000n + whole - 1n) / whole)
  })

  it('is unknown, and zero in the totals, until a ticket of the session has its price', async () => {
    await arrive([0, 2], { session: 'a', data: { current_time: '2026-09-14T09:00:00Z' } })
    await settle()
    expect(await ask()).toMatchObject({
      sessions: [{ lost: 1n, estimate: null }],
      totals: { lost: 1n, estimate: 0n },
    })
  })
})

describe('loss report', () => {
  it('returns each session once, in pages, the newest first', async () => {
    const minutes = [1, 2, 2, 3, 4]
    for (const [i, minute] of minutes.entries()) {
      await arrive([0, 2], {
        session: `s ${i}`,
        user: i % 2 ? 'ben' : 'ann',
        data: { current_time: `2026-09-14T10:1${minute}:00.000001Z` },
      })
    }
    await settle()
    const seen: string[] = []
    let cursor: string | undefined
    do {
      const page = await ask({ limit: 2, cursor })
      expect(page.totals.lost).toBe(5n)
      seen.push(...page.sessions.map(({ sessionId }) => sessionId))
      cursor = page.nextCursor
    } while (cursor !== undefined)
    expect(seen).toHaveLength(5)
    expect([seen.at(0), seen.at(1), new Set(seen.slice(2, 4)), seen.at(4)]).toEqual([
      's 4',
      's 3',
      new Set(['s 1', 's 2']),
      's 0',
    ])
  })

  it('covers sessions that began in the period, both dates included', async () => {
    await arrive([0, 2], { session: 'then', data: { current_time: '2026-08-31T23:59:59.999Z' } })
    await arrive([0, 2], { session: 'now' })
    await settle()
    const names = async (query: Parameters<typeof ask>[0]) =>
      (await ask(query)).sessions.map(({ sessionId }) => sessionId)
    expect(await names({ startDate: '2026-08-31', endDate: '2026-08-31' })).toEqual(['then'])
    expect(await names({ startDate: '2026-09-01' })).toEqual(['now'])
    expect(await names({ endDate: '2026-08-31T23:59:59.998Z' })).toEqual([])
    expect(await names({})).toEqual(['now', 'then'])
  })

  it.each([
    [{ startDate: 'yesterday' }],
    [{ endDate: '2026-02-31' }],
    [{ startDate: '2026-09-02', endDate: '2026-09-01' }],
    [{ limit: 1001 }],
    [{ cursor: 'x' }],
    [{ cursor: Buffer.from('1 2 3').toString('base64url') }],
  ])('rejects the query %o', async (query) => {
    await expect(ask(query)).rejects.toThrowError(DomainError)
  })

  it('lists at most a hundred ranges and reports that there are more', async () => {
    await arrive(
      Array.from({ length: 103 }, (_, i) => i * 2 + 1),
      { session: 'a' },
    )
    await settle()
    const [session] = (await ask()).sessions
    expect(session).toMatchObject({ lost: 103n, missingMore: true })
    expect(session?.missing).toHaveLength(100)
  })

  it('covers one app, or all apps and unattributed events for the operator', async () => {
    const other = await otherApp()
    await arrive([0, 4], { session: 'mine', fees: ['1000000000', '1000000000'] })
    await arrive([0, 2], { session: 'theirs', clientId: other.clientId })
    await metering.ingestEvents([
      envelope({ auth_id: '' }),
      envelope({ auth_id: `app_${'0'.repeat(24)}:x` }),
      envelope({ computed_fee: '-1' }),
    ])
    await settle()
    expect(
      (await ask()).sessions.map(({ sessionId, externalUserId }) => [sessionId, externalUserId]),
    ).toEqual([['mine', 'alice']])
    const all = await metering.losses.report(undefined, {})
    expect(all).toMatchObject({
      totals: { sessions: 2n, lost: 4n, estimate: 10n },
      sessions: [],
      unattributed: { events: 2n, fee: 240_000n },
      apps: [
        { clientId: world.app.clientId, lost: 3n, estimate: 9n },
        { clientId: other.clientId, lost: 1n, estimate: 1n },
      ],
    })
    expect(await metering.losses.report(other.clientId, {})).toMatchObject({
      totals: { lost: 1n },
      apps: [{ clientId: other.clientId }],
      sessions: [{ sessionId: 'theirs' }],
    })
    await expect(metering.losses.report(`app_${'0'.repeat(24)}`, {})).rejects.toMatchObject({
      reason: 'NOT_FOUND',
    })
    const metric = async (name: string) =>
      (await world.metric(`${name}{`)).map((line) => line.replace('{process="test"}', ''))
    const open = (name: string) => world.metric(`tollgate_metering_quarantine_${name}{reason="un`)
    expect(await open('open')).toEqual([
      'tollgate_metering_quarantine_open{reason="unattributed",process="test"} 1',
      'tollgate_metering_quarantine_open{reason="unknown_client",process="test"} 1',
    ])
    expect(await open('open_wei')).toEqual([
      'tollgate_metering_quarantine_open_wei{reason="unattributed",process="test"} 120000',
      'tollgate_metering_quarantine_open_wei{reason="unknown_client",process="test"} 120000',
    ])
    expect(await metric('tollgate_metering_lost_estimated_usd')).toEqual([
      'tollgate_metering_lost_estimated_usd 0.00001',
    ])
  })
})
