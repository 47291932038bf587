import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { createLedger } from '../../../../core/balances/ledger/ledger.ts'
import { lockHolds } from '../../../../core/balances/exposure/store.ts'
import { type Db, type Pool, tx } from '../../../../core/lib/sql.ts'
import { type UserKey, appId, userId } from '../../../../core/shared/ids.ts'
import { type Person, logIn } from '../../../support/web/people.ts'
import { type TestApp, type TestCore, observedRate, second, startTestCore } from '../../support.ts'
import { type TestSidecar, attos, dollars, lendCall, startSidecar } from '../escrow/granting.ts'
import { newOwnedApp, setOwnerAccount } from './owned-apps.ts'

/** Recalls of the leases that an owner's account cannot pay for any more, and locks of owners. */

let core: TestCore
let owner: Person
let sidecars: TestSidecar[]
beforeAll(async () => {
  core = await startTestCore({ ...observedRate, STARTER_USD_MICROS: '1000000' })
})
afterAll(() => core.stop())
beforeEach(async () => {
  owner = await logIn(core)
  sidecars = [await startSidecar(core.as()), await startSidecar(core.as())]
  core.clock.advance(second)
  await core.sql.query(
    `insert into rates (usd_attos_per_eth, source, observed_at, created_at) values (3000 * 10::numeric ^ 18, 'test', $1, $1)`,
    [core.clock.now()],
  )
})

const ledger = createLedger({ bounding: { horizonSeconds: 60 } })
const overdrawn = () => ledger.exposures.findOverdrawn(core.sql, core.clock.now())

const newApp = (by: Person = owner) => newOwnedApp(core, by)

/** The account user of an owner, which a first lease creates. */
async function accountOf({ accountId }: Person): Promise<UserKey> {
  const { rows } = await core.sql.query<{ app_id: string; id: string }>(
    'select app_id, id from end_users where external_user_id = $1',
    [`account:${accountId}`],
  )
  return { appId: appId(rows[0]?.app_id ?? ''), userId: userId(rows[0]?.id ?? '') }
}

/** Opens a lease of each user of the apps at each sidecar, with a credit line of the owner. */
async function lendAll(apps: readonly TestApp[], users: number): Promise<void> {
  await sidecars[0]?.lend(apps[0] as TestApp, 'user-0')
  await setOwnerAccount(core, owner.accountId, 'ceiling_attos = 1e24')
  for (const sidecar of sidecars)
    for (const app of apps)
      for (let from = 0; from < users; from += 100) {
        const names = Array.from({ length: Math.min(100, users - from) }, (_, i) => from + i)
        const bound = { boundUsdAttos: attos(0.01) }
        await sidecar.lendMany(names.map((name) => lendCall(app, `user-${name}`, bound)))
      }
}

async function leasesOf(apps: readonly TestApp[]): Promise<{ live: number; recalled: number }> {
  const { rows } = await core.sql.query<{ live: number; recalled: number }>(
    `select count(*)::int as live, (count(*) filter (where recalled_at is not null))::int as recalled
     from leases join clients using (app_id) where client_id = any($1)`,
    [apps.map(({ clientId }) => clientId)],
  )
  return rows[0] ?? { live: 0, recalled: 0 }
}

describe("an owner's account that loses money which its apps hold", () => {
  it('recalls the leases of all users of all its apps, without a renewal', async () => {
    const [apps, other] = [[await newApp(), await newApp()], await newApp(await logIn(core))]
    await lendAll(apps, 250)
    await sidecars[0]?.lend(other, 'user-0', { boundUsdAttos: attos(0.01) })
    expect(await leasesOf(apps)).toEqual({ live: 1_000, recalled: 0 })
    await setOwnerAccount(core, owner.accountId, 'ceiling_attos = 0')
    await expect
      .poll(() => leasesOf(apps), { timeout: 10_000 })
      .toEqual({ live: 1_000, recalled: 1_000 })
    expect(await leasesOf([other])).toEqual({ live: 1, recalled: 0 })
    for (const sidecar of sidecars) {
      expect((await sidecar.heartbeat()).recalled).toHaveLength(500)
      const answer = await sidecar.lend(apps[1] as TestApp, 'user-7')
      expect([answer.lease, answer.spendRefusal]).toEqual([undefined, 'owner_debt_ceiling_reached'])
    }
    expect(await overdrawn()).toEqual([])
  }, 60_000)

  it('is found only while its apps have leases beyond its money', async () => {
    const app = await newApp()
    await lendAll([app], 3)
    expect(await overdrawn()).toEqual([])
    const account = await accountOf(owner)
    // A bound that still includes what has ended is counted again.
    await core.sql.query(`update owner_holds set held_attos = 1e30 where user_id = $1`, [
      account.userId,
    ])
    expect(await overdrawn()).toEqual([])
    const { rows } = await core.sql.query<{ held_attos: string }>(
      'select held_attos from owner_holds where user_id = $1',
      [account.userId],
    )
    const held = dollars(rows[0]?.held_attos)
    expect(held).toBeGreaterThan(0)
    expect(held).toBeLessThan(10)
  })

  it('does not count credit that ends before the tickets of its calls, nor credit of one feature', async () => {
    const app = await newApp()
    await lendAll([app], 20)
    const account = await accountOf(owner)
    await core.sql.query(
      `insert into grants (app_id, user_id, id, kind, source, feature_key, amount_attos, remaining_attos, priority, effective_at,
                           expires_at, created_at)
       select $1, $2, gen_random_uuid(), 'grant', 'manual', feature, 1e20, 1e20, 10, $3::timestamptz - interval '1 hour',
              case when feature is null then $3::timestamptz + interval '5 seconds' end, $3
       from unnest(array[null, 'live']) as f (feature)`,
      [account.appId, account.userId, core.clock.now()],
    )
    await setOwnerAccount(core, owner.accountId, 'ceiling_attos = 0')
    await expect
      .poll(() => leasesOf([app]), { timeout: 10_000 })
      .toEqual({ live: 40, recalled: 40 })
  })
})

