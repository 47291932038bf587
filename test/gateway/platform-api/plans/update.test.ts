import { describe, expect, it } from 'vitest'
import { logInTo } from '../../../support/web/people.ts'
import { asRecord } from '../../support.ts'
import { app, console, person, setUpApp, ask } from '../support.ts'
import {
  create,
  update,
  remove,
  list,
  planOf,
  newPlan,
  defaultOf,
  sdxl,
  subscription,
} from './support.ts'

setUpApp('admin')

const asRecords = (value: unknown): Record<string, unknown>[] =>
  Array.isArray(value) ? value.map(asRecord) : []

describe('the versions of a plan', () => {
  it('are 404 for an unknown or deleted plan, and another app', async () => {
    const id = await newPlan()
    const other = await console.newApp()
    const versionsOf = (planId: string, authorization = app.basic) =>
      ask('GET', `/plans/${planId}/versions`, { authorization })
    expect((await versionsOf(id)).status).toBe(200)
    expect((await versionsOf(id, other.basic)).status).toBe(404)
    expect((await versionsOf('no-id')).status).toBe(404)
    expect((await versionsOf(id, 'Basic bm9ib2R5Om5vdGhpbmc=')).status).toBe(401)
    await remove(`?planId=${id}`)
    expect((await versionsOf(id)).status).toBe(404)
  })
})

describe('changing a plan', () => {
  it('keeps omitted fields, clears null ones, and creates a version only for new terms', async () => {
    const id = await newPlan({
      type: 'usage',
      priceAmount: '5',
      overageRateUsd: '0.000002',
      includedUsdMicros: '7',
      includedUnits: '8',
      chargeThresholdUsd: '10',
      capabilities: [{ ...sdxl, retailRateUsd: '0.000003' }],
    })
    const before = await planOf(id)
    expect((await update({ id })).body).toMatchObject({ success: true, id })
    expect(await planOf(id)).toMatchObject({ ...before, updatedAt: expect.any(String) })
    await update({ id, name: 'Pro 2', status: 'inactive' })
    expect(await planOf(id)).toMatchObject({ name: 'Pro 2', status: 'inactive', version: 1 })
    await update({ id, overageRateUsd: null, includedUsdMicros: null, includedUnits: null })
    expect(await planOf(id)).toMatchObject({
      ...before,
      name: 'Pro 2',
      status: 'inactive',
      overageRateUsd: null,
      includedUsdMicros: null,
      includedUnits: null,
      version: 2,
      updatedAt: expect.any(String),
    })
    await update({ id, type: 'free' })
    expect(await planOf(id)).toMatchObject({ type: 'free', chargeThresholdUsd: null, version: 3 })
    await update({ id, capabilities: [] })
    expect(await planOf(id)).toMatchObject({ capabilities: [], version: 4 })
    const { body } = await ask('GET', `/plans/${id}/versions`, { authorization: app.basic })
    const versions = asRecords(body['versions'])
    expect(
      versions.map(({ version, type, overageRateUsd }) => [version, type, overageRateUsd]),
    ).toEqual([
      [4, 'free', null],
      [3, 'free', null],
      [2, 'usage', null],
      [1, 'usage', '0.000002'],
    ])
    expect(versions[3]).toMatchObject({
      name: 'Pro 2',
      includedUsdMicros: '7',
      chargeThresholdUsd: '10',
      updatedAt: before['createdAt'],
      capabilities: [{ ...sdxl, retailRateUsd: '0.000003' }],
    })
    expect(versions[0]).toMatchObject({ capabilities: [] })
    const { rows } = await console.sql.query(
      `select v.version, v.retail_rate, v.charge_threshold_attos is null as none,
              (select count(*) from plan_bundles b where b.plan_id = v.plan_id and b.version = v.version) as bundles
      from plan_versions v where plan_id = $1 order by version`,
      [id],
    )
    expect(
      rows.map((row) => [row.version, row.retail_rate, row.none, Number(row.bundles)]),
    ).toEqual([
      [1, '0.000002', false, 1],
      [2, null, false, 1],
      [3, null, true, 1],
      [4, null, true, 0],
    ])
  })

  it('accepts the plan as read, and keeps the ids of unchanged pairs', async () => {
    const id = await newPlan({ ...subscription, capabilities: [sdxl] })
    const plan = await planOf(id)
    expect((await update(plan)).status).toBe(200)
    expect(await planOf(id)).toMatchObject({ version: 1, capabilities: plan['capabilities'] })
    await update({
      id,
      capabilities: [
        { pipeline: 'llm', modelId: '*' },
        { ...sdxl, slaTargetP95Ms: 5 },
      ],
    })
    const [first] = [plan['capabilities']].flat().map(asRecord)
    expect(await planOf(id)).toMatchObject({
      capabilities: [{ pipeline: 'llm' }, { ...sdxl, id: first?.['id'] }],
    })
  })

  it('refuses in this order', async () => {
    const network = await defaultOf('isNetworkDefault')
    const starter = await defaultOf('isStarterDefault')
    const id = await newPlan(subscription)
    await newPlan({ name: 'Other' })
    const other = await console.newApp()
    const owner = await logInTo(console, other, 'owner')
    const foreign = (
      await console.ask('POST', `/api/v1/apps/${other.clientId}/plans`, {
        person: owner,
        json: { name: 'Theirs' },
      })
    ).body['id']
    const unknown = '01920000-0000-7000-8000-000000000001'
    const required = 'includedUnits and overageRateWei are required for subscription plans'
    const rows: [object, number, string | RegExp][] = [
      [{}, 400, 'id is required'],
      [{ id: 5 }, 400, 'id is required'],
      [{ id: network['id'], name: '' }, 400, /Network Price default plan/],
      [{ id: starter['id'], name: '' }, 400, /starter-plan/],
      [{ id: unknown, name: '' }, 404, 'Plan not found'],
      [{ id: 'x', name: '' }, 404, 'Plan not found'],
      [{ id: foreign, name: '' }, 404, 'Plan not found'],
      [{ id, name: '' }, 400, 'name is required'],
      [{ id, name: null }, 400, 'name is required'],
      [{ id, name: ' starter ' }, 400, /is reserved$/],
      [{ id, is_network_default: false }, 400, 'is_network_default cannot be set'],
      [{ id, capabilities: null, type: 'gold' }, 400, 'capabilities must be an array'],
      [
        { id, capabilities: [{ pipeline: 'zzz', modelId: 'm' }], type: 'gold' },
        400,
        /^the catalogue has no zzz/,
      ],
      [{ id, type: 'gold', includedUnits: null }, 400, /^type must be one of/],
      [{ id, includedUnits: null, overageRateUsd: 'x' }, 400, required],
      [{ id, overageRateWei: null }, 400, required],
      [{ id, overageRateUsd: 'x', billingCycle: 'x' }, 400, /^overageRateUsd must be/],
      [{ id, billingCycle: null, chargeThresholdUsd: '5' }, 400, /^billingCycle must be one of/],
      [{ id, chargeThresholdUsd: '5', includedUsdMicros: 'x' }, 400, /^chargeThresholdUsd is only/],
      [{ id, includedUsdMicros: 'x', status: 'x' }, 400, /^includedUsdMicros must be/],
      [{ id, priceAmount: '1.000', status: 'x' }, 400, /^priceAmount must be/],
      [{ id, priceCurrency: 'EUR', status: 'x' }, 400, 'priceCurrency must be USD'],
      [{ id, status: null, nmae: 'x' }, 400, /^status must be one of/],
      [{ id, nmae: 'x' }, 400, /^unknown field nmae/],
      [{ id, name: 'OTHER' }, 409, 'the app has a plan named OTHER'],
    ]
    const wrong: unknown[] = []
    const before = await list()
    for (const [json, status, detail] of rows) {
      const answer = await update(json)
      const told = String(answer.body['detail'])
      const matches = typeof detail === 'string' ? told === detail : detail.test(told)
      if (answer.status !== status || !matches) wrong.push([json, answer.status, told])
    }
    expect(wrong).toEqual([])
    expect(await list()).toEqual(before)
  })

  it('creates one version per concurrent change, one after the other', async () => {
    const id = await newPlan({ type: 'usage' })
    const rates = Array.from({ length: 12 }, (_, i) => `0.0000${i + 10}`)
    const answers = await Promise.all(rates.map((overageRateUsd) => update({ id, overageRateUsd })))
    expect(answers.map(({ status }) => status)).toEqual(rates.map(() => 200))
    const { rows } = await console.sql.query(
      'select array_agg(version order by version) as versions, array_agg(created_at order by version) as times from plan_versions where plan_id = $1',
      [id],
    )
    expect(rows[0].versions).toEqual(Array.from({ length: 13 }, (_, i) => i + 1))
    expect(rows[0].times).toEqual(rows[0].times.toSorted((a: Date, b: Date) => +a - +b))
  })
})

