import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { clientId } from '../../fakes/gateway-core/identity.ts'
import { type Harness, publicUrl, startHarness } from '../support.ts'

let harness: Harness
beforeAll(async () => {
  harness = await startHarness({ edge: { corsOrigins: ['https://console.example'] } })
})
afterAll(() => harness.stop())
beforeEach(() => harness.core.reset())

let count = 0
/** Returns an origin that no test has used before. */
const newOrigin = () => `https://page-${++count}.example`
const users = `/api/v1/apps/${clientId}/users`
const preflight = (path: string, origin: string) =>
  harness.ask('OPTIONS', path, {
    authorization: null,
    headers: {
      origin,
      'access-control-request-method': 'POST',
      'access-control-request-headers': 'authorization',
    },
  })
const allowedOrigin = ({ headers }: { headers: Headers }) =>
  headers.get('access-control-allow-origin')
const checks = () =>
  harness.core.calls.filter(({ rpc }) => rpc === 'checkOrigin').map(({ request }) => request)

describe('preflight', () => {
  it('returns 204 for every path without naming an origin that is not allowed', async () => {
    for (const path of [users, '/api/v1/oidc/token', '/api/v1/openapi.json', '/no/such/route']) {
      const answer = await preflight(path, newOrigin())
      expect([
        answer.status,
        answer.text,
        allowedOrigin(answer),
        answer.headers.get('vary'),
      ]).toEqual([204, '', null, 'Origin'])
      expect(answer.headers.get('access-control-allow-methods')).toBeNull()
    }
  })

  it('is valid for a day for an allowed origin, and never allows cookies', async () => {
    harness.core.answer('checkOrigin', { allowed: true })
    const origin = newOrigin()
    const answer = await preflight(users, origin)
    expect([
      answer.status,
      allowedOrigin(answer),
      answer.headers.get('access-control-max-age'),
    ]).toEqual([204, origin, '86400'])
    expect(answer.headers.get('access-control-allow-methods')).toBe(
      'GET, POST, PUT, PATCH, DELETE, OPTIONS',
    )
    expect(answer.headers.get('access-control-allow-headers')).toContain(
      'Authorization, Content-Type',
    )
    expect(answer.headers.get('access-control-allow-credentials')).toBeNull()
    expect(checks()).toEqual([{ clientId, origin }])
  })
})

describe('answer to a browser', () => {
  it("is readable for the app's origins, on both usage paths, with one core call a minute", async () => {
    harness.core.answer('checkOrigin', { allowed: true })
    const origin = newOrigin()
    for (const path of [users, users, `/api/v1/builder/apps/${clientId}/usage`]) {
      const answer = await harness.ask('GET', path, { headers: { origin } })
      expect([answer.status, allowedOrigin(answer)]).toEqual([200, origin])
      expect(answer.headers.get('access-control-expose-headers')).toContain('X-Correlation-Id')
    }
    expect(checks()).toHaveLength(1)
  })

  it("is readable for any app's origins on OIDC routes, even if refused", async () => {
    harness.core.answer('checkOrigin', { allowed: true })
    const origin = newOrigin()
    const refused = await harness.ask('POST', '/api/v1/oidc/token', {
      form: 'grant_type=x',
      headers: { origin },
    })
    expect([refused.status, allowedOrigin(refused)]).toEqual([400, origin])
    expect(checks()).toEqual([{ clientId: undefined, origin }])
  })

  it("is readable for our own origin everywhere, and for the deployment's origins outside apps", async () => {
    for (const path of [users, '/api/v1/oidc/jwks', '/health']) {
      expect(
        allowedOrigin(await harness.ask('GET', path, { headers: { origin: publicUrl } })),
      ).toBe(publicUrl)
    }
    const origin = 'https://console.example'
    expect(allowedOrigin(await harness.ask('GET', '/health', { headers: { origin } }))).toBe(origin)
    expect(
      allowedOrigin(await harness.ask('GET', '/health', { headers: { origin: newOrigin() } })),
    ).toBeNull()
    expect(allowedOrigin(await harness.ask('GET', users, { headers: { origin } }))).toBeNull()
  })

  it.each([
    'null',
    '*',
    'https://x.example/',
    'https://x.example/path',
    'x.example',
    'HTTPS://X.EXAMPLE',
    `https://${'a'.repeat(300)}.example`,
  ])('is not readable for the invalid origin %s', async (origin) => {
    harness.core.answer('checkOrigin', { allowed: true })
    expect(allowedOrigin(await harness.ask('GET', users, { headers: { origin } }))).toBeNull()
    expect(checks()).toEqual([])
  })

  it('allows no origin while core is unavailable, and calls core again afterwards', async () => {
    const origin = newOrigin()
    harness.core.refuse('checkOrigin', 'UNAVAILABLE')
    expect(allowedOrigin(await harness.ask('GET', users, { headers: { origin } }))).toBeNull()
    harness.core.reset()
    harness.core.answer('checkOrigin', { allowed: true })
    expect(allowedOrigin(await harness.ask('GET', users, { headers: { origin } }))).toBe(origin)
  })

  it('varies by origin for every caller', async () => {
    expect((await harness.ask('GET', '/health')).headers.get('vary')).toBe('Origin')
  })
})
