import { describe, expect, it } from 'vitest'
import { appId } from '../../../../core/shared/ids.ts'
import { logInTo } from '../../../support/web/people.ts'
import { asRecord } from '../../support.ts'
import {
  fake,
  setUpSync,
  create,
  sync,
  newPlan,
  productOf,
  failing,
  isPublish,
  isCreate,
  live,
  withUpkeep,
  remove,
} from './sync-support.ts'
import { console, app } from '../support.ts'
import { update, planOf } from './support.ts'

describe.each(['v1', 'v3'] as const)('plans in an OpenMeter of API %s', (version) => {
  setUpSync(version)

  it('are created even if their sync fails, and keep the last success when a later one fails', async () => {
    fake.faults = failing(503)
    const { status, body } = await create()
    const syncError = 'the metering backend does not answer now'
    expect([status, body]).toEqual([201, { id: expect.any(String), syncError }])
    const id = String(body['id'])
    expect(await planOf(id)).toMatchObject({ lastSyncedAt: null, syncError })
    expect(asRecord((await productOf(id))['sync'])).toMatchObject({
      status: 'error',
      errorCode: 'sync_failed',
      errorMessage: syncError,
    })
    fake.faults = () => 'none'
    const { syncedAt } = (await sync(id)).body
    console.clock.advance(1_000)
    fake.faults = failing(503)
    expect((await update({ id, priceAmount: '1' })).body['syncError']).toBe(syncError)
    expect(await planOf(id)).toMatchObject({ lastSyncedAt: syncedAt, syncError })
  })

  it('are not created twice when only their publication fails', async () => {
    fake.faults = failing(500, isPublish)
    const { body } = await create()
    const id = String(body['id'])
    expect(body['syncError']).toBe('the metering backend failed to process the plan')
    expect((await planOf(id))['openmeterPlanId']).toBe(fake.state.plans[0]?.id)
    fake.faults = () => 'none'
    expect((await sync(id)).status).toBe(200)
    expect(fake.state.plans.map(({ status }) => status)).toEqual(['active'])
  })

  it.each([
    ['of the creation', isCreate],
    ['of the publication', isPublish],
  ])('exist once when the answer %s is lost', async (_, matches) => {
    fake.faults = failing('lose answer', matches)
    const { body } = await create()
    expect(body['syncError']).toBe('the metering backend does not answer now')
    fake.faults = () => 'none'
    expect((await sync(String(body['id']))).status).toBe(200)
    expect(fake.state.plans.map(({ status }) => status)).toEqual(['active'])
  })

  it('are replaced as drafts when a new cycle cannot be written into them', async () => {
    fake.faults = failing(500, isPublish)
    const id = await newPlan()
    fake.faults = () => 'none'
    await update({ id, billingCycle: 'daily' })
    const live = fake.state.plans.filter(({ deletedAt }) => !deletedAt)
    expect(live.map(({ cadence, status }) => [cadence, status])).toEqual([['P1D', 'active']])
  })

  const silent = {
    code: 'metering_unreachable',
    syncError: 'the metering backend does not answer now',
  }
  it.each([
    { fault: 503, status: 503, ...silent },
    { fault: 401, status: 503, ...silent },
    {
      fault: 500,
      status: 502,
      code: 'metering_failed',
      syncError: 'the metering backend failed to process the plan',
    },
    {
      fault: 400,
      status: 422,
      code: 'plan_unsyncable',
      syncError: 'the metering backend refuses the plan: it answered 400: told to answer 400',
    },
  ] as const)(
    'answer a backend with $fault with $status',
    async ({ fault, status, code, syncError }) => {
      const id = await newPlan()
      fake.state.plans.length = 0
      fake.faults = failing(fault, isCreate)
      const answer = await sync(id)
      expect(answer.status).toBe(status)
      expect(answer.body).toMatchObject({ code, error: code, success: false, syncError })
      expect((await planOf(id))['syncError']).toBe(syncError)
    },
  )

  it('report terms that OpenMeter does not support', async () => {
    const syncError = 'the plan cannot be synced: its price is in EUR, and usage is priced in USD'
    const id = await newPlan()
    // A plan from before prices were limited to USD.
    await console.sql.query(
      `insert into plan_versions (app_id, plan_id, version, type, price_amount, price_currency, included_attos,
                                  retail_rate, billing_cycle, created_at)
       select app_id, plan_id, version + 1, type, price_amount, 'EUR', included_attos, retail_rate, billing_cycle, created_at
       from plan_versions
       where plan_id = $1`,
      [id],
    )
    const answer = await sync(id)
    expect(answer.status).toBe(422)
    expect(answer.body).toMatchObject({ code: 'plan_unsyncable', success: false, syncError })
    expect(await planOf(id)).toMatchObject({ syncError })
  })

  it('exist once after concurrent syncs', async () => {
    const id = await newPlan()
    fake.state.plans.length = 0
    fake.faults = failing('late', isCreate)
    const answers = await Promise.all(Array.from({ length: 6 }, () => sync(id)))
    expect(answers.map(({ status }) => status)).toEqual(Array.from({ length: 6 }, () => 200))
    expect(fake.state.plans).toHaveLength(1)
  })

  it('are refused while another sync holds the lease', async () => {
    const id = await newPlan()
    const leasedUntil = new Date(console.clock.now().getTime() + 60_000)
    await console.sql.query(
      `update plan_syncs set lease_id = gen_random_uuid(), leased_until = $2 where plan_id = $1`,
      [id, leasedUntil],
    )
    const { status, body } = await sync(id)
    expect([status, body['syncError']]).toEqual([
      409,
      'the plan is being synced; repeat the request later',
    ])
    console.clock.advance(60_000)
    expect((await sync(id)).status).toBe(200)
  })

  it('of other apps, unknown ones, and those of viewers are not synced', async () => {
    const id = await newPlan()
    const other = await console.newApp()
    const stranger = await logInTo(console, other, 'admin')
    const viewer = await logInTo(console, app, 'viewer')
    const path = `/api/v1/apps/${app.clientId}/plans/${id}/sync`
    expect((await console.ask('POST', path, { person: stranger })).status).toBe(404)
    expect((await console.ask('POST', path, { authorization: app.basic })).status).toBe(404)
    expect((await console.ask('POST', path, { person: viewer })).status).toBe(403)
    const foreign = `/api/v1/apps/${other.clientId}/plans/${id}/sync`
    expect((await console.ask('POST', foreign, { person: stranger })).status).toBe(404)
    expect((await sync('nothing')).status).toBe(404)
  })

  it('are deleted even if their archiving fails, which is repeated', async () => {
    const id = await newPlan()
    fake.faults = failing(503)
    expect((await remove(id)).status).toBe(200)
    expect(live()).toEqual(['active'])
    fake.faults = () => 'none'
    console.clock.advance(60_000)
    await withUpkeep(({ retry }) => retry())
    expect(live()).toEqual(['archived'])
  })

  it('of a deleted app are archived by upkeep, once', async () => {
    await newPlan()
    console.clock.advance(1_000)
    await console.sql.query(
      `update apps set status = 'deleted', deleted_at = $2 where id = (select app_id from clients where client_id = $1)`,
      [app.clientId, console.clock.now()],
    )
    await withUpkeep(async ({ retry }) => {
      await retry()
      expect(live()).toEqual(['archived'])
      const before = fake.requests.length
      await retry()
      expect(fake.requests.length).toBe(before)
    })
  })

  it('are synced by upkeep if never synced, and after failures with growing delays', async () => {
    fake.faults = failing(503)
    const id = await newPlan()
    await withUpkeep(async ({ retry, states }, pool) => {
      const { rows } = await pool.query<{ app_id: string }>(
        `delete from plan_syncs where plan_id <> '${id}' returning app_id`,
      )
      expect(rows.length).toBeGreaterThan(0)
      const own = async () => {
        const { rows: apps } = await pool.query<{ app_id: string }>(
          `select app_id from plans where id = '${id}'`,
        )
        return states(appId(apps[0]?.app_id ?? ''))
      }
      const retryIn = async () => {
        const { rows: due } = await pool.query<{ retry_at: Date }>(
          `select retry_at from plan_syncs where plan_id = '${id}'`,
        )
        return (due[0]?.retry_at.getTime() ?? 0) - console.clock.now().getTime()
      }
      expect(await retryIn()).toBe(60_000)
      console.clock.advance(60_000)
      await retry()
      expect(await retryIn()).toBe(120_000)
      fake.faults = () => 'none'
      await retry()
      expect((await own()).get(id)?.syncError).not.toBeNull()
      console.clock.advance(120_000)
      await retry()
      expect((await own()).get(id)).toMatchObject({ syncError: null })
      expect([...(await own()).values()].map(({ syncError }) => syncError)).toEqual([null, null])
      expect(fake.state.plans.every(({ status }) => status === 'active')).toBe(true)
    })
  })
})
