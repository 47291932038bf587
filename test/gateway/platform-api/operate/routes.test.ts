import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { deriveCsrfToken } from '../../../../core/identity/accounts/sessions.ts'
import type { TestApp } from '../../../core/support.ts'
import { registerSecret } from '../../../support/run/secrecy.ts'
import { type Person, logIn, logInTo } from '../../../support/web/people.ts'
import { type Console, type RequestOptions, startConsole } from '../../console.ts'
import { asRecord } from '../../support.ts'

let console: Console
let app: TestApp
let admin: Person
/** Owns an app, but is no platform admin. */
let owner: Person
beforeAll(async () => {
  console = await startConsole()
  app = await console.newApp()
  admin = await logIn(console, { isPlatformAdmin: true })
  owner = await logInTo(console, app, 'owner')
})
afterAll(() => console.stop())

const none = '00000000-0000-4000-8000-000000000000'

/** Every route for platform admins, with their answer where nothing exists yet. Default: 200. */
const routes: { method: string; path: string; json?: unknown; answer?: number }[] = [
  { method: 'GET', path: '/quarantine' },
  { method: 'GET', path: `/quarantine/${none}`, answer: 404 },
  { method: 'POST', path: '/quarantine/redrive', json: { reason: 'unattributed' } },
  { method: 'POST', path: `/quarantine/${none}/redrive`, json: {}, answer: 404 },
  {
    method: 'POST',
    path: `/quarantine/${none}/attribute`,
    json: { clientId: 'x', externalUserId: 'ada' },
    answer: 404,
  },
  { method: 'POST', path: `/quarantine/${none}/discard`, json: { reason: 'a test' }, answer: 404 },
  { method: 'GET', path: '/signers' },
  {
    method: 'POST',
    path: '/signers',
    json: { name: 'north', allApps: false, clientIds: ['x'], mayPushEvents: true },
    answer: 404,
  },
  { method: 'PUT', path: `/signers/${none}`, json: { allApps: true, clientIds: [] }, answer: 404 },
  { method: 'POST', path: `/signers/${none}/rotate`, json: { overlapSeconds: 0 }, answer: 404 },
  { method: 'DELETE', path: `/signers/${none}`, answer: 404 },
  { method: 'GET', path: '/ingest' },
  { method: 'GET', path: '/outbox' },
  { method: 'POST', path: '/outbox/retry', json: {} },
  { method: 'GET', path: '/holds' },
  { method: 'GET', path: '/losses' },
  { method: 'GET', path: '/catalog' },
  { method: 'GET', path: '/test-clocks' },
  { method: 'GET', path: '/configuration' },
  { method: 'GET', path: '/signing-keys' },
  { method: 'POST', path: '/signing-keys/rotate', json: {}, answer: 409 },
  { method: 'GET', path: '/apps' },
  { method: 'GET', path: '/checks' },
  { method: 'POST', path: `/checks/${none}/start`, json: {}, answer: 404 },
  { method: 'GET', path: '/processor-differences' },
  {
    method: 'POST',
    path: `/processor-differences/${none}/resolve`,
    json: { resolution: 'refunded by hand' },
    answer: 404,
  },
]
const changing = routes.filter(({ method }) => method !== 'GET')

async function statusOf(
  { method, path, json }: (typeof routes)[number],
  request: RequestOptions,
): Promise<number> {
  const answer = await console.send(method, `/api/v1/internal/operate${path}`, {
    ...(json !== undefined && { json }),
    ...request,
  })
  await answer.body?.cancel()
  return answer.status
}

describe.each(routes)('operate: $method $path', (route) => {
  it('answers a platform admin', async () => {
    expect(await statusOf(route, { person: admin })).toBe(route.answer ?? 200)
  })

  it("refuses an app's people, strangers and clients", async () => {
    expect(await statusOf(route, { person: owner })).toBe(403)
    const viewer = await logInTo(console, app, 'viewer')
    expect(await statusOf(route, { person: viewer })).toBe(403)
    expect(await statusOf(route, {})).toBe(401)
    expect(await statusOf(route, { authorization: app.basic })).toBe(401)
    const token = 'x'.repeat(43)
    const expired = { ...admin, token, csrf: deriveCsrfToken(token) }
    expect(await statusOf(route, { person: expired })).toBe(401)
  })
})

