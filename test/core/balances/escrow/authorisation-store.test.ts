import { randomUUID } from 'node:crypto'
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { escrowStore as store } from '../../../../core/balances/escrow/store.ts'
import type { NewAuthorisation, PriorCall } from '../../../../core/balances/escrow/port.ts'
import { totals } from '../../../../core/balances/escrow/session-sums.ts'
import { usdAttos } from '../../../../core/lib/money.ts'
import { appId, userId } from '../../../../core/shared/ids.ts'
import { type TestCore, begin, startTestCore } from '../../support.ts'

let core: TestCore
let user: { appId: ReturnType<typeof appId>; userId: ReturnType<typeof userId> }
beforeAll(async () => {
  core = await startTestCore()
})
afterAll(() => core.stop())
beforeEach(async () => {
  const app = await core.newApp()
  await core.as().getAccess({ clientId: app.clientId, externalUserId: 'ada' })
  const { rows } = await core.sql.query<{ app_id: string; id: string }>(
    `select u.app_id, u.id from end_users u join clients c on c.app_id = u.app_id and c.kind = 'public'
     where c.client_id = $1 and u.external_user_id = 'ada'`,
    [app.clientId],
  )
  user = { appId: appId(rows[0]?.app_id ?? ''), userId: userId(rows[0]?.id ?? '') }
})

const micros = 1_773_144_000_250_000n
const call = (sequence: bigint, more: Partial<NewAuthorisation> = {}): NewAuthorisation => ({
  ...user,
  sessionId: 's "1"\\',
  sequence,
  signedMicros: micros + sequence,
  sidecarId: 'sidecar-1',
  keyId: null,
  sessionType: 'live',
  bound: usdAttos(7_000_000_000n),
  authorisedAt: begin,
  isApproximate: false,
  isOffline: false,
  ...more,
})

const stored = async () => {
  const { rows } = await core.sql.query<{ n: bigint; state: string; proven: boolean }>(
    `select sequence_number as n, state, proven from authorisations where user_id = $1
     order by sequence_number, id`,
    [user.userId],
  )
  return rows.map(({ n, state, proven }) => `${n} ${state}${proven ? ' proven' : ''}`)
}

async function early(sequence: bigint, at: bigint, cost: bigint | null): Promise<void> {
  await core.sql.query(
    `insert into early_tickets (app_id, user_id, session_id, sequence_number, signed_micros, cost_attos, booked_at)
     values ($1, $2, $3, $4, $5, $6, $7)`,
    [user.appId, user.userId, call(1n).sessionId, sequence, at, cost, begin],
  )
}

const earlyLeft = async () =>
  (await core.sql.query(`select 1 from early_tickets where user_id = $1`, [user.userId])).rowCount

describe('takeEarlyTickets', () => {
  it('matches session, number and microsecond, and each ticket with one call', async () => {
    await early(1n, micros + 1n, 5n)
    await early(2n, micros + 3n, 5n)
    await early(4n, micros + 4n, null)
    const calls = [call(1n), call(1n), call(2n), call(4n), call(5n)]
    expect(
      (await store.takeEarlyTickets(core.sql, calls)).map((match) => match && match.cost),
    ).toEqual([5n, null, null, null, null])
    expect(await earlyLeft()).toBe(1)
  })

  it('returns a ticket without a price', async () => {
    await early(4n, micros + 4n, null)
    expect(await store.takeEarlyTickets(core.sql, [call(4n)])).toMatchObject([{ cost: null }])
    expect(await earlyLeft()).toBe(0)
  })

  it('matches an approximate call with the nearest ticket within 5 s', async () => {
    await early(1n, micros + 900_000n, 1n)
    await early(1n, micros + 400_000n, 2n)
    await early(1n, micros + 6_000_000n, 3n)
    const calls = [1, 2, 3].map(() => call(1n, { isApproximate: true }))
    expect(
      (await store.takeEarlyTickets(core.sql, calls)).map((match) => match && match.cost),
    ).toEqual([2n, 1n, null])
  })
})

