import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { deriveCsrfToken } from '../../../../core/identity/accounts/sessions.ts'
import { type TestApp, day } from '../../../core/support.ts'
import { registerSecret } from '../../../support/run/secrecy.ts'
import { type Person, logIn, logInTo } from '../../../support/web/people.ts'
import { type Console, type RequestOptions, startConsole } from '../../console.ts'
import { asRecord } from '../../support.ts'
import { useApp } from './support.ts'

let console: Console
let app: TestApp
/** Uses the app, and is no member of it. */
let ada: Person
beforeAll(async () => {
  console = await startConsole({ env: { PAYMENT_PROCESSOR: 'simulated' } })
  app = await console.newApp()
  ada = await logIn(console)
  await useApp(console, app, ada)
})
afterAll(() => console.stop())

const none = '00000000-0000-4000-8000-000000000000'

/** Every route of a person's own use of an app, with its answer where nothing exists. Default: 200. */
const routes: { method: string; path: string; json?: unknown; answer?: number }[] = [
  { method: 'GET', path: '/usage?groupBy=day&include=retail' },
  { method: 'GET', path: '/usage/requests' },
  { method: 'GET', path: '/usage/balance' },
  { method: 'GET', path: '/subscription' },
  { method: 'GET', path: '/keys' },
  { method: 'DELETE', path: `/keys/${none}`, answer: 404 },
  { method: 'GET', path: '/logins' },
  { method: 'DELETE', path: `/logins/${none}`, answer: 404 },
  { method: 'GET', path: '/billing' },
  // The app pays for its users.
  { method: 'GET', path: '/billing/wallet', answer: 409 },
  { method: 'GET', path: '/billing/wallet/transactions', answer: 409 },
  {
    method: 'POST',
    path: '/billing/wallet/top-up',
    json: { amountUsd: '25.00' },
    answer: 409,
  },
  { method: 'POST', path: '/billing/payment-method', json: {}, answer: 409 },
  { method: 'GET', path: '/billing/invoices' },
]

const prefix = '/api/v1/internal/me/apps'

const send = (
  { method, path, json }: (typeof routes)[number],
  request: RequestOptions,
  { clientId }: { clientId: string } = app,
) =>
  console.send(method, `${prefix}/${clientId}${path}`, {
    ...(json !== undefined && { json }),
    ...request,
  })

const statusOf = async (...call: Parameters<typeof send>): Promise<number> => {
  const answer = await send(...call)
  await answer.body?.cancel()
  return answer.status
}

const read = async (path: string, person = ada): Promise<Record<string, unknown>> => {
  const answer = await send({ method: 'GET', path }, { person })
  expect(answer.status).toBe(200)
  return asRecord(await answer.json())
}

const list = (value: unknown) => (Array.isArray(value) ? value.map(asRecord) : [])

const listApps = async (person: Person): Promise<Record<string, unknown>[]> => {
  const answer = await console.send('GET', prefix, { person })
  expect(answer.status).toBe(200)
  return list(asRecord(await answer.json())['apps'])
}

const deactivate = (person: Person) =>
  console.ask(
    'DELETE',
    `/api/v1/apps/${app.clientId}/users?externalUserId=user:${person.accountId}`,
    { authorization: app.basic },
  )

describe.each(routes)('me: $method $path', (route) => {
  it('answers a user of the app', async () => {
    expect(await statusOf(route, { person: ada })).toBe(route.answer ?? 200)
  })

  it("refuses people who do not use the app, the app's members among them", async () => {
    expect(await statusOf(route, { person: await logInTo(console, app, 'viewer') })).toBe(404)
    expect(await statusOf(route, { person: await logInTo(console, app, 'owner') })).toBe(404)
    const admin = await logIn(console, { isPlatformAdmin: true })
    expect(await statusOf(route, { person: admin })).toBe(404)
    const other = await console.newApp()
    expect(await statusOf(route, { person: ada }, other)).toBe(404)
    for (const clientId of [app.m2mClientId, 'a%0D%0Ab', '%F0%9F%98%80', 'a%00b', '%20'])
      expect(await statusOf(route, { person: ada }, { clientId })).toBe(404)
  })

  it('refuses requests without a session, and ended sessions', async () => {
    expect(await statusOf(route, {})).toBe(401)
    expect(await statusOf(route, { authorization: app.basic })).toBe(401)
    const token = 'x'.repeat(43)
    const expired = { ...ada, token, csrf: deriveCsrfToken(token) }
    expect(await statusOf(route, { person: expired })).toBe(401)
  })
})

