import { randomUUID } from 'node:crypto'
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import {
  correctCounts,
  countCalls,
  findLenderLimits,
  loadTallies,
  saveTallies,
} from '../../../../core/balances/limits/enforcement.ts'
import type { LimitName } from '../../../../core/balances/limits/limits.ts'
import { forgetSessions } from '../../../../core/balances/limits/store.ts'
import { sessionIdleMs } from '../../../../core/balances/limits/tally.ts'
import { lockAccounts } from '../../../../core/balances/accounts/read-store.ts'
import { microsToAttos, usdAttos, usdMicros } from '../../../../core/lib/money.ts'
import { tx } from '../../../../core/lib/sql.ts'
import { type AppId, type UserId, appId, userId } from '../../../../core/shared/ids.ts'
import type { Limits } from '../../../../proto/gen/ts-proto/tollgate/balances/v1/limits.ts'
import { type TestApp, type TestCore, second, startTestCore } from '../../support.ts'

let core: TestCore
let app: TestApp
beforeAll(async () => {
  core = await startTestCore()
  app = await core.newApp()
})
afterAll(() => core.stop())

interface Subject {
  readonly externalUserId: string
  readonly appId: AppId
  readonly userId: UserId
  readonly keyId: string
}

let user: Subject
let names = 0
beforeEach(async () => {
  user = await newUser()
})

async function newUser(): Promise<Subject> {
  const externalUserId = `user-${(names += 1)}`
  const name = { clientId: app.clientId, externalUserId }
  const { user: created } = await core.as(app.basic).upsertUser(name)
  const { keyId } = await core.as(app.basic).createKey(name)
  const { rows } = await core.sql.query('select app_id from end_users where id = $1', [created?.id])
  return {
    externalUserId,
    keyId,
    appId: appId(String(rows[0]?.app_id)),
    userId: userId(created?.id ?? ''),
  }
}

const set = ({ externalUserId }: Subject, limits: Partial<Limits>, keyId?: string) =>
  core.as(app.basic).updateLimits({
    clientId: app.clientId,
    externalUserId,
    keyId,
    limits: { maxPrices: [], ...limits },
  })

interface Attempt {
  readonly micros?: bigint
  readonly session?: string
  readonly keyId?: string | null
  readonly of?: Subject
}

const callOf = ({ micros = 1n, session = 's1', keyId = null, of = user }: Attempt) => ({
  appId: of.appId,
  userId: of.userId,
  keyId,
  sessionId: session,
  sessionType: 'live',
  app: 'acme/echo',
  price: { wei: 1300n, units: 1n },
  amount: microsToAttos(usdMicros(micros)),
})

/** Reserves calls as core does: in one transaction, with the balances locked. */
const reserve = (attempts: readonly Attempt[]): Promise<(LimitName | 'counted')[]> =>
  tx(core.sql, async (db) => {
    const at = core.clock.now()
    const calls = attempts.map(callOf)
    await lockAccounts(db, [...new Map(calls.map((call) => [call.userId, call])).values()])
    const tallies = await loadTallies(db, calls, at)
    const answers = calls.map((call) => {
      const breach = tallies?.breach(call, at)
      if (breach) return breach.limit
      tallies?.count(call, at)
      return 'counted'
    })
    if (tallies) await saveTallies(db, tallies)
    return answers
  })

const attempt = async (one: Attempt = {}): Promise<LimitName | 'counted'> =>
  (await reserve([one]))[0] ?? 'counted'

/** Corrects a call that was counted by its bound to its cost. */
const settle = ({ micros, cost, ...one }: Attempt & { cost: bigint }, at = core.clock.now()) =>
  tx(core.sql, async (db) => {
    const { amount: from, ...call } = callOf({ ...one, ...(micros && { micros }) })
    await lockAccounts(db, [call])
    const to = microsToAttos(usdMicros(cost))
    await correctCounts(db, [{ ...call, from, to, authorisedAt: at }])
  })

const minute = 60_000

