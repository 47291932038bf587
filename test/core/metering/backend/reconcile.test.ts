import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { authId } from '../../../../core/shared/ids.ts'
import { silentLog } from '../../../../core/lib/log.ts'
import { createEmitter } from '../../../../core/metering/backend/emit.ts'
import { createReconciliation } from '../../../../core/metering/backend/reconciliation.ts'
import { type AppDay, createComparison } from '../../../../core/metering/backend/comparison.ts'
import { type FakeOpenMeter, startOpenMeter } from '../../../fakes/openmeter/openmeter.ts'
import { outcome, until } from '../../support.ts'
import { createWorld, envelope, recordRate, type World } from '../harness.ts'
import { startSender } from './harness.ts'

let world: World
let fake: FakeOpenMeter
let sender: Awaited<ReturnType<typeof startSender>>
const now = () => world.clock.at

beforeEach(async () => {
  world = await createWorld('2026-09-14T10:20:00Z')
  fake = await startOpenMeter()
  sender = await startSender({ pool: world.pool, now, url: fake.urls.v3 })
  await sender.prepared()
})
afterEach(async () => {
  await sender.backend.stop()
  await world.stop()
  await fake.stop()
})

const instants = [
  '2026-09-12T23:59:59.999999Z',
  '2026-09-13T00:00:00Z',
  '2026-09-13T12:00:00Z',
  '2026-09-14T08:15:00Z',
  '2026-09-14T10:19:00Z',
]

/** Ingests and sends tickets of two users over three days. */
async function seed(): Promise<void> {
  for (const at of instants) await recordRate(world.pool, at)
  const metering = world.metering({ emitter: createEmitter() })
  let sequence_number = 0
  for (const [i, at] of instants.entries()) {
    for (const user of ['ada', 'bob']) {
      await metering.ingestEvents([
        envelope(
          {
            auth_id: authId(world.app.clientId, user),
            current_time: at,
            computed_fee: `${1_000_000_000_000_001 + i}`,
            sequence_number: sequence_number++,
          },
          { id: `${user} ${i}` },
        ),
      ])
    }
  }
  await sender.outbox.pass()
}

const make = () =>
  createReconciliation({
    pool: world.pool,
    backend: sender.backend,
    log: silentLog(),
    metrics: sender.metrics,
    now,
  })
const metric = async (name: string) =>
  (await sender.metrics.metrics()).split('\n').find((line) => line.startsWith(name))

async function compared(from: string, to: string, clientId?: string): Promise<AppDay[]> {
  const { spanOf, compare } = createComparison({ pool: world.pool, backend: sender.backend, now })
  const days: AppDay[] = []
  for await (const day of compare(await spanOf({ clientId, from, to }))) days.push(day)
  return days
}

