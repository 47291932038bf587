import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type Real, type RealApp, startReal } from '../real.ts'
import { asRecord, publicUrl } from '../support.ts'

let real: Real
let app: RealApp
beforeAll(async () => {
  real = await startReal()
  app = await real.newApp('session')
})
afterAll(() => real.stop())

const cookieOf = () => app.session['cookie'] ?? ''

async function ask(path: string, init: RequestInit = {}) {
  const response = await fetch(real.url + path, init)
  return {
    status: response.status,
    headers: response.headers,
    body: asRecord(await response.json()),
  }
}

describe('GET /api/v1/session', () => {
  it('returns the person and the CSRF token to a program with the cookie', async () => {
    const { status, headers, body } = await ask('/api/v1/session', {
      headers: { cookie: cookieOf() },
    })
    expect(status).toBe(200)
    expect(headers.get('cache-control')).toBe('no-store')
    expect(body).toEqual({
      accountId: expect.any(String),
      email: 'session@example.com',
      name: expect.any(String),
      isPlatformAdmin: expect.any(Boolean),
      canCreateApps: expect.any(Boolean),
      csrfToken: app.session['x-csrf-token'],
      authTime: expect.any(String),
    })
    const changed = await ask(`/api/v1/apps/${app.clientId}`, {
      method: 'PUT',
      headers: {
        cookie: cookieOf(),
        origin: publicUrl,
        'x-csrf-token': String(body['csrfToken']),
        'content-type': 'application/json',
      },
      body: '{"name":"Named by a program"}',
    })
    expect([changed.status, changed.body['name']]).toEqual([200, 'Named by a program'])
  })

  it.each([{}, { cookie: `__Host-tollgate_session=${'x'.repeat(43)}` }])(
    'returns 401 without a live session',
    async (headers) => {
      const { status, body } = await ask('/api/v1/session', { headers })
      expect([status, body['code']]).toEqual([401, 'token_invalid'])
    },
  )
})
