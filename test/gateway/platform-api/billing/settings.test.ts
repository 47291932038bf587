import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { TestApp } from '../../../core/support.ts'
import { type Person, logIn, logInTo } from '../../../support/web/people.ts'
import { type Console, type RequestOptions, startConsole } from '../../console.ts'
import { asRecord } from '../../support.ts'

let console: Console
let app: TestApp
let admin: Person
let owner: Person
beforeAll(async () => {
  console = await startConsole()
  app = await console.newApp()
  admin = await logIn(console, { isPlatformAdmin: true })
  owner = await logInTo(console, app, 'owner')
})
afterAll(() => console.stop())

const url = (clientId: string = app.clientId) => `/api/v1/apps/${clientId}/billing/settings`
const read = async (request: RequestOptions = { authorization: app.basic }) =>
  (await console.ask('GET', url(), request)).body
const change = (json: object, request: RequestOptions = { person: admin }) =>
  console.ask('PUT', url(), { ...request, json })

const minuteMs = 60_000

describe('billing settings of an app', () => {
  it('are changed by platform admins, field by field, and audited', async () => {
    const before = await read()
    expect(before).toMatchObject({
      clientId: app.clientId,
      billingMode: 'owner_rollup',
      endUserCap: 10_000,
      isDefaultCap: true,
      isPlatformOwned: false,
      servesEveryApp: false,
      platformCutPercent: null,
      plannedCuts: [],
    })
    const since = new Date(console.clock.now().getTime() + minuteMs).toISOString()
    const { status, body } = await change({ endUserCap: 3, platformCutPercent: 12.5 })
    expect([status, body]).toEqual([
      200,
      {
        ...before,
        endUserCap: 3,
        isDefaultCap: false,
        plannedCuts: [{ percent: 12.5, since }],
      },
    ])
    expect((await change({ billingMode: 'merchant', isPlatformOwned: true })).body).toEqual({
      ...body,
      billingMode: 'merchant',
      isPlatformOwned: true,
    })
    console.clock.advance(minuteMs)
    expect(await read()).toMatchObject({ platformCutPercent: 12.5, plannedCuts: [] })
    const { rows } = await console.sql.query(
      `select actor, details from audit_log where action = 'billing_settings_changed' order by details ->> 'billingMode' nulls first`,
    )
    expect(rows).toEqual([
      { actor: admin.accountId, details: { endUserCap: 3, platformCutPercent: '12.5', since } },
      { actor: admin.accountId, details: { billingMode: 'merchant', isPlatformOwned: true } },
    ])
    await change({ endUserCap: null, platformCutPercent: 0 })
    console.clock.advance(minuteMs)
    // A cut of 0 is not the same as no cut.
    expect(await read()).toMatchObject({ isDefaultCap: true, platformCutPercent: 0 })
    await change({ platformCutPercent: null })
    console.clock.advance(minuteMs)
    expect(await read()).toMatchObject({ platformCutPercent: null })
  })

  it("are in the app's metadata for its members, but not for its M2M client", async () => {
    const path = `/api/v1/apps/${app.clientId}`
    const { body } = await console.ask('GET', path, { person: owner })
    expect(asRecord(body['billing'])).toEqual(await read({ person: owner }))
    const ofM2m = await console.ask('GET', path, { authorization: app.basic })
    expect(ofM2m.body).not.toHaveProperty('billing')
  })

  it('protect the platform: the owner cannot change them', async () => {
    const before = await read()
    const json = { platformCutPercent: 0 }
    expect((await change(json, { person: owner })).status).toBe(403)
    expect((await change(json, { authorization: app.basic })).status).toBe(401)
    expect((await change(json, {})).status).toBe(401)
    expect(await read()).toEqual(before)
    const other = await console.newApp()
    expect((await console.ask('GET', url(), { authorization: other.basic })).status).toBe(404)
    expect((await console.ask('GET', url())).status).toBe(404)
    const unknown = url(`app_${'0'.repeat(24)}`)
    expect((await console.ask('PUT', unknown, { person: admin, json })).status).toBe(404)
  })

  it.each([
    { billingMode: 'both' },
    { endUserCap: 0 },
    { endUserCap: 1.5 },
    { endUserCap: 1_000_001 },
    { endUserCap: '5' },
    { platformCutPercent: -1 },
    { platformCutPercent: 100.01 },
    { platformCutPercent: 1.005 },
    { platformCutPercent: 1e-7 },
    { platformCutPercent: '10' },
    { isPlatformOwned: 'yes' },
    { platformCut: 5 },
  ])('reject %j without any change', async (wrong) => {
    const before = await read()
    expect((await change({ isPlatformOwned: false, ...wrong })).status).toBe(400)
    expect(await read()).toEqual(before)
  })
})