describe.each(routes.filter(({ method }) => method !== 'GET'))('me: $method $path', (route) => {
  it('needs the CSRF token and our origin', async () => {
    expect(await statusOf(route, { person: ada, headers: { 'x-csrf-token': 'wrong' } })).toBe(403)
    expect(await statusOf(route, { person: ada, headers: { origin: 'https://x.test' } })).toBe(403)
  })
})

describe('the apps in use', () => {
  it('are those that the person has logged in to', async () => {
    const eve = await logIn(console)
    expect(await listApps(eve)).toEqual([])
    const other = await console.newApp()
    await useApp(console, app, eve)
    console.clock.advance(1)
    await useApp(console, other, eve)
    expect(await listApps(eve)).toMatchObject([
      { clientId: app.clientId, appName: 'An app', status: 'active', deactivatedAt: null },
      { clientId: other.clientId },
    ])
    expect(await listApps(ada)).toMatchObject([{ clientId: app.clientId }])
    expect((await console.send('GET', prefix)).status).toBe(401)
  })

  it('show by how much the clock of a test app is ahead', async () => {
    const person = await logIn(console, { isPlatformAdmin: true })
    const json = { name: 'Timed', isTest: true }
    const created = await console.send('POST', '/api/v1/apps', { person, json })
    const timed = asRecord(await created.json())
    registerSecret(String(timed['m2mClientSecret']))
    const clientId = String(timed['clientId'])
    await useApp(console, { clientId }, person)
    console.clock.advance(1)
    await useApp(console, app, person)
    expect(await listApps(person)).toMatchObject([
      { clientId, clockAheadSeconds: 0 },
      { clientId: app.clientId, clockAheadSeconds: 0 },
    ])
    const to = new Date(console.clock.now().getTime() + 40 * day).toISOString()
    const moved = await console.send('POST', `/api/v1/apps/${clientId}/test-clock`, {
      person,
      json: { to },
    })
    expect(moved.status).toBe(200)
    await moved.body?.cancel()
    expect(await listApps(person)).toMatchObject([
      { clientId, clockAheadSeconds: (40 * day) / 1_000 },
      { clientId: app.clientId, clockAheadSeconds: 0 },
    ])
  })

  it('show the reason to a deactivated user, and refuse every route of the app', async () => {
    const eve = await logIn(console)
    await useApp(console, app, eve)
    expect((await deactivate(eve)).status).toBe(200)
    const [shown] = await listApps(eve)
    expect(shown).toMatchObject({ status: 'inactive' })
    expect(shown?.['deactivatedAt']).toEqual(expect.any(String))
    for (const route of routes) {
      const answer = await send(route, { person: eve })
      const { detail } = asRecord(await answer.json())
      expect({ ...route, status: answer.status, detail }).toMatchObject({
        status: 403,
        detail: 'the app has ended your access; ask its owner',
      })
    }
  })
})

