import { describe, expect, it } from 'vitest'
import { basicOf } from '../../../core/support.ts'
import { logIn, logInTo } from '../../../support/web/people.ts'
import type { RequestOptions } from '../../console.ts'
import { person as owner, console, app, setUpApp, status } from '../support.ts'

setUpApp('owner')

/**
 * Every route for an app's members: a valid request, an invalid one, the least role, and the status
 * without a credential.
 */
const routes: {
  method: string
  path: string
  good?: RequestOptions
  bad?: { path?: string; json?: unknown }
  least: 'viewer' | 'admin' | 'owner'
  nobody: 401 | 404
  /** Status with a wrong secret or an expired session. Default: 401. */
  wrong?: 401 | 404
}[] = [
  { method: 'GET', path: '', least: 'viewer', nobody: 404 },
  {
    method: 'PUT',
    path: '',
    good: { json: { name: 'Other' } },
    bad: { json: { name: 5 } },
    least: 'admin',
    nobody: 401,
  },
  { method: 'GET', path: '/admins', least: 'viewer', nobody: 401 },
  {
    method: 'PUT',
    path: '/admins',
    bad: { json: { email: 'x', role: 'king' } },
    least: 'admin',
    nobody: 401,
  },
  {
    method: 'DELETE',
    path: '/admins?accountId=00000000-0000-0000-0000-000000000000',
    bad: { path: '/admins' },
    least: 'admin',
    nobody: 401,
  },
  {
    method: 'POST',
    path: '/credentials?target=m2m',
    bad: { path: '/credentials?target=m2m&revokeOld=maybe' },
    least: 'admin',
    nobody: 401,
  },
  { method: 'GET', path: '/signer-secrets', least: 'owner', nobody: 401 },
  {
    method: 'POST',
    path: '/signer-secrets',
    good: { json: { purpose: 'events' } },
    bad: { json: { purpose: 'everything' } },
    least: 'owner',
    nobody: 401,
  },
  {
    method: 'DELETE',
    path: '/signer-secrets?secretId=x',
    bad: { path: '/signer-secrets' },
    least: 'owner',
    nobody: 401,
  },
  { method: 'GET', path: '/trusted-issuers', least: 'viewer', nobody: 401 },
  { method: 'POST', path: '/trusted-issuers', bad: { json: {} }, least: 'admin', nobody: 401 },
  {
    method: 'POST',
    path: '/trusted-issuers/check',
    good: { json: { token: 'a.b.c' } },
    bad: { json: { token: '' } },
    least: 'admin',
    nobody: 401,
  },
  {
    method: 'PUT',
    path: '/trusted-issuers?issuerId=x',
    bad: { path: '/trusted-issuers', json: {} },
    least: 'admin',
    nobody: 401,
  },
  {
    method: 'DELETE',
    path: '/trusted-issuers?issuerId=x',
    bad: { path: '/trusted-issuers' },
    least: 'admin',
    nobody: 401,
  },
  { method: 'GET', path: '/webhook-endpoints', least: 'viewer', nobody: 404 },
  {
    method: 'POST',
    path: '/webhook-endpoints',
    bad: { json: { url: '' } },
    least: 'admin',
    nobody: 401,
  },
  { method: 'GET', path: '/webhook-endpoints/x', least: 'viewer', nobody: 404 },
  {
    method: 'PUT',
    path: '/webhook-endpoints/x',
    good: { json: {} },
    bad: { json: { status: 'odd' } },
    least: 'admin',
    nobody: 401,
  },
  { method: 'DELETE', path: '/webhook-endpoints/x', least: 'admin', nobody: 401 },
  {
    method: 'POST',
    path: '/webhook-endpoints/x/rotate-secret',
    good: { json: {} },
    bad: { json: { overlapSeconds: -1 } },
    least: 'admin',
    nobody: 401,
  },
  { method: 'POST', path: '/webhook-endpoints/x/ping', least: 'admin', nobody: 401 },
  {
    method: 'GET',
    path: '/webhook-endpoints/x/deliveries',
    bad: { path: '/webhook-endpoints/x/deliveries?limit=0' },
    least: 'viewer',
    nobody: 404,
  },
  {
    method: 'POST',
    path: '/webhook-endpoints/x/deliveries/replay',
    good: { json: { failedSince: '2026-01-01' } },
    bad: { json: { deliveryId: 5 } },
    least: 'admin',
    nobody: 401,
  },
  { method: 'GET', path: '/domains', least: 'viewer', nobody: 401 },
  { method: 'POST', path: '/domains', bad: { json: {} }, least: 'admin', nobody: 401 },
  {
    method: 'DELETE',
    path: '/domains?domainId=x',
    bad: { path: '/domains' },
    least: 'admin',
    nobody: 401,
  },
  { method: 'GET', path: '/audit', bad: { path: '/audit?limit=0' }, least: 'admin', nobody: 401 },
  {
    method: 'GET',
    path: '/audit/export',
    bad: { path: '/audit/export?since=yesterday' },
    least: 'admin',
    nobody: 401,
  },
  { method: 'GET', path: '/signer/routing', least: 'viewer', nobody: 404 },
  { method: 'GET', path: '/billing', least: 'viewer', nobody: 404, wrong: 404 },
  { method: 'GET', path: '/billing/settings', least: 'viewer', nobody: 404 },
  { method: 'GET', path: '/billing/processor', least: 'viewer', nobody: 404 },
  { method: 'DELETE', path: '/billing/processor', least: 'owner', nobody: 401 },
  { method: 'GET', path: '/manifest', least: 'viewer', nobody: 404 },
  {
    method: 'PUT',
    path: '/manifest',
    good: { json: { excludedCapabilities: [] } },
    bad: { json: { excludedCapabilities: 'all' } },
    least: 'admin',
    nobody: 401,
  },
  { method: 'GET', path: '/discovery-profiles', least: 'viewer', nobody: 404 },
  {
    method: 'POST',
    path: '/discovery-profiles',
    bad: { json: { name: 'x', topN: 5 } },
    least: 'admin',
    nobody: 401,
  },
  { method: 'GET', path: '/discovery-profiles/x', least: 'viewer', nobody: 404 },
  {
    method: 'PUT',
    path: '/discovery-profiles/x',
    good: { json: {} },
    bad: { json: { name: null } },
    least: 'admin',
    nobody: 401,
  },
  { method: 'DELETE', path: '/discovery-profiles/x', least: 'admin', nobody: 401 },
  { method: 'GET', path: '/keys', bad: { path: '/keys?limit=1001' }, least: 'viewer', nobody: 401 },
  { method: 'POST', path: '/keys', bad: { json: { label: 5 } }, least: 'admin', nobody: 401 },
  { method: 'DELETE', path: '/keys?keyId=x', bad: { path: '/keys' }, least: 'admin', nobody: 401 },
  { method: 'DELETE', path: '', least: 'owner', nobody: 401 },
]

