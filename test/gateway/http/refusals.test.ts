import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { type Reason, reasons } from '../../../proto/errors.ts'
import type { Rpc } from '../../fakes/gateway-core/gateway-core.ts'
import { clientId } from '../../fakes/gateway-core/identity.ts'
import { type Ask, type Harness, refusal, startHarness } from '../support.ts'

let harness: Harness
beforeAll(async () => {
  harness = await startHarness()
})
afterAll(() => harness.stop())
beforeEach(() => harness.core.reset())

const app = `/api/v1/apps/${clientId}`
const builder = `/api/v1/builder/apps/${clientId}`

/**
 * Every route guarded by core, with a valid and an invalid request, and the resulting CheckCaller
 * request.
 */
const guarded: {
  method: string
  path: string
  rpc: Rpc
  good?: Ask
  query?: string
  bad: { query?: string; ask?: Ask; status?: number }
  kind: string
  scope?: string
  oauth?: boolean
}[] = [
  {
    method: 'GET',
    path: `${app}/users`,
    rpc: 'listUsers',
    bad: { query: '?limit=0' },
    kind: 'm2m',
    scope: 'users:read',
  },
  {
    method: 'POST',
    path: `${app}/users`,
    rpc: 'upsertUser',
    good: { json: { externalUserId: 'a' } },
    bad: { ask: { json: {} } },
    kind: 'm2m',
    scope: 'users:write',
  },
  {
    method: 'PUT',
    path: `${app}/users`,
    rpc: 'updateUser',
    good: { json: { externalUserId: 'a' } },
    bad: { ask: { text: '{', headers: { 'content-type': 'application/json' } } },
    kind: 'm2m',
    scope: 'users:write',
  },
  {
    method: 'DELETE',
    path: `${app}/users`,
    query: '?externalUserId=a',
    rpc: 'deactivateUser',
    bad: {},
    kind: 'm2m',
    scope: 'users:write',
  },
  {
    method: 'POST',
    path: `${app}/users/a/token`,
    rpc: 'mintUserToken',
    bad: { ask: { json: null } },
    kind: 'm2m',
    scope: 'users:token',
    oauth: true,
  },
  {
    method: 'GET',
    path: `${app}/users/a/keys`,
    rpc: 'listKeys',
    bad: { query: '?limit=1001' },
    kind: 'm2m',
    scope: 'users:write',
  },
  {
    method: 'POST',
    path: `${app}/users/a/keys`,
    rpc: 'createKey',
    bad: { ask: { headers: { 'idempotency-key': 'a b' } } },
    kind: 'm2m',
    scope: 'users:write',
  },
  {
    method: 'DELETE',
    path: `${app}/users/a/keys`,
    query: '?keyId=k',
    rpc: 'revokeKey',
    bad: {},
    kind: 'm2m',
    scope: 'users:write',
  },
  {
    method: 'GET',
    path: `${app}/users/a/allowances`,
    rpc: 'getAllowance',
    bad: { query: '?x=%00' },
    kind: 'm2m',
    scope: 'users:read',
  },
  {
    method: 'POST',
    path: `${app}/users/a/allowances`,
    rpc: 'createGrant',
    good: { json: { amountUsdMicros: '1' } },
    bad: { ask: { json: { amountUsdMicros: '0' } }, status: 422 },
    kind: 'm2m',
    scope: 'users:write',
  },
  {
    method: 'GET',
    path: `${app}/users/a/limits`,
    rpc: 'getLimits',
    bad: { query: '?x=%00' },
    kind: 'm2m',
    scope: 'users:read',
  },
  {
    method: 'PUT',
    path: `${app}/users/a/limits`,
    rpc: 'updateLimits',
    good: { json: { usdMicrosPerDay: '1' } },
    bad: { ask: { json: { usdMicrosPerDay: '0' } }, status: 422 },
    kind: 'm2m',
    scope: 'users:write',
  },
  {
    method: 'DELETE',
    path: `${app}/users/a/limits`,
    rpc: 'deleteLimits',
    bad: { query: '?x=%00' },
    kind: 'm2m',
    scope: 'users:write',
  },
  {
    method: 'GET',
    path: `${app}/users/a/keys/k/limits`,
    rpc: 'getLimits',
    bad: { query: '?x=%00' },
    kind: 'm2m',
    scope: 'users:read',
  },
  {
    method: 'PUT',
    path: `${app}/users/a/keys/k/limits`,
    rpc: 'updateLimits',
    good: { json: { callsPerMinute: 1 } },
    bad: { ask: { json: { callsPerMinute: 0 } } },
    kind: 'm2m',
    scope: 'users:write',
  },
  {
    method: 'DELETE',
    path: `${app}/users/a/keys/k/limits`,
    rpc: 'deleteLimits',
    bad: { query: '?x=%00' },
    kind: 'm2m',
    scope: 'users:write',
  },
  {
    method: 'GET',
    path: `${builder}/usage/loss`,
    rpc: 'listLoss',
    bad: { query: '?limit=0' },
    kind: 'm2m_basic',
  },
  {
    method: 'GET',
    path: `${builder}/usage`,
    rpc: 'queryUsage',
    bad: { query: '?groupBy=week' },
    kind: 'm2m_basic',
  },
  {
    method: 'GET',
    path: `${builder}/usage/requests/e-1`,
    rpc: 'explainTicket',
    bad: { query: '?x=%00' },
    kind: 'm2m_or_member',
  },
  {
    method: 'GET',
    path: `${builder}/usage/requests/e-1/receipt`,
    rpc: 'getReceipt',
    bad: { query: '?x=%00' },
    kind: 'm2m_or_member',
  },
  {
    method: 'GET',
    path: `${builder}/usage/roots`,
    rpc: 'listRoots',
    bad: { query: '?limit=367' },
    kind: 'm2m_or_member',
  },
  {
    method: 'GET',
    path: `${builder}/usage/requests`,
    rpc: 'listUsageRequests',
    bad: { query: '?limit=51' },
    kind: 'm2m_basic',
  },
  {
    method: 'GET',
    path: `${builder}/usage/requests`,
    query: '?groupBy=session',
    rpc: 'listUsageSessions',
    bad: { query: '?userId=a&externalUserId=a' },
    kind: 'm2m_basic',
  },
  {
    method: 'GET',
    path: `${builder}/usage/balance`,
    query: '?externalUserId=a',
    rpc: 'getBalance',
    bad: {},
    kind: 'm2m_basic',
  },
  {
    method: 'GET',
    path: `${app}/usage`,
    rpc: 'queryUsage',
    bad: { query: '?groupBy=none&groupBy=user' },
    kind: 'm2m_basic',
  },
  {
    method: 'GET',
    path: `${app}/usage/balance`,
    query: '?externalUserId=a',
    rpc: 'getBalance',
    bad: { query: '?externalUserId=' },
    kind: 'm2m_basic',
  },
  {
    method: 'GET',
    path: '/api/v1/user/usage',
    rpc: 'queryOwnUsage',
    bad: { query: '?userId=a' },
    kind: 'user',
  },
  {
    method: 'GET',
    path: '/api/v1/user/usage/requests',
    rpc: 'listOwnUsageRequests',
    bad: { query: '?limit=10abc' },
    kind: 'user',
  },
  {
    method: 'GET',
    path: '/api/v1/user/usage/requests',
    query: '?groupBy=session',
    rpc: 'listOwnUsageSessions',
    bad: { query: '?groupBy=user' },
    kind: 'user',
  },
  {
    method: 'GET',
    path: '/api/v1/user/usage/balance',
    rpc: 'getOwnBalance',
    bad: { query: '?external_user_id=a' },
    kind: 'user',
  },
]