describe('the holds of owners', () => {
  it('are those of two paying owners after one request', async () => {
    const other = await logIn(core)
    const [app, theirs] = [await newApp(), await newApp(other)]
    const bound = { boundUsdAttos: attos(0.05) }
    const calls = [app, theirs, app].map((of, i) => lendCall(of, `user-${i}`, bound))
    const { answers } = (await sidecars[0]?.lendMany(calls)) ?? { answers: [] }
    const lent = answers.map(({ lease }) => dollars(lease?.amountUsdAttos ?? '0'))
    expect(Math.min(...lent)).toBeGreaterThan(0)
    const heldBy = async (person: Person): Promise<number> => {
      const { userId: user } = await accountOf(person)
      const { rows } = await core.sql.query<{ held_attos: string }>(
        'select held_attos from owner_holds where user_id = $1',
        [user],
      )
      return dollars(rows[0]?.held_attos)
    }
    expect(await heldBy(owner)).toBeCloseTo((lent[0] ?? 0) + (lent[2] ?? 0))
    expect(await heldBy(other)).toBeCloseTo(lent[1] ?? 0)
  })

  it('are locked without deadlock by transactions that meet two owners for the first time', async () => {
    const [first, second] = await newOwners(2)
    const [one, two] = [pausing(core.sql), pausing(core.sql)]
    // The first finds both rows missing. Before it inserts them, another transaction inserts one.
    const met = one.run((db) => lockHolds(db, [first, second]))
    await one.step()
    await tx(core.sql, (db) => lockHolds(db, [second]))
    const later = two.run((db) => lockHolds(db, [second, first]))
    await two.step()
    await one.step()
    two.finish()
    one.finish()
    for (const rows of await Promise.all([met, later])) expect(rows).toHaveLength(2)
  })

  it('are inserted once by many transactions at once', async () => {
    const owners = await newOwners(6)
    const locked = await Promise.all(
      Array.from({ length: 24 }, (_, i) =>
        tx(core.sql, (db) => lockHolds(db, owners.filter((__, at) => at !== i % 6).toReversed())),
      ),
    )
    for (const rows of locked) expect(rows).toHaveLength(5)
  })
})

describe('whether users may spend', () => {
  it("is read with one query of their apps' owners per batch", async () => {
    const apps = [await newApp(), await newApp(), await newApp()]
    for (const app of apps) for (const user of ['ada', 'bob']) await sidecars[0]?.lend(app, user)
    const { rows } = await core.sql.query<{ app_id: string; id: string }>(
      `select u.app_id, u.id from end_users u join clients using (app_id) where client_id = any($1)`,
      [apps.map(({ clientId }) => clientId)],
    )
    const users = rows.map((row) => ({ appId: appId(row.app_id), userId: userId(row.id) }))
    const read = await ledger.readMany(core.sql, users, core.clock.now())
    const accounts = await Promise.all(users.map(read))
    const queries: string[] = []
    const query = (statement: { text: string; name?: string }) => {
      queries.push(statement.name ?? statement.text)
      return core.sql.query(statement as never)
    }
    const spending = ledger.batchSpending({ query } as unknown as Pool, core.clock.now)
    const answers = await Promise.all(accounts.map(spending))
    expect(answers).toHaveLength(6)
    expect(answers.every(({ canSpend }) => canSpend)).toBe(true)
    expect(queries.filter((name) => name === 'find-payers')).toHaveLength(1)
  })
})

/** Creates account users that no app has held money of, in the order of their ids. */
async function newOwners(count: number): Promise<[UserKey, UserKey, ...UserKey[]]> {
  const owners: UserKey[] = []
  for (let i = 0; i < count; i++) {
    const person = await logIn(core)
    await sidecars[0]?.lend(await newApp(person), 'ada')
    owners.push(await accountOf(person))
  }
  await core.sql.query('delete from owner_holds where user_id = any($1)', [
    owners.map((of) => of.userId),
  ])
  const [one, two, ...more] = owners.toSorted((a, b) => (a.userId < b.userId ? -1 : 1))
  if (!one || !two) throw new Error('at least two owners')
  return [one, two, ...more]
}

/** Runs a transaction that waits before each query until `step` or `finish` is called. */
function pausing(pool: Pool) {
  const waiting: (() => void)[] = []
  let steps = 0
  let isFree = false
  const permit = (): Promise<void> =>
    new Promise((resolve) => {
      if (!isFree && steps === 0) return void waiting.push(resolve)
      if (!isFree) steps--
      resolve()
    })

  const run = <T>(work: (db: Db) => Promise<T>): Promise<T> =>
    tx(pool, async (db) => {
      const query = async (...statement: readonly unknown[]) => {
        await permit()
        return (db.query as (...of: readonly unknown[]) => unknown)(...statement)
      }
      return work({ query: query.bind(db) } as unknown as Db)
    })

  /** Lets one query start, and gives it time to reach a lock. */
  async function step(): Promise<void> {
    const next = waiting.shift()
    if (next) next()
    else steps++
    await new Promise((resolve) => setTimeout(resolve, 100))
  }

  function finish(): void {
    isFree = true
    for (const resolve of waiting) resolve()
  }

  return { run, step, finish }
}
