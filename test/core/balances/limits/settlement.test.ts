import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { createLosses } from '../../../../core/balances/escrow/losses.ts'
import { escrowStore } from '../../../../core/balances/escrow/store.ts'
import { insertAdjustment } from '../../../../core/balances/accounts/store.ts'
import { escrowUser } from '../escrow/support.ts'
import { type TestApp, type TestCore, day, second, startTestCore } from '../../support.ts'

let core: TestCore
let app: TestApp
let ada: Awaited<ReturnType<typeof escrowUser>>
let keyId: string
beforeAll(async () => {
  core = await startTestCore({ HOLD_MAX_SECONDS: '86400' })
})
afterAll(() => core.stop())
beforeEach(async () => {
  app = await core.newApp({ starterUsdMicros: '1000000' })
  ada = await escrowUser(core, app)
  keyId = (await core.as(app.basic).createKey(name())).keyId
})

const name = () => ({ clientId: app.clientId, externalUserId: 'ada' })

/** Sets limits for ada and for her key. Their counts start with what is pending. */
async function limit(): Promise<void> {
  const limits = { usdMicrosPerDay: '1000000', maxPrices: [] }
  for (const key of [undefined, keyId])
    await core.as(app.basic).updateLimits({ ...name(), keyId: key, limits })
}

/** Returns the counted dollars of the user and of the key, for the day and for each session. */
async function counted() {
  const { rows } = await core.sql.query<{ key: boolean; today: number; sessions: object | null }>(
    `select l.key_id is not null as key, round(l.day_attos / 1e18, 6)::float8 as today,
            (select json_object_agg(s.session_id, round(s.spent_attos / 1e18, 6)) from limit_sessions s
             where s.user_id = l.user_id and s.subject_id = l.subject_id) as sessions
     from limits l where l.user_id = $1 order by 1`,
    [ada.user.userId],
  )
  const [user, key] = rows.map(({ today, sessions }) => ({ today, ...sessions }))
  return { user, key }
}

describe('a limit', () => {
  it('counts the cost of a call once its ticket is booked, for user and key', async () => {
    await ada.authorise({ sequence: 0, ms: 0, bound: 0.1 }, { keyId })
    await ada.authorise({ sequence: 1, ms: 1, bound: 0.2 }, { keyId })
    await ada.authorise({ session: 's2', sequence: 0, ms: 2, bound: 0.3 })
    await limit()
    expect(await counted()).toEqual({
      user: { today: 0.6, s1: 0.3, s2: 0.3 },
      key: { today: 0.3, s1: 0.3 },
    })
    await ada.book(
      { sequence: 0, ms: 0, cost: 0.06 },
      { sequence: 1, ms: 1, cost: 0.06 },
      { session: 's2', sequence: 0, ms: 2, cost: 0.3 },
    )
    expect(await counted()).toEqual({
      user: { today: 0.42, s1: 0.12, s2: 0.3 },
      key: { today: 0.12, s1: 0.12 },
    })
    // This ticket belongs to no call of a sidecar.
    await ada.book({ sequence: 2, ms: 3, cost: 0.3 })
    expect(await counted()).toMatchObject({ user: { today: 0.42 }, key: { today: 0.12 } })
  })

  it('counts the cost of an approximate call', async () => {
    await ada.authorise({ sequence: 0, ms: 0, bound: 0.2 }, { keyId, isApproximate: true })
    await limit()
    await ada.book({ sequence: 0, ms: 500, cost: 0.06 })
    expect(await counted()).toEqual({
      user: { today: 0.06, s1: 0.06 },
      key: { today: 0.06, s1: 0.06 },
    })
  })

  it('counts each call on the day it was allowed', async () => {
    // A separate sidecar, so that core does not release the call in the meantime.
    const yesterday = {
      authorisedAt: new Date(core.clock.now().getTime() - day + second),
      sidecarId: 'sidecar-of-yesterday',
    }
    await ada.authorise({ sequence: 0, ms: 0, bound: 0.3 }, yesterday)
    await ada.authorise({ sequence: 1, ms: 1, bound: 0.2 })
    await limit()
    expect(await counted()).toMatchObject({ user: { today: 0.2, s1: 0.5 } })
    await ada.book({ sequence: 0, ms: 0, cost: 0.03 }, { sequence: 1, ms: 1, cost: 0.15 })
    expect(await counted()).toMatchObject({ user: { today: 0.15, s1: 0.18 } })
  })

  it('counts lost calls and not released ones', async () => {
    const call = { sequence: 0, ms: 0, bound: 0.2 }
    await ada.authorise(call)
    await limit()
    const losses = createLosses({
      store: escrowStore,
      insertAdjustment,
      lostTickets: 'write_off',
    })
    const end = (state: 'pending' | 'lost', isProven: boolean) => {
      const one = { ...ada.authorisation(call), id: 0n, state, isProven, isTicketed: false }
      const ended = { authorisations: [one], find: () => undefined }
      return losses.end(core.sql, ended, core.clock.now())
    }
    await end('pending', true)
    expect(await counted()).toMatchObject({ user: { today: 0.2, s1: 0.2 } })
    await end('pending', false)
    expect(await counted()).toMatchObject({ user: { today: 0, s1: 0 } })
    // Proven after its release.
    await end('lost', true)
    expect(await counted()).toMatchObject({ user: { today: 0.2, s1: 0.2 } })
  })

  it('counts the ticket of a released call, which was no longer counted', async () => {
    await ada.authorise({ sequence: 0, ms: 0, bound: 0.2 })
    await core.sql.query(
      `update authorisations set state = 'released', state_at = $2 where user_id = $1`,
      [ada.user.userId, core.clock.now()],
    )
    await limit()
    expect(await counted()).toMatchObject({ user: { today: 0 } })
    await ada.book({ sequence: 0, ms: 0, cost: 0.06 })
    expect(await counted()).toMatchObject({ user: { today: 0.06 } })
  })
})