describe("a person's own routes", () => {
  it('answer about the person, whomever the query names', async () => {
    await console.ask('POST', `/api/v1/apps/${app.clientId}/users`, {
      authorization: app.basic,
      json: { externalUserId: 'bob' },
    })
    const own = `user:${ada.accountId}`
    expect(await read('/usage/balance')).toMatchObject({ externalUserId: own })
    expect(await read('/subscription')).toMatchObject({ externalUserId: own })
    const get = (path: string) => statusOf({ method: 'GET', path }, { person: ada })
    expect(await get('/usage?externalUserId=bob')).toBe(400)
    expect(await get('/usage/balance?externalUserId=bob')).toBe(400)
    expect(await get('/usage/requests?userId=bob')).toBe(400)
  })

  it("revoke the person's own keys only", async () => {
    const create = async (externalUserId: string) => {
      const url = `/api/v1/apps/${app.clientId}/users/${encodeURIComponent(externalUserId)}/keys`
      const { body } = await console.ask('POST', url, { authorization: app.basic, json: {} })
      return String(body['keyId'])
    }
    const [mine, bobs] = [await create(`user:${ada.accountId}`), await create('bob')]
    expect(list((await read('/keys'))['keys'])).toMatchObject([{ keyId: mine, status: 'active' }])
    const revoke = (id: string) => send({ method: 'DELETE', path: `/keys/${id}` }, { person: ada })
    expect((await revoke(bobs)).status).toBe(404)
    const answer = await revoke(mine)
    expect(answer.status).toBe(200)
    expect(asRecord(await answer.json())).toMatchObject({ success: true, keyId: mine })
    expect(list((await read('/keys'))['keys'])).toMatchObject([{ status: 'revoked' }])
    const { rows } = await console.sql.query<{ actor: string }>(
      `select actor from audit_log where action = 'api_key_revoked' and status = 'success'`,
    )
    expect(rows).toEqual([{ actor: ada.accountId }])
  })

  it("end the person's own logins only, with their tokens", async () => {
    const eve = await logIn(console)
    const { accessToken, refreshToken } = await useApp(console, app, eve)
    const [login, ...others] = list((await read('/logins', eve))['logins'])
    expect(others).toEqual([])
    expect(login).toMatchObject({ oauthClientId: app.clientId, clientName: 'An app' })
    const userInfo = () =>
      console.send('GET', '/api/v1/oidc/me', { authorization: `Bearer ${accessToken}` })
    expect((await userInfo()).status).toBe(200)
    const end = { method: 'DELETE', path: `/logins/${String(login?.['loginId'])}` }
    expect(await statusOf(end, { person: ada })).toBe(404)
    expect(await statusOf(end, { person: eve })).toBe(200)
    expect(await statusOf(end, { person: eve })).toBe(404)
    expect((await userInfo()).status).toBe(401)
    const fields = { grant_type: 'refresh_token', refresh_token: refreshToken }
    const form = new URLSearchParams({ ...fields, client_id: app.clientId }).toString()
    const refreshed = await console.send('POST', '/api/v1/oidc/token', { form })
    expect(asRecord(await refreshed.json())).toMatchObject({ error: 'invalid_grant' })
    expect(list((await read('/logins', eve))['logins'])).toEqual([])
    const { rows } = await console.sql.query<{ actor: string; details: unknown }>(
      `select actor, details from audit_log where action = 'login_ended' and actor = $1`,
      [eve.accountId],
    )
    expect(rows).toMatchObject([{ details: { cause: 'login_revoked' } }])
  })

  it('list no login that has ended with what it descends from, or by itself', async () => {
    const eve = await logIn(console)
    await useApp(console, app, eve)
    await console.sql.query(
      'update token_families set grants = $1 where user_id in (select id from end_users where external_user_id = $2)',
      [[none], `user:${eve.accountId}`],
    )
    expect(list((await read('/logins', eve))['logins'])).toHaveLength(1)
    await console.sql.query(
      `insert into grant_ends (id, ends_before, cause, ended_at) values ($1, 'infinity', 'token_revoked', $2)`,
      [none, console.clock.now()],
    )
    expect(list((await read('/logins', eve))['logins'])).toEqual([])
    expect(list((await read('/logins'))['logins'])).toHaveLength(1)
    const before = console.clock.now()
    console.clock.advance(31 * day)
    await console.sql.query('update web_sessions set last_seen_at = $1', [console.clock.now()])
    expect(list((await read('/logins'))['logins'])).toEqual([])
    console.clock.set(before)
  })
})