describe('prove', () => {
  it('sets the earliest authorisation of a number, once per distinct proof', async () => {
    await store.insertAuthorisations(core.sql, [call(1n), call(1n), call(2n)])
    const proof = { ...user, sessionId: call(1n).sessionId, sequence: 1n }
    expect(await store.prove(core.sql, [proof, proof])).toEqual([])
    expect(await stored()).toEqual(['1 pending proven', '1 pending', '2 pending'])
  })

  it('sets a released authorisation to lost and returns it', async () => {
    await store.insertAuthorisations(core.sql, [call(1n)])
    await core.sql.query(
      `update authorisations set state = 'released', state_at = now() where user_id = $1`,
      [user.userId],
    )
    const proof = { ...user, sessionId: call(1n).sessionId, sequence: 1n }
    expect(await store.prove(core.sql, [proof])).toMatchObject([
      { sequence: 1n, state: 'lost', isProven: true, bound: 7_000_000_000n },
    ])
    expect(await stored()).toEqual(['1 lost proven'])
  })
})

describe('sessions', () => {
  const at = (sequence: bigint, seconds: bigint, nanos = 0): PriorCall => ({
    sequence,
    seconds,
    nanos,
  })
  const [here, there] = [randomUUID(), randomUUID()]
  const add = (...calls: PriorCall[]) => change('s', calls, here)
  const change = (sessionId: string, calls: PriorCall[], instance: string) =>
    store.addSessions(core.sql, [
      {
        ...user,
        sessionId,
        sessionType: 'live',
        at: begin,
        instance,
        calls,
        added: totals({ authorised: { count: calls.length, amount: usdAttos(10n) } }),
      },
    ])
  const join = async (sequence: bigint, sessionId = 's', instance = here) =>
    (
      await store.joinSessions(core.sql, [{ ...user, sessionId, sequence }], {
        instance,
        at: begin,
      })
    )[0]
  const prior = async (sequence: bigint) => (await join(sequence))?.prior

  it('return the first call with the highest lower number', async () => {
    await add(at(3n, 103n, 5), at(3n, 103n, 4), at(1n, 101n))
    await add(at(2n, 102n), at(3n, 102n, 9))
    expect(await prior(9n)).toEqual(at(3n, 102n, 9))
    expect(await prior(3n)).toEqual(at(1n, 101n))
    expect(await prior(1n)).toBeNull()
    expect(await join(1n, 'unknown')).toBeNull()
  })

  it('are shared once another process joins or reports them', async () => {
    const before = new Date(begin.getTime() - 1)
    await add(at(1n, 101n))
    expect(await join(2n)).toMatchObject({ isShared: false })
    expect(await store.findShared(core.sql, here, before)).toEqual([])
    expect(await join(2n, 's', there)).toEqual({
      prior: at(1n, 101n),
      isShared: true,
      sharedAt: begin,
    })
    expect(await join(2n)).toMatchObject({ isShared: true })
    expect(await store.findShared(core.sql, here, before)).toEqual(['s'])
    expect(await store.findShared(core.sql, here, begin)).toEqual([])
    expect(await store.findShared(core.sql, there, before)).toEqual([])

    await change('other', [at(0n, 100n)], here)
    await change('other', [at(1n, 100n)], there)
    expect((await store.findShared(core.sql, here, before)).toSorted()).toEqual(['other', 's'])
  })

  it('sum their changes, and a settlement inserts no session', async () => {
    await add(at(1n, 101n))
    await add(at(2n, 102n))
    const settled = totals({ ticketed: { count: 1, amount: usdAttos(4n) } })
    const change = {
      ...user,
      sessionType: 'live',
      at: begin,
      calls: [],
      instance: null,
      added: settled,
    }
    await store.addSessions(core.sql, [
      { ...change, sessionId: 's' },
      { ...change, sessionId: 's' },
      { ...change, sessionId: 'other' },
    ])
    const { rows } = await core.sql.query(
      `select session_id, authorised_count, authorised_attos, ticketed_count, ticketed_attos
       from authorised_sessions where user_id = $1`,
      [user.userId],
    )
    expect(rows).toEqual([
      {
        session_id: 's',
        authorised_count: 2n,
        authorised_attos: '20',
        ticketed_count: 2n,
        ticketed_attos: '8',
      },
    ])
  })
})