function wordOf(reason: Reason, oauth: boolean): string {
  if (!oauth) return reason.toLowerCase()
  return reason === 'NOT_FOUND' ? 'not_found' : reasons[reason].oauth
}

describe.each(guarded)(
  '$method $path',
  ({ method, path, query = '', rpc, good = {}, bad, kind, scope, oauth = false }) => {
    const send = (ask: Ask = good) => harness.ask(method, path + query, ask)
    const sendBad = (more: Ask = {}) =>
      harness.ask(method, path + (bad.query ?? ''), { ...bad.ask, ...more })

    it('makes exactly one core call for a valid request', async () => {
      expect((await send()).status).toBeLessThan(300)
      expect(harness.core.names()).toEqual([rpc])
    })

    it.each([
      ['CREDENTIAL_INVALID', 401],
      ['TOKEN_INVALID', 401],
      ['NOT_FOUND', 404],
      ['SCOPE_MISSING', 403],
      ['REQUEST_INVALID', 400],
      ['CONFLICT', 409],
      ['IDEMPOTENCY_CONFLICT', 409],
      ['RATE_LIMITED', 429],
    ] satisfies [Reason, number][])('forwards core’s %s as %i', async (reason, status) => {
      harness.core.refuse(rpc, reason)
      const answer = await send()
      expect(refusal(answer)).toEqual([wordOf(reason, oauth), status])
      expect(answer.body[oauth ? 'error_description' : 'detail']).toBe(`because of ${reason}`)
    })

    it('lists its challenges in a 401', async () => {
      harness.core.refuse(rpc, 'TOKEN_INVALID')
      const challenge = (await send()).headers.get('www-authenticate') ?? ''
      expect([/Basic realm=/.test(challenge), /Bearer realm=/.test(challenge)]).toEqual([
        kind !== 'user',
        kind !== 'm2m_basic',
      ])
    })

    it('checks the caller before validating the request', async () => {
      const reason = bad.status === 422 ? 'AMOUNT_INVALID' : 'REQUEST_INVALID'
      expect(refusal(await sendBad())).toEqual([wordOf(reason, oauth), reasons[reason].http])
      expect(harness.core.names()).toEqual(['checkCaller'])
      expect(harness.core.last().request).toEqual({
        clientId: kind === 'user' ? undefined : clientId,
        kind,
        scope,
        metered: kind === 'm2m' ? undefined : true,
      })
      for (const [reason, status] of [
        ['CREDENTIAL_INVALID', 401],
        ['NOT_FOUND', 404],
        ['SCOPE_MISSING', 403],
        ['UNAVAILABLE', 503],
        ['METERING_NOT_CONFIGURED', 503],
      ] as const) {
        harness.core.refuse('checkCaller', reason)
        expect(refusal(await sendBad())).toEqual([wordOf(reason, oauth), status])
      }
    })

    it('returns 503 when core is unavailable, and 500 without details when core fails', async () => {
      harness.core.fail(rpc, 14)
      const away = await send()
      expect([away.status, away.headers.get('retry-after')]).toEqual([503, '1'])
      harness.core.refuse(rpc, 'SERVICE_TOKEN_INVALID', 'CORE_TOKEN is wrong')
      const unknown = await send()
      expect(refusal(unknown)).toEqual([wordOf('SERVICE_TOKEN_INVALID', oauth), 503])
      expect(unknown.text).not.toContain('CORE_TOKEN')
      for (const break_ of [
        () => harness.core.fail(rpc, 2),
        () => harness.core.refuse(rpc, 'INTERNAL', 'secret detail'),
      ]) {
        break_()
        const broken = await send()
        expect([broken.status, broken.text.includes('secret')]).toEqual([500, false])
      }
    })

    it('returns 405 with Allow for another method', async () => {
      const { status, headers } = await harness.ask('PATCH', path + query, { text: '{' })
      expect(status).toBe(405)
      expect(headers.get('allow')?.split(', ')).toContain(method)
      expect(harness.core.names()).toEqual([])
    })
  },
)