describe("excluding a plan's capability", () => {
  const exclude = (...excludedCapabilities: object[]) =>
    ask('PUT', '/manifest', { person, json: { excludedCapabilities } })

  it('is refused, with the conflicts, until no plan contains it', async () => {
    const id = await newPlan({ status: 'inactive', capabilities: [sdxl] })
    for (const excluded of [sdxl, { ...sdxl, modelId: '*' }]) {
      const { status, body } = await exclude(excluded)
      expect([status, body['code'], body['conflicts']]).toEqual([
        409,
        'conflict',
        [{ plan: 'Pro', ...sdxl }],
      ])
    }
    expect((await exclude({ ...sdxl, modelId: 'other' })).status).toBe(200)
    await update({ id, capabilities: [] })
    expect((await exclude(sdxl)).status).toBe(200)
    expect((await update({ id, capabilities: [sdxl] })).status).toBe(400)
    expect((await exclude()).status).toBe(200)
    await update({ id, capabilities: [sdxl] })
    await remove(`?planId=${id}`)
    expect((await exclude(sdxl)).status).toBe(200)
  })

  it('and adding it to a plan never both succeed', async () => {
    const answers = await Promise.all([
      exclude(sdxl),
      create({ name: 'Pro', capabilities: [sdxl] }),
    ])
    expect(answers.filter(({ status }) => status < 300)).toHaveLength(1)
  })
})