describe('reconciling', () => {
  it('finds equal users and days, and for today only the settled hours', async () => {
    await seed()
    const days = await compared('2026-09-12', '2026-09-14')
    expect(
      days.map(({ day, users }) => [
        day,
        users.length,
        users.map((user) => user.ownTickets),
        users.some((user) => user.drifts),
      ]),
    ).toEqual([
      ['2026-09-12', 2, [1n, 1n], false],
      ['2026-09-13', 2, [2n, 2n], false],
      ['2026-09-14', 2, [1n, 1n], false],
    ])
    expect(days[1]?.users[0]).toMatchObject({
      backendTickets: 2,
      ownCost: 6000000000000015000n,
      backendMicros: expect.closeTo(6000000.000000015, 6),
    })
    expect(new Set(days[1]?.users.map((user) => user.externalUserId))).toEqual(
      new Set(['ada', 'bob']),
    )
  })

  it("finds missing and surplus tickets, and another user's", async () => {
    await seed()
    const events = [...fake.state.events]
    const lost = events.find(([, event]) => event.id === 'ada 2')
    const moved = events.find(([, event]) => event.id === 'bob 0')
    if (!lost || !moved) throw new Error('not sent')
    fake.state.events.delete(lost[0])
    fake.state.events.set(moved[0], { ...moved[1], subject: 'eu_stranger' })
    const days = await compared('2026-09-12', '2026-09-13', world.app.clientId)
    const drifting = days.flatMap(({ day, users }) =>
      users
        .filter((user) => user.drifts)
        .map((user) => [
          day,
          user.externalUserId ?? user.subject,
          Number(user.ownTickets),
          user.backendTickets,
        ]),
    )
    expect(drifting.toSorted()).toEqual([
      ['2026-09-12', 'bob', 1, 0],
      ['2026-09-12', 'eu_stranger', 0, 1],
      ['2026-09-13', 'ada', 2, 1],
    ])
  })

  it('tolerates float rounding, but no difference of a micro', async () => {
    await seed()
    const [key, event] = [...fake.state.events][0] ?? []
    if (!key || !event) throw new Error('not sent')
    const change = async (by: number) => {
      fake.state.events.set(key, {
        ...event,
        data: {
          ...event.data,
          network_fee_usd_micros: Number(event.data['network_fee_usd_micros']) + by,
        },
      })
      return (await compared('2026-09-12', '2026-09-12'))
        .flatMap(({ users }) => users)
        .filter((user) => user.drifts).length
    }
    expect(await change(0.9)).toBe(0)
    expect(await change(1.1)).toBe(1)
  })

  it('rejects impossible days, unknown apps, and an unreachable backend', async () => {
    const { spanOf } = createComparison({ pool: world.pool, backend: sender.backend, now })
    const ask = (from: string, to: string, clientId?: string) =>
      outcome(spanOf({ clientId, from, to }))
    expect(await ask('2026-09-31', '2026-09-14')).toBe('REQUEST_INVALID')
    expect(await ask('2026-09-14', '2026-09-13')).toBe('REQUEST_INVALID')
    expect(await ask('2026-09-14', '2026-09-15')).toBe('REQUEST_INVALID')
    expect(await ask('2026-06-13', '2026-09-13')).toBe('REQUEST_INVALID')
    expect(await ask('2026-09-14', '2026-09-14', `app_${'0'.repeat(24)}`)).toBe('NOT_FOUND')
    await seed()
    fake.faults = () => 503
    expect(await outcome(compared('2026-09-12', '2026-09-12'))).toBe('METERING_UNREACHABLE')
  })

  it('runs once an hour in one core, and every core exports the result', async () => {
    await seed()
    fake.state.events.delete([...fake.state.events.keys()][0] ?? '')
    const [one, other] = [
      make(),
      createReconciliation({
        pool: world.pool,
        backend: sender.backend,
        log: silentLog(),
        metrics: (await startSender({ pool: world.pool, now, url: fake.urls.v3 })).metrics,
        now,
      }),
    ]
    fake.requests.length = 0
    await Promise.all([one.tend(), other.tend(), one.tend()])
    await until(
      async () => (await metric('tollgate_metering_drift_user_days'))?.endsWith(' 1') ?? false,
    )
    expect(await metric('tollgate_metering_backend_up')).toMatch(/ 1$/)
    expect(await metric('tollgate_metering_drift_tickets')).toMatch(/ 1$/)
    expect(await metric('tollgate_metering_drift_usd_micros')).toMatch(/ 3000000(\.0+\d*)?$/)
    expect(await metric('tollgate_metering_drift_checked_timestamp_seconds')).toMatch(
      new RegExp(` ${now().getTime() / 1000}$`),
    )
    const asked = fake.requests.filter(({ path }) => path.endsWith('/query')).length
    expect(asked).toBe(6)
    await Promise.all([one.tend(), other.tend()])
    expect(fake.requests.filter(({ path }) => path.endsWith('/query'))).toHaveLength(asked)
    await Promise.all([one.stop(), other.stop()])
  })
})
