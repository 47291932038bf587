import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { until } from '../../../core/support.ts'
import { type Real, type RealApp, startReal } from '../../real.ts'
import { asRecord } from '../../support.ts'

let real: Real
let apps: RealApp[]
beforeAll(async () => {
  real = await startReal()
  apps = await Promise.all(['one', 'two', 'three'].map((name) => real.newApp(name)))
})
afterAll(() => real.stop())

const request = { from: '2026-03-01', to: '2026-04-01', plans: [{ name: 'Draft' }] }
async function tryPlans(app: RealApp | undefined) {
  const response = await fetch(`${real.url}/api/v1/apps/${app?.clientId}/billing/whatif`, {
    method: 'POST',
    headers: { ...app?.session, 'content-type': 'application/json' },
    body: JSON.stringify(request),
  })
  return { status: response.status, body: asRecord(await response.json()) }
}

/** Returns the number of statements that wait for a table lock. */
async function waiting(): Promise<number> {
  const { rows } = await real.core.sql.query<{ count: bigint | string }>(
    `select count(*) from pg_locks l join pg_database d on d.oid = l.database
     where not l.granted and l.locktype = 'relation' and d.datname = current_database()`,
  )
  return Number(rows[0]?.count)
}

describe('POST …/billing/whatif', () => {
  it('allows one run per app and two per core, and refuses more', async () => {
    const [one, two, three] = apps
    const db = await real.core.sql.connect()
    try {
      // The lock stops a replay at the tickets.
      await db.query('begin')
      await db.query('lock table tickets in access exclusive mode')
      const first = tryPlans(one)
      await until(async () => (await waiting()) === 1)
      expect(await tryPlans(one)).toMatchObject({ status: 409, body: { code: 'conflict' } })
      const second = tryPlans(two)
      await until(async () => (await waiting()) === 2)
      const third = await tryPlans(three)
      expect(third).toMatchObject({ status: 503, body: { code: 'unavailable' } })
      expect(third.body['detail']).toContain('too many what-ifs')
      await db.query('commit')
      expect([(await first).status, (await second).status]).toEqual([200, 200])
    } finally {
      await db.query('rollback')
      db.release()
    }
    // A refusal does not take up a place.
    expect((await tryPlans(three)).status).toBe(200)
    expect((await tryPlans(one)).status).toBe(200)
  })
})