describe('limits in core', () => {
  it('do not apply to users without limits', async () => {
    expect(await tx(core.sql, (db) => loadTallies(db, [callOf({})], core.clock.now()))).toBeNull()
    expect(await attempt({ micros: 10n ** 15n })).toBe('counted')
  })

  it('apply to the micro and across calls, until midnight in UTC', async () => {
    await set(user, { usdMicrosPerDay: '30' })
    expect(await attempt({ micros: 20n })).toBe('counted')
    expect(await attempt({ micros: 11n })).toBe('usd_per_day')
    expect(await attempt({ micros: 10n })).toBe('counted')
    expect(await attempt({ micros: 1n })).toBe('usd_per_day')
    const midnight = new Date(core.clock.now())
    midnight.setUTCHours(24, 0, 0, 0)
    core.clock.set(new Date(midnight.getTime() - 1))
    expect(await attempt()).toBe('usd_per_day')
    core.clock.set(midnight)
    expect(await attempt({ micros: 30n })).toBe('counted')
  })

  it('apply to a session across days', async () => {
    await set(user, { usdMicrosPerSession: '30' })
    expect(await attempt({ micros: 30n })).toBe('counted')
    core.clock.advance(86_400_000)
    expect(await attempt()).toBe('usd_per_session')
    expect(await attempt({ session: 's2', micros: 30n })).toBe('counted')
  })

  it('apply per minute of the clock', async () => {
    await set(user, { callsPerMinute: 2 })
    expect(await reserve([{}, {}, {}])).toEqual(['counted', 'counted', 'calls_per_minute'])
    core.clock.set(new Date((Math.floor(core.clock.now().getTime() / minute) + 1) * minute - 1))
    expect(await attempt()).toBe('calls_per_minute')
    core.clock.advance(1)
    expect(await reserve([{}, {}, {}])).toEqual(['counted', 'counted', 'calls_per_minute'])
  })

  it('apply to sessions with a call within 60 s', async () => {
    await set(user, { concurrentSessions: 2 })
    expect(await reserve([{ session: 'a' }, { session: 'b' }, { session: 'c' }])).toEqual([
      'counted',
      'counted',
      'concurrent_sessions',
    ])
    core.clock.advance(sessionIdleMs - 1)
    expect(await attempt({ session: 'a' })).toBe('counted')
    expect(await attempt({ session: 'c' })).toBe('concurrent_sessions')
    core.clock.advance(1)
    expect(await attempt({ session: 'c' })).toBe('counted')
    expect(await attempt({ session: 'b' })).toBe('concurrent_sessions')
  })

  it('return when they end', async () => {
    await set(user, { concurrentSessions: 1, maxPrices: [] })
    const began = core.clock.now()
    await attempt({ session: 'a' })
    core.clock.advance(1_000)
    const at = core.clock.now()
    const call = callOf({ session: 'b' })
    const tallies = await tx(core.sql, (db) => loadTallies(db, [call], at))
    expect(tallies?.breach(call, at)).toEqual({
      limit: 'concurrent_sessions',
      endsAt: new Date(began.getTime() + sessionIdleMs),
    })
  })

  it('apply to prices', async () => {
    await set(user, { maxPrices: [{ type: 'live', app: '', maxWei: '1299' }] })
    expect(await attempt()).toBe('max_price')
    await set(user, { maxPrices: [{ type: 'live', app: '', maxWei: '1300' }] })
    expect(await attempt()).toBe('counted')
  })

  it('apply to both user and key', async () => {
    await set(user, { usdMicrosPerDay: '30' })
    await set(user, { usdMicrosPerDay: '20' }, user.keyId)
    const { keyId } = user
    expect(await attempt({ keyId, micros: 20n })).toBe('counted')
    expect(await attempt({ keyId })).toBe('usd_per_day')
    expect(await attempt({ keyId: randomUUID(), micros: 10n })).toBe('counted')
    expect(await attempt()).toBe('usd_per_day')
  })

  it('apply to many users in one batch', async () => {
    const other = await newUser()
    const free = await newUser()
    await set(user, { callsPerMinute: 1 })
    await set(other, { callsPerMinute: 2 })
    const calls = [user, other, free, user, other, free, other].map((of) => ({ of }))
    const [yes, no] = ['counted', 'calls_per_minute']
    expect(await reserve(calls)).toEqual([yes, yes, yes, no, yes, yes, no])
  })

  it('are never exceeded by concurrent reservations', async () => {
    await set(user, { usdMicrosPerDay: '70', callsPerMinute: 15 })
    const parallel = (micros: bigint) =>
      Promise.all(Array.from({ length: 20 }, (_, i) => attempt({ micros, session: `s${i}` })))
    const first = await parallel(10n)
    expect(first.filter((answer) => answer === 'counted')).toHaveLength(7)
    core.clock.advance(86_400_000)
    const second = await parallel(1n)
    expect(second.filter((answer) => answer === 'counted')).toHaveLength(15)
  })
})

