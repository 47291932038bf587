import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type Person, logIn } from '../../../support/web/people.ts'
import type { TestApp } from '../../../core/support.ts'
import { type Console, startConsole } from '../../console.ts'

let console: Console
let app: TestApp
let admin: Person
beforeAll(async () => {
  console = await startConsole()
  app = await console.newApp()
  admin = await logIn(console, { isPlatformAdmin: true })
})
afterAll(() => console.stop())

const noApp = `app_${'0'.repeat(24)}`
const credit = (clientId: string = app.clientId) => `/api/v1/quotas/credit/${clientId}`
const accounts = '/api/v1/quotas/accounts'
const network = '/api/v1/quotas/network'
const accountOf = (json: object) => ({ path: () => accounts, json })

describe('quotas', () => {
  it("are read and changed by platform admins, and reset to the deployment's by null", async () => {
    const person = await logIn(console)
    const put = (path: string, json: object) => console.ask('PUT', path, { person: admin, json })
    const of = (email: string) => `${accounts}?email=${encodeURIComponent(email)}`
    const { body: before } = await console.ask('GET', credit(), { person: admin })
    expect((await put(credit(), { maxUsdMicros: '25' })).body['maxUsdMicros']).toBe('25')
    expect((await put(credit(), { maxUsdMicros: null })).body).toEqual(before)
    const { body: owner } = await console.ask('GET', of(person.email), { person: admin })
    expect(owner).toMatchObject({ email: person.email, apps: 0 })
    const ofNetwork = `${network}?email=${encodeURIComponent(person.email)}`
    const { body: cost } = await console.ask('GET', ofNetwork, { person: admin })
    expect(cost).toMatchObject({ email: person.email, unpaidUsdMicros: '0' })
    const more = await put(network, { email: person.email, maxUsdMicros: '25' })
    expect(more).toMatchObject({
      status: 410,
      body: { code: 'route_gone', detail: expect.stringContaining("the owner's account bounds") },
    })
    const raised = await put(accounts, { email: person.email, appsMax: 3 })
    expect(raised.body['appsMax']).toBe(3)
    expect((await put(accounts, { email: person.email, appsMax: null })).body).toEqual(owner)
  })

  it('are only accessible to platform admins', async () => {
    const person = await logIn(console)
    const json = { maxUsdMicros: '1' }
    const ofAccount = { email: person.email, appsMax: 1_000 }
    const attempts = [
      () => console.ask('GET', credit(), { person }),
      () => console.ask('PUT', credit(), { person, json }),
      () => console.ask('GET', `${accounts}?email=${person.email}`, { person }),
      () => console.ask('PUT', accounts, { person, json: ofAccount }),
      () => console.ask('GET', `${network}?email=${person.email}`, { person }),
    ]
    for (const attempt of attempts) expect((await attempt()).status).toBe(403)
    expect((await console.ask('GET', credit())).status).toBe(401)
  })

  it.each([
    ['an invalid amount', 422, { path: () => credit(), json: { maxUsdMicros: '-1' } }],
    ['a quota above the maximum', 400, accountOf({ email: 'a@b.test', appsMax: 1_000_001 })],
    ['an unknown address', 404, accountOf({ email: 'nobody@b.test', appsMax: 1 })],
    ['an unknown app', 404, { path: () => credit(noApp), json: { maxUsdMicros: '1' } }],
  ])('refuse %s', async (_what, status, { path, json }) => {
    expect((await console.ask('PUT', path(), { person: admin, json })).status).toBe(status)
  })
})
