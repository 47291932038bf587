import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import type { TestApp } from '../../../core/support.ts'
import { type Person, logIn, logInTo } from '../../../support/web/people.ts'
import { type Console, type RequestOptions, startConsole } from '../../console.ts'

let console: Console
let app: TestApp
let owner: Person
beforeAll(async () => {
  console = await startConsole()
})
afterAll(() => console.stop())
beforeEach(async () => {
  app = await console.newApp()
  owner = await logInTo(console, app, 'owner')
})

const url = (clientId: string = app.clientId) => `/api/v1/apps/${clientId}/billing/overage`
const read = async (request: RequestOptions = { authorization: app.basic }) =>
  console.ask('GET', url(), request)
const change = (
  ceilingUsdMicros: unknown,
  request: RequestOptions = { authorization: app.basic },
) => console.ask('PUT', url(), { ...request, json: { ceilingUsdMicros } })

const createPlan = (chargeThresholdUsd: string) =>
  console.ask('POST', `/api/v1/apps/${app.clientId}/plans`, {
    person: owner,
    json: { name: `up to ${chargeThresholdUsd}`, type: 'usage', chargeThresholdUsd },
  })

const defaults = {
  ceilingUsdMicros: '2000000',
  isDefault: true,
  minimumCeilingUsdMicros: '2000000',
  minimumChargeUsdMicros: '500000',
}

describe('the overage ceiling of an app', () => {
  it('is 2 USD, until the owner sets another one, which is audited', async () => {
    expect((await read()).body).toEqual({ clientId: app.clientId, ...defaults })
    const set = {
      clientId: app.clientId,
      ...defaults,
      ceilingUsdMicros: '7500000',
      isDefault: false,
    }
    expect(await change('7500000', { person: owner })).toMatchObject({ status: 200, body: set })
    expect((await read({ person: owner })).body).toEqual(set)
    expect(await change(null)).toMatchObject({ status: 200, body: defaults })
    const { rows } = await console.sql.query(
      `select details from audit_log where action = 'overage_ceiling_changed' order by created_at`,
    )
    expect(rows.slice(-2)).toEqual([
      { details: { ceilingUsdMicros: '7500000' } },
      { details: { ceilingUsdMicros: null } },
    ])
  })

  it('is never below what a plan collects at', async () => {
    expect((await change('1999999')).status).toBe(409)
    expect((await createPlan('5')).status).toBe(201)
    expect((await read()).body).toMatchObject({ minimumCeilingUsdMicros: '5500000' })
    expect((await change('5499999')).status).toBe(409)
    expect((await change('5500000')).status).toBe(200)
    expect((await createPlan('5.01')).status).toBe(409)
    expect((await createPlan('4.5')).status).toBe(201)
  })

  it.each([[0], ['0'], ['-1'], ['1.5'], ['1000000000001'], ['x'], ['']])(
    'refuses %j',
    async (amount) => {
      expect([400, 422]).toContain((await change(amount)).status)
      expect((await read()).body).toMatchObject(defaults)
    },
  )

  it('is set by the own M2M client, or by a session that may edit', async () => {
    const other = await console.newApp()
    expect((await change('3000000', { authorization: other.basic })).status).toBe(404)
    expect((await read({ authorization: other.basic })).status).toBe(404)
    const viewer = await logInTo(console, app, 'viewer')
    expect((await read({ person: viewer })).status).toBe(200)
    expect((await change('3000000', { person: viewer })).status).toBe(403)
    expect((await change('3000000', { person: await logIn(console) })).status).toBe(404)
    expect((await read()).body).toMatchObject(defaults)
  })
})