type Refused = [who: string, status: number]
const outsiders: Record<401 | 404, Refused[]> = {
  /** Routes for M2M or session: 404 hides that the app exists. */
  404: [
    ['nobody', 404],
    ['another client', 404],
  ],
  401: [
    ['nobody', 401],
    ['its client', 401],
    ['another client', 401],
  ],
}
const lesser: Record<'viewer' | 'admin' | 'owner', Refused[]> = {
  viewer: [],
  admin: [['a viewer', 403]],
  owner: [
    ['a viewer', 403],
    ['an admin', 403],
  ],
}

async function credentialOf(who: string): Promise<RequestOptions> {
  if (who === 'its client') return { authorization: app.basic }
  if (who === 'its client with a wrong secret')
    return { authorization: basicOf(app.m2mClientId, 'wrong') }
  if (who === 'another client') return { authorization: (await console.newApp()).basic }
  if (who === 'a session that has ended') return { person: { ...owner, token: 'x'.repeat(43) } }
  if (who === 'a member of another app')
    return { person: await logInTo(console, await console.newApp(), 'owner') }
  if (who === 'a viewer') return { person: await logInTo(console, app, 'viewer') }
  if (who === 'an admin') return { person: await logInTo(console, app, 'admin') }
  return {}
}

describe.each(routes)(
  '$method $path',
  ({ method, path, good = {}, least, nobody, wrong = 401 }) => {
    const send = (request: RequestOptions) => status(method, path, { ...good, ...request })

    it.each<Refused>([
      ...outsiders[nobody],
      ...lesser[least],
      ['its client with a wrong secret', wrong],
      ['a session that has ended', wrong],
      ['a member of another app', 404],
    ])('refuses %s with %i', async (who, expected) => {
      expect(await send(await credentialOf(who))).toBe(expected)
    })

    it("answers alike for another's app, an unknown one and an m2m_ id", async () => {
      const stranger = await logIn(console)
      const bodies = await Promise.all(
        [app.clientId, `app_${'0'.repeat(24)}`, app.m2mClientId, 'x'].map(async (clientId) => {
          const answer = await console.ask(method, `/api/v1/apps/${clientId}${path}`, {
            ...good,
            person: stranger,
          })
          return { ...answer.body, status: answer.status, correlation_id: '' }
        }),
      )
      expect(new Set(bodies.map((body) => JSON.stringify(body))).size).toBe(1)
      expect(bodies[0]).toMatchObject({ status: 404, code: 'not_found' })
    })
  },
)

describe.each(routes.filter(({ method }) => method !== 'GET'))(
  '$method $path',
  ({ method, path, good = {} }) => {
    it.each<Record<string, string>>([
      { origin: 'https://evil.example' },
      { origin: '' },
      { origin: 'null' },
      { 'x-csrf-token': '' },
      { 'x-csrf-token': 'wrong' },
    ])('rejects a request not from our own pages: %j', async (headers) => {
      expect(await status(method, path, { ...good, person: owner, headers })).toBe(403)
    })
  },
)

const faulty = routes.flatMap(({ bad, ...rest }) => (bad ? [{ ...rest, bad }] : []))

describe.each(faulty)('invalid $method $path', ({ method, path, bad, least, nobody }) => {
  it.each<Refused>([['nobody', nobody], ['a member of another app', 404], ...lesser[least]])(
    'refuses %s before validation with %i',
    async (who, expected) => {
      const request = {
        ...(bad.json === undefined ? {} : { json: bad.json }),
        ...(await credentialOf(who)),
      }
      expect(await status(method, bad.path ?? path, request)).toBe(expected)
    },
  )

  it('returns 400 to every role that may send it', async () => {
    expect(
      await status(method, bad.path ?? path, {
        person: owner,
        ...(bad.json === undefined ? {} : { json: bad.json }),
      }),
    ).toBe(400)
  })
})

describe.each(routes.filter(({ nobody, path }) => nobody === 404 && !/\/x(\/|$)/.test(path)))(
  '$method $path',
  ({ method, path }) => {
    it('accepts the app’s own client', async () => {
      expect(await status(method, path, { authorization: app.basic })).toBe(200)
    })
  },
)
