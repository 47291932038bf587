import { afterAll, beforeAll, expect, it } from 'vitest'
import type { TestApp } from '../../../core/support.ts'
import { logInTo } from '../../../support/web/people.ts'
import { type Console, type RequestOptions, startConsole } from '../../console.ts'

let console: Console
let app: TestApp
beforeAll(async () => {
  console = await startConsole({ env: { PAYMENT_PROCESSOR: 'simulated' } })
  app = await console.newApp()
})
afterAll(() => console.stop())

const collect = (json: object, request: RequestOptions = { authorization: app.basic }) =>
  console.ask('POST', `/api/v1/apps/${app.clientId}/billing/collect`, { ...request, json })

it('skips an owner who owes nothing, and needs edit rights', async () => {
  const skipped = { status: 200, body: { outcome: 'skipped', invoiceIds: [] } }
  const owner = await logInTo(console, app, 'owner')
  expect(await collect({}, { person: owner })).toMatchObject(skipped)
  expect(await collect({})).toMatchObject(skipped)
  const viewer = await logInTo(console, app, 'viewer')
  expect((await collect({}, { person: viewer })).status).toBe(403)
  expect((await collect({}, {})).status).toBe(404)
  expect((await collect({ amountUsd: '5' })).status).toBe(400)
})

it('names the user in billing mode merchant, and needs a connected account', async () => {
  await console.sql.query(
    `insert into billing_settings (app_id, billing_mode, updated_at)
     select app_id, 'merchant', now() from clients where client_id = $1
     on conflict (app_id) do update set billing_mode = 'merchant'`,
    [app.clientId],
  )
  expect((await collect({})).status).toBe(400)
  expect((await collect({ externalUserId: 'nobody' })).status).toBe(404)
  await console.as().getAccess({ clientId: app.clientId, externalUserId: 'ada' })
  expect(await collect({ externalUserId: 'ada' })).toMatchObject({
    status: 503,
    body: { code: 'processor_not_connected', outcome: 'unavailable' },
  })
})