describe('counts', () => {
  it('change to the cost when the ticket comes, for user, key and session', async () => {
    const { keyId } = user
    await set(user, { usdMicrosPerDay: '30', usdMicrosPerSession: '30' })
    await set(user, { usdMicrosPerDay: '30' }, keyId)
    expect(await attempt({ keyId, micros: 30n })).toBe('counted')
    expect(await attempt({ keyId })).toBe('usd_per_session')
    await settle({ keyId, micros: 30n, cost: 29n })
    expect(await attempt({ keyId, micros: 2n })).toBe('usd_per_session')
    expect(await attempt({ keyId, micros: 1n })).toBe('counted')
    expect(await attempt({ keyId })).toBe('usd_per_session')
    expect(await attempt({ keyId, session: 's2' })).toBe('usd_per_day')
  })

  it('keep other days unchanged and never become negative', async () => {
    await set(user, { usdMicrosPerDay: '30' })
    const yesterday = core.clock.now()
    await attempt({ micros: 30n })
    core.clock.advance(86_400_000)
    await attempt({ micros: 10n })
    await settle({ micros: 30n, cost: 0n }, yesterday)
    expect(await attempt({ micros: 21n })).toBe('usd_per_day')
    await settle({ micros: 50n, cost: 0n })
    expect(await attempt({ micros: 30n })).toBe('counted')
    expect(await attempt()).toBe('usd_per_day')
  })

  it('ignore corrections before limits are set', async () => {
    await settle({ micros: 30n, cost: 1n })
    await set(user, { usdMicrosPerDay: '30' })
    expect(await attempt({ micros: 30n })).toBe('counted')
  })

  it('include reported calls, even beyond the limit', async () => {
    await set(user, { usdMicrosPerDay: '30', callsPerMinute: 100 })
    const at = core.clock.now()
    await tx(core.sql, (db) => countCalls(db, [callOf({ micros: 31n })], at))
    expect(await attempt()).toBe('usd_per_day')
  })

  it('start with unsettled authorisations when the first limit is set', async () => {
    const at = core.clock.now()
    const insert = (state: string, session: string, key: string | null) =>
      core.sql.query(
        `insert into authorisations (app_id, user_id, session_id, sequence_number, signed_micros, sidecar_id, key_id,
                                     session_type, bound_attos, authorised_at, state)
         values ($1, $2, $3, 0, 0, 'sidecar', $4, 'live', 10000000000000, $5, $6)`,
        [user.appId, user.userId, session, key, at, state],
      )
    await insert('pending', 's1', null)
    await insert('lost', 's1', user.keyId)
    await insert('released', 's1', null)
    await set(user, { usdMicrosPerDay: '21', concurrentSessions: 1 })
    await set(user, { usdMicrosPerDay: '11' }, user.keyId)
    expect(await attempt({ session: 's2' })).toBe('concurrent_sessions')
    expect(await attempt({ micros: 2n })).toBe('usd_per_day')
    expect(await attempt({ keyId: user.keyId, micros: 1n })).toBe('counted')
    expect(await attempt({ keyId: user.keyId, micros: 1n })).toBe('usd_per_day')
  })

  it('stay when limits change, and end when limits are removed', async () => {
    await set(user, { usdMicrosPerDay: '30' })
    await attempt({ micros: 30n })
    await set(user, { usdMicrosPerDay: '31', callsPerMinute: 5 })
    expect(await attempt({ micros: 2n })).toBe('usd_per_day')
    await core.as(app.basic).deleteLimits({ clientId: app.clientId, ...user, keyId: undefined })
    expect(await attempt({ micros: 2n })).toBe('counted')
    await set(user, { usdMicrosPerDay: '30' })
    expect(await attempt({ micros: 30n })).toBe('counted')
  })

  it('stay while the user is inactive', async () => {
    await set(user, { callsPerMinute: 1 })
    await set(user, { callsPerMinute: 1 }, user.keyId)
    await reserve([{ keyId: user.keyId }])
    const name = { clientId: app.clientId, externalUserId: user.externalUserId }
    await core.as(app.basic).deactivateUser(name)
    await core.as(app.basic).updateUser({ ...name, status: 'active' })
    expect(await attempt()).toBe('calls_per_minute')
  })
})

it('deletes sessions without a recent call, at most `limit` at once', async () => {
  await set(user, { usdMicrosPerSession: '30' })
  await reserve([{ session: 'a' }, { session: 'b' }, { session: 'c' }])
  core.clock.advance(second)
  const before = core.clock.now()
  await reserve([{ session: 'c', micros: 29n }])
  expect(await forgetSessions(core.sql, before, 1)).toBe(1)
  await forgetSessions(core.sql, before, 1_000)
  expect(
    await reserve([
      { session: 'a', micros: 30n },
      { session: 'b', micros: 30n },
    ]),
  ).toEqual(['counted', 'counted'])
  expect(await attempt({ session: 'c' })).toBe('usd_per_session')
})

describe('findLenderLimits', () => {
  it('finds users with limits or limited keys, and the ceilings of users', async () => {
    const withKey = await newUser()
    const free = await newUser()
    await set(user, { maxPrices: [{ type: 'live', app: '', maxWei: '5' }] })
    await set(withKey, { maxPrices: [{ type: 'fixed', app: 'a', maxWei: '6' }] }, withKey.keyId)
    const limits = await tx(core.sql, (db) => findLenderLimits(db, [user, withKey, free]))
    expect([user, withKey, free].map(({ userId: id }) => limits.isLimited(id))).toEqual([
      true,
      true,
      false,
    ])
    expect(limits.ceilings(user.userId)).toEqual([{ type: 'live', app: '', maxWei: 5n }])
    expect(limits.ceilings(withKey.userId)).toEqual([])
  })
})

it('ignores a correction of zero', async () => {
  await set(user, { usdMicrosPerDay: '30' })
  const same = { ...callOf({}), from: usdAttos(1n), to: usdAttos(1n), authorisedAt: new Date() }
  await tx(core.sql, (db) => correctCounts(db, [same]))
  expect(await attempt({ micros: 30n })).toBe('counted')
})
