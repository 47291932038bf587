import { describe, expect, it, onTestFinished } from 'vitest'
import { attos, startSidecar } from '../../../core/balances/escrow/granting.ts'
import { logInTo } from '../../../support/web/people.ts'
import { type RequestOptions, startConsole } from '../../console.ts'
import { asRecord } from '../../support.ts'
import { app, console, person as viewer, setUpApp } from '../support.ts'

setUpApp('viewer')

/**
 * The routes of an app's backend that its members may also call, under /api/v1/internal. Users exist
 * only where the path has `ada`.
 */
const routes: {
  method: string
  path: string
  json?: unknown
  least: 'viewer' | 'admin'
  answer?: number
}[] = [
  { method: 'GET', path: '/users', least: 'viewer' },
  { method: 'POST', path: '/users', json: { externalUserId: 'ada' }, least: 'admin' },
  { method: 'PUT', path: '/users', json: { externalUserId: 'ada' }, least: 'admin' },
  { method: 'DELETE', path: '/users?externalUserId=ada', least: 'admin' },
  { method: 'GET', path: '/users/ada/keys', least: 'viewer' },
  { method: 'POST', path: '/users/ada/keys', json: {}, least: 'admin', answer: 201 },
  { method: 'DELETE', path: '/users/ada/keys?keyId=x', least: 'admin', answer: 404 },
  { method: 'GET', path: '/users/ada/signer-sessions', least: 'viewer' },
  {
    method: 'DELETE',
    path: '/users/ada/signer-sessions?sessionId=x',
    least: 'admin',
    answer: 404,
  },
  { method: 'GET', path: '/users/ada/allowances', least: 'viewer' },
  {
    method: 'POST',
    path: '/users/ada/allowances',
    json: { amountUsdMicros: '1000000' },
    least: 'admin',
  },
  { method: 'GET', path: '/users/ada/limits', least: 'viewer' },
  { method: 'PUT', path: '/users/ada/limits', json: { callsPerMinute: 5 }, least: 'admin' },
  { method: 'DELETE', path: '/users/ada/limits', least: 'admin' },
  { method: 'GET', path: '/users/ada/keys/x/limits', least: 'viewer', answer: 404 },
  {
    method: 'PUT',
    path: '/users/ada/keys/x/limits',
    json: { callsPerMinute: 5 },
    least: 'admin',
    answer: 404,
  },
  { method: 'DELETE', path: '/users/ada/keys/x/limits', least: 'admin', answer: 404 },
  // This gateway has no webhook; test/e2e/dashboard/setup.test.ts has the answers of one.
  {
    method: 'POST',
    path: '/signer/test-call',
    json: { externalUserId: 'ada' },
    least: 'admin',
    answer: 409,
  },
  { method: 'GET', path: '/catalog', least: 'viewer' },
  { method: 'GET', path: '/payments?state=refunded&since=2026-01-01', least: 'viewer' },
  { method: 'GET', path: '/billing/balance', least: 'viewer' },
  { method: 'GET', path: '/billing/payouts?limit=50', least: 'viewer' },
  { method: 'GET', path: '/users/ada/holds', least: 'viewer' },
  { method: 'GET', path: '/usage?groupBy=day', least: 'viewer' },
  { method: 'GET', path: '/usage/balance?externalUserId=ada', least: 'viewer' },
  { method: 'GET', path: '/usage/loss', least: 'viewer' },
  { method: 'GET', path: '/usage/requests', least: 'viewer' },
  { method: 'GET', path: '/usage/stream', least: 'viewer' },
]

/** Sends a request to the dashboard's own address of a route. Does not read an endless answer. */
async function statusOf(
  { method, path, json }: (typeof routes)[number],
  request: RequestOptions,
): Promise<number> {
  const url = `/api/v1/internal/apps/${app.clientId}${path}`
  const answer = await console.send(method, url, {
    ...(json !== undefined && { json }),
    ...request,
  })
  await answer.body?.cancel()
  return answer.status
}