describe.each(['', '/balance', '/requests', '/stream'].map((path) => `/api/v1/user/usage${path}`))(
  '%s',
  (path) => {
    it.each(['userId', 'endUserId', 'externalUserId', 'external_user_id'])(
      'rejects a user named by %s',
      async (name) => {
        const answer = await harness.ask('GET', `${path}?${name}=a`)
        expect(refusal(answer)).toEqual(['request_invalid', 400])
        expect(answer.body['detail']).toContain(name)
      },
    )
  },
)

describe('path', () => {
  it.each([
    '/api',
    '/api/v1',
    `${app}/users/`,
    `${app}/users/a`,
    `${app}/users/a/keys/b`,
    '/API/v1/oidc/jwks',
    '/webhooks/remote-signer',
  ])('%s is unknown for any method and body', async (path) => {
    expect(refusal(await harness.ask('GET', path))).toEqual(['not_found', 404])
    expect(
      refusal(
        await harness.ask('POST', path, { text: 'x', headers: { 'content-type': 'nonsense' } }),
      ),
    ).toEqual(['not_found', 404])
    expect(harness.core.names()).toEqual([])
  })

  it.each([
    ['GET', '/api/v1/oidc/token', 'POST'],
    ['POST', '/health', 'GET, HEAD'],
    ['OPTIONS', `${app}/users`, 'DELETE, GET, HEAD, POST, PUT'],
    ['DELETE', '/api/v1/oidc/jwks', 'GET, HEAD'],
  ])('refuses %s %s and allows %s', async (method, path, allow) => {
    const { status, headers } = await harness.ask(method, path)
    expect([status, headers.get('allow')]).toEqual([405, allow])
  })

  it('answers HEAD like GET', async () => {
    const { status, text } = await harness.ask('HEAD', '/health')
    expect([status, text]).toEqual([200, ''])
  })

  it('of the builder listener answers health checks, but not the platform API', async () => {
    const { builderUrl } = harness.gateway
    const health = await fetch(`${builderUrl}/health`)
    expect([health.status, health.headers.get('content-type'), await health.text()]).toEqual([
      200,
      'text/plain; charset=utf-8',
      'ok',
    ])
    const other = await fetch(`${builderUrl}${app}/plans`)
    expect([other.status, other.headers.get('content-type')]).toEqual([
      404,
      'application/problem+json; charset=utf-8',
    ])
    expect((await harness.ask('GET', '/health', { authorization: null })).body).toEqual({
      status: 'ok',
    })
  })
})