describe.each(changing)('operate: $method $path', (route) => {
  it('needs the CSRF token and our origin', async () => {
    expect(await statusOf(route, { person: admin, headers: { 'x-csrf-token': 'wrong' } })).toBe(403)
    expect(await statusOf(route, { person: admin, headers: { origin: 'https://x.test' } })).toBe(
      403,
    )
  })

  it('is recorded with the account of the platform admin, and of no other person', async () => {
    await console.sql.query('delete from audit_log')
    await statusOf(route, { person: owner })
    await statusOf(route, { person: admin })
    const { rows } = await console.sql.query<{ actor: string; status: string }>(
      `select actor, status from audit_log where action = 'operator_command'`,
    )
    const status = (route.answer ?? 200) < 300 ? 'success' : 'refused'
    expect(rows).toEqual([{ actor: admin.accountId, status }])
  })
})

it('shows the secrets of a signer again only for the same Idempotency-Key', async () => {
  const send = async (path: string, key: string, json: object) => {
    const url = `/api/v1/internal/operate/signers${path}`
    const headers = { 'idempotency-key': key }
    const answer = await console.send('POST', url, { person: admin, headers, json })
    const { correlation_id: _, ...body } = asRecord(JSON.parse(await answer.text()))
    if (typeof body['secret'] === 'string') registerSecret(body['secret'])
    return { status: answer.status, ...body }
  }
  const signer = { name: 'east', allApps: true, clientIds: [], mayPushEvents: false }
  const created = await send('', 'one', signer)
  expect(created).toMatchObject({ status: 201, secret: expect.stringMatching(/^svc_sg_/) })
  expect(await send('', 'one', signer)).toEqual(created)
  expect(await send('', 'two', signer)).toMatchObject({ status: 409, code: 'conflict' })
  const rotated = await send('/east/rotate', 'three', { overlapSeconds: 0 })
  expect(await send('/east/rotate', 'three', { overlapSeconds: 0 })).toEqual(rotated)
  expect(await send('/east/rotate', 'three', { overlapSeconds: 9 })).toMatchObject({
    status: 409,
    code: 'idempotency_conflict',
  })
  expect((await send('/east/rotate', 'a key with spaces', { overlapSeconds: 0 })).status).toBe(400)
  // Another platform admin's keys are separate.
  const other = await logIn(console, { isPlatformAdmin: true })
  const answer = await console.send('POST', '/api/v1/internal/operate/signers', {
    person: other,
    headers: { 'idempotency-key': 'one' },
    json: signer,
  })
  expect(answer.status).toBe(409)
})

it('lists all apps by a part of the name or the client id, with their owners', async () => {
  const list = async (query: string) => {
    const url = `/api/v1/internal/operate/apps${query}`
    const answer = await console.send('GET', url, { person: admin })
    expect(answer.status).toBe(200)
    const body: { apps: { clientId: string }[]; nextCursor?: string } = JSON.parse(
      await answer.text(),
    )
    return body
  }
  const other = await console.newApp()
  await console.sql.query(
    `update apps a set name = '100% Ökostrom' from clients c where c.app_id = a.id and c.client_id = $1`,
    [other.clientId],
  )
  const { apps } = await list(`?search=${app.clientId}`)
  expect(apps).toMatchObject([
    {
      clientId: app.clientId,
      status: 'active',
      ownerEmails: expect.arrayContaining([owner.email]),
    },
  ])
  for (const search of ['100%25', 'KOstrom'])
    expect((await list(`?search=${search}`)).apps.map(({ clientId }) => clientId)).toEqual([
      other.clientId,
    ])
  expect((await list('?search=%25%25')).apps).toEqual([])
  const first = await list('?limit=1')
  const second = await list(`?limit=1&cursor=${first.nextCursor}`)
  expect(first.apps[0]?.clientId).not.toBe(second.apps[0]?.clientId)
})

it('lists every such route in the internal document, and none in the public one', async () => {
  const read = async (path: string) => {
    const answer = await console.send('GET', path, { person: owner })
    return Object.entries(asRecord(asRecord(await answer.json())['paths'])).flatMap(
      ([url, operations]) =>
        Object.keys(asRecord(operations)).map((method) => `${method.toUpperCase()} ${url}`),
    )
  }
  const prefix = '/api/v1/internal/operate'
  const listed = (await read('/api/v1/internal/openapi.json'))
    .filter((each) => each.includes(`${prefix}/`))
    .map((each) => each.replaceAll(/\{\w+\}/g, '{}'))
  const tested = routes.map(({ method, path }) => {
    const url = path.replace(/\?.*$/, '').replaceAll(none, '{}')
    return `${method} ${prefix}${url}`
  })
  expect(listed.toSorted()).toEqual(tested.toSorted())
  expect((await read('/api/v1/openapi.json')).filter((each) => each.includes(prefix))).toEqual([])
})