describe('the money of a person', () => {
  const setMode = (of: TestApp, mode: string) =>
    console.sql.query(
      `insert into billing_settings (app_id, billing_mode, updated_at)
       select app_id, $2, $3 from clients where client_id = $1
       on conflict (app_id) do update set billing_mode = excluded.billing_mode`,
      [of.clientId, mode, console.clock.now()],
    )

  it('is never that of the owner, who pays for all users', async () => {
    await logInTo(console, app, 'owner')
    expect(await read('/billing')).toEqual({ billingMode: 'owner_rollup', chargesEnabled: false })
    for (const path of ['/billing/wallet', '/billing/wallet/transactions']) {
      const answer = await send({ method: 'GET', path }, { person: ada })
      expect(asRecord(await answer.json())).toMatchObject({
        status: 409,
        detail: 'this app pays for its users, so you have nothing to pay',
      })
    }
  })

  it('is its own in an app whose users pay', async () => {
    const shop = await console.newApp()
    await setMode(shop, 'merchant')
    await useApp(console, shop, ada)
    const at = async (path: string) => {
      const answer = await send({ method: 'GET', path }, { person: ada }, shop)
      return asRecord(await answer.json())
    }
    expect(await at('/billing')).toMatchObject({ billingMode: 'merchant' })
    const own = `user:${ada.accountId}`
    expect(await at('/billing/wallet')).toMatchObject({ billingMode: 'merchant', payer: own })
    expect(list((await at('/billing/wallet/transactions'))['items'])).toMatchObject([
      { type: 'credit_granted' },
    ])
    await console.as(shop.basic).upsertUser({ clientId: shop.clientId, externalUserId: 'bob' })
    const correction = { clientId: shop.clientId, amountUsdMicros: '10', author: 'ops' }
    for (const externalUserId of ['bob', own])
      await console.as().createAdjustment({ ...correction, externalUserId, reason: 'a secret' })
    // Neither the correction of another user nor the operator's words.
    expect(list((await at('/billing/wallet/transactions'))['items'])).toMatchObject([
      { type: 'adjustment', description: 'Correction' },
      { type: 'credit_granted' },
    ])
    expect(await at('/billing/invoices')).toMatchObject({ items: [], totalCount: 0 })
    const topUp = { method: 'POST', path: '/billing/wallet/top-up', json: { amountUsd: '5.00' } }
    // The app has connected no account of its own.
    expect(await statusOf(topUp, { person: ada }, shop)).toBe(403)
    const named: (typeof routes)[number][] = [
      { ...topUp, json: { amountUsd: '5.00', externalUserId: 'bob' } },
      { method: 'POST', path: '/billing/payment-method', json: { payer: 'owner' } },
      { method: 'GET', path: '/billing/wallet?externalUserId=bob' },
      { method: 'GET', path: '/billing/wallet/transactions?payer=owner' },
      { method: 'GET', path: '/billing/invoices?externalUserId=bob' },
    ]
    for (const request of named) expect(await statusOf(request, { person: ada }, shop)).toBe(400)
  })
})

it('lists every such route in the internal document, and none in the public one', async () => {
  const readPaths = async (path: string) => {
    const answer = await console.send('GET', path, { person: ada })
    return Object.entries(asRecord(asRecord(await answer.json())['paths'])).flatMap(
      ([url, operations]) =>
        Object.keys(asRecord(operations)).map((method) => `${method.toUpperCase()} ${url}`),
    )
  }
  const listed = (await readPaths('/api/v1/internal/openapi.json'))
    .filter((each) => each.includes(`${prefix}/`))
    .map((each) => each.replaceAll(/\{(?!clientId)\w+\}/g, '{}'))
  const tested = routes.map(({ method, path }) => {
    const url = path.replace(/\?.*$/, '').replaceAll(none, '{}')
    return `${method} ${prefix}/{clientId}${url}`
  })
  expect(listed.toSorted()).toEqual(tested.toSorted())
  const documented = await readPaths('/api/v1/openapi.json')
  expect(documented.filter((each) => each.includes(prefix))).toEqual([])
})