describe.each(routes)('members: $method $path', (route) => {
  it('answers a member with the least role', async () => {
    await console.ask('POST', `/api/v1/apps/${app.clientId}/users`, {
      authorization: app.basic,
      json: { externalUserId: 'ada' },
    })
    const member = route.least === 'viewer' ? viewer : await logInTo(console, app, 'admin')
    expect(await statusOf(route, { person: member })).toBe(route.answer ?? 200)
  })

  it('refuses strangers and clients', async () => {
    expect(await statusOf(route, {})).toBe(401)
    expect(await statusOf(route, { authorization: app.basic })).toBe(401)
    const other = await logInTo(console, await console.newApp(), 'owner')
    expect(await statusOf(route, { person: other })).toBe(404)
  })
})

describe.each(routes.filter(({ method }) => method !== 'GET'))(
  'members: $method $path',
  (route) => {
    it('refuses a viewer', async () => {
      expect(await statusOf(route, { person: viewer })).toBe(403)
    })

    it('needs the CSRF token', async () => {
      const admin = await logInTo(console, app, 'admin')
      const headers = { 'x-csrf-token': 'wrong' }
      expect(await statusOf(route, { person: admin, headers })).toBe(403)
    })
  },
)

it('lists every such route in the internal document, and none in the public one', async () => {
  const read = async (path: string) => {
    const answer = await console.send('GET', path, { person: viewer })
    return Object.entries(asRecord(asRecord(await answer.json())['paths'])).flatMap(
      ([url, operations]) =>
        Object.keys(asRecord(operations)).map((method) => `${method.toUpperCase()} ${url}`),
    )
  }
  const prefix = '/api/v1/internal/apps/{clientId}'
  const listed = (await read('/api/v1/internal/openapi.json')).filter((each) =>
    each.includes(prefix),
  )
  const tested = routes.map(({ method, path }) => {
    const url = path
      .replace(/\?.*$/, '')
      .replace('/users/ada', '/users/{externalUserId}')
      .replace('/keys/x', '/keys/{keyId}')
    return `${method} ${prefix}${url}`
  })
  expect(new Set(listed)).toEqual(new Set(tested))
  const documented = await read('/api/v1/openapi.json')
  expect(documented.filter((each) => each.includes('/internal/'))).toEqual([])
})

it('shows a member what is held of a user, and until when', async () => {
  const read = (user: string) =>
    console.ask('GET', `/api/v1/internal/apps/${app.clientId}/users/${user}/holds`, {
      person: viewer,
    })
  await console.ask('POST', `/api/v1/apps/${app.clientId}/users`, {
    authorization: app.basic,
    json: { externalUserId: 'eve' },
  })
  expect(await read('eve')).toMatchObject({
    status: 200,
    body: { lentUsdAttos: '0', pendingUsdAttos: '0', pendingCount: '0', leases: [], calls: [] },
  })
  const sidecar = await startSidecar(console.as(), 'sidecar-1')
  await sidecar.lend(app, 'eve', { boundUsdAttos: attos(0.1) })
  await sidecar.reserve(app, 'eve', { bound: 0.25, sequence: 7 })
  const { body } = await read('eve')
  expect(body).toMatchObject({
    pendingUsdAttos: attos(0.25),
    pendingCount: '1',
    leases: [{ sidecarId: 'sidecar-1', recalled: false }],
    calls: [{ sequence: '7', sidecarId: 'sidecar-1', state: 'unproven', calls: 1 }],
    eventLagSeconds: 20,
    holdMaxSeconds: 900,
  })
  expect((await read('nobody')).status).toBe(404)
})

it('reports for members, too, that no metering backend is configured', async () => {
  const unmetered = await startConsole({ env: { METERING_BACKEND: 'none' } })
  onTestFinished(() => unmetered.stop())
  const other = await unmetered.newApp()
  const admin = await logInTo(unmetered, other, 'admin')
  const credit = { json: { amountUsdMicros: '1000000' }, person: admin }
  for (const [method, path, request] of [
    ['POST', '/users/ada/allowances', credit],
    ['GET', '/users/ada/allowances', { person: admin }],
    ['GET', '/usage/balance?externalUserId=ada', { person: admin }],
    ['GET', '/usage', { person: admin }],
  ] as const) {
    const url = `/api/v1/internal/apps/${other.clientId}${path}`
    const answer = await unmetered.send(method, url, request)
    expect({ path, status: answer.status }).toEqual({ path, status: 503 })
  }
})

it("takes no session at the backend's own address", async () => {
  const { status } = await console.send('GET', `/api/v1/apps/${app.clientId}/users`, {
    person: viewer,
  })
  expect(status).toBe(401)
})
