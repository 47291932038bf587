import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { type Harness, asRecord, startHarness } from '../../support.ts'

let harness: Harness
beforeAll(async () => {
  harness = await startHarness()
})
afterAll(() => harness.stop())
beforeEach(() => harness.core.reset())

const session = { cookie: `__Host-tollgate_session=${'s'.repeat(43)}` }
const get = (path: string, headers: Record<string, string> = {}) =>
  harness.ask('GET', path, { authorization: null, headers })

/** Returns the URLs that a page loads, as in a browser. */
async function loaded(page: string) {
  const { text } = await get(page)
  return [...text.matchAll(/(?:src|href)="(?<path>[^"]+)"/g)].map(
    ({ groups }) => new URL(groups?.['path'] ?? '', `https://svc.example${page}`),
  )
}

describe.each(['/api/v1/docs', '/api/v1/docs/'])('page at %s', (page) => {
  it('is interactive, and loads scripts, styles and images only from this host', async () => {
    const { status, headers } = await get(page)
    expect([status, headers.get('content-type')]).toEqual([200, 'text/html; charset=utf-8'])
    const policy = headers.get('content-security-policy') ?? ''
    expect(policy).toContain("default-src 'none'; script-src 'self';")
    expect(policy.match(/https?:\S+/g)).toEqual(['https://svc.example;'])
    const files = await loaded(page)
    expect(files.length).toBeGreaterThan(4)
    for (const { host, pathname } of files) {
      expect(host).toBe('svc.example')
      expect((await get(pathname)).status).toBe(200)
    }
  })

  it('shows only our name, and fits a phone', async () => {
    const { text } = await get(page)
    expect(text).toContain('<title>tollgate API</title>')
    const files = await Promise.all(
      (await loaded(page)).map(async ({ pathname }) => ({
        pathname,
        text: (await get(pathname)).text,
      })),
    )
    const own = files.filter(({ pathname }) => pathname.includes('tollgate.'))
    expect(own.map(({ pathname }) => pathname.split('.').at(-1)).toSorted()).toEqual([
      'css',
      'js',
      'svg',
    ])
    expect(own.find(({ pathname }) => pathname.endsWith('.js'))?.text).toContain(
      'width=device-width',
    )
    const style = own.find(({ pathname }) => pathname.endsWith('.css'))?.text
    expect(style).toContain('max-width: 700px')
    expect(style).toContain('color-scheme: light dark')
    const icon = await get('/favicon.svg')
    expect(own.find(({ pathname }) => pathname.endsWith('.svg'))?.text).toBe(icon.text)
    const start = files.find(({ pathname }) => pathname.endsWith('swagger-initializer.js'))
    // The other layout has a bar with another product's logo.
    expect(start?.text).toContain('"layout":"BaseLayout"')
  })

  it('shows the document without sending it to a validator', async () => {
    const script = (await loaded(page)).find(({ pathname }) =>
      pathname.endsWith('swagger-initializer.js'),
    )
    const { text } = await get(script?.pathname ?? '')
    expect(text).toContain('"validatorUrl":null')
    expect((await get('/api/v1/docs/json')).text).toBe((await get('/api/v1/openapi.json')).text)
  })
})

describe('sidecar page', () => {
  it('shows its document', async () => {
    const { status } = await get('/api/v1/sidecar/docs/')
    expect(status).toBe(200)
    const { body } = await get('/api/v1/sidecar/openapi.json')
    expect(JSON.parse((await get('/api/v1/sidecar/docs/json')).text)).toEqual(body)
    expect(Object.keys(asRecord(body['paths']))).toEqual([
      '/authorize',
      '/events',
      '/health',
      '/healthz',
      '/readyz',
    ])
  })
})

describe('internal documents', () => {
  const all = [
    '/api/v1/internal/openapi.json',
    '/api/v1/internal/docs',
    '/api/v1/internal/docs/json',
  ]

  it.each(all)('%s returns 401 without a session and is never stored', async (path) => {
    harness.core.refuse('checkCaller', 'TOKEN_INVALID')
    for (const headers of [{}, session]) {
      const answer = await get(path, headers)
      expect([answer.status, answer.headers.get('cache-control')]).toEqual([401, 'no-store'])
      expect(answer.body).toMatchObject({ code: 'token_invalid' })
    }
  })

  it.each(all)('%s is available to a session checked by core', async (path) => {
    const answer = await get(path, session)
    expect([answer.status, answer.headers.get('cache-control')]).toEqual([200, 'no-store'])
    expect(harness.core.last()).toMatchObject({ rpc: 'checkCaller', request: { kind: 'session' } })
  })

  it('list routes that the public document omits', async () => {
    const { body } = await get('/api/v1/internal/openapi.json', session)
    const internal = '/api/v1/internal/openapi.json'
    expect(Object.keys(asRecord(body['paths']))).toContain(internal)
    expect(Object.keys(asRecord(harness.document['paths']))).not.toContain(internal)
  })
})
