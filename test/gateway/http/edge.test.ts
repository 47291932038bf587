import { connect } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from 'vitest'
import { createLog } from '../../../core/lib/log.ts'
import { listSources } from '../../../gateway/http/page.ts'
import { clientId } from '../../fakes/gateway-core/identity.ts'
import { type Harness, basic, startHarness } from '../support.ts'
import * as fc from 'fast-check'

const bounds = { headersMs: 600, requestMs: 1_200, silenceMs: 150_000 }
const browser = 'text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8'
const users = `/api/v1/apps/${clientId}/users`

const lines: string[] = []
const log = createLog({ level: 'info', name: 'gateway' }, { write: (line) => lines.push(line) })
let harness: Harness
beforeAll(async () => {
  harness = await startHarness({ bounds, log })
})
afterAll(() => harness.stop())
afterEach(() => harness.core.reset())

const open = async (path: string, init: RequestInit = {}, accept = browser) =>
  fetch(harness.gateway.platformUrl + path, {
    redirect: 'manual',
    ...init,
    headers: { accept, ...init.headers },
  })
const problemOf = (answer: string): unknown =>
  JSON.parse(answer.slice(answer.indexOf('\r\n\r\n') + 4))

describe('error', () => {
  it.each([
    ['GET', '/nowhere', 404],
    ['PATCH', users, 405],
    ['GET', `${users}?limit=0`, 400],
    ['GET', '/errors/nothing', 404],
    ['GET', '/%zz', 400],
  ])(
    'of %s %s is a page in a browser and a problem document elsewhere',
    async (method, path, status) => {
      const authorization = { authorization: basic }
      const page = await open(path, { method, headers: authorization })
      expect([page.status, page.headers.get('content-type')]).toEqual([
        status,
        'text/html; charset=utf-8',
      ])
      expect(page.headers.get('content-security-policy')).toContain("default-src 'none'")
      expect(await page.text()).toContain(page.headers.get('x-correlation-id') ?? '?')
      for (const accept of [
        'application/json',
        '*/*',
        'application/json, text/plain, */*',
        'nonsense',
      ]) {
        const answer = await open(path, { method, headers: authorization }, accept)
        expect([answer.status, answer.headers.get('content-type')]).toEqual([
          status,
          'application/problem+json; charset=utf-8',
        ])
      }
    },
  )

  it('of core is a page in a browser, without internal details', async () => {
    harness.core.refuse('listUsers', 'INTERNAL', 'secret detail')
    const failed = await open(users, { headers: { authorization: basic } })
    expect([failed.status, (await failed.text()).includes('secret')]).toEqual([500, false])
    harness.core.refuse('listUsers', 'RATE_LIMITED')
    const limited = await open(users, { headers: { authorization: basic } })
    expect([limited.status, limited.headers.get('retry-after')]).toEqual([429, '60'])
    expect(limited.headers.get('vary')).toContain('Accept')
  })

  it('of a page is a problem document when the client accepts that', async () => {
    const answer = await open(
      '/login',
      { method: 'POST', body: new URLSearchParams() },
      'application/json',
    )
    expect([answer.status, await answer.json()]).toMatchObject([403, { code: 'edit_forbidden' }])
    const page = await open('/login', { method: 'POST', body: new URLSearchParams() }, '*/*')
    expect([page.status, page.headers.get('content-type')]).toEqual([
      403,
      'text/html; charset=utf-8',
    ])
  })

  it('of a token route is always JSON', async () => {
    const answer = await open('/api/v1/oidc/token', { method: 'POST', body: new URLSearchParams() })
    expect(answer.headers.get('content-type')).toBe('application/json; charset=utf-8')
  })
})

describe('under https', () => {
  it('every public answer requires https in browsers', async () => {
    const { platformUrl, builderUrl } = harness.gateway
    const answers = await Promise.all([
      open('/'),
      open('/health'),
      open('/nowhere'),
      open('/api/v1/docs/'),
      open(users),
      fetch(`${builderUrl}/health`),
      fetch(`${platformUrl}/%zz`),
    ])
    for (const { url, headers } of answers)
      expect([url, headers.get('strict-transport-security')]).toEqual([url, 'max-age=31536000'])
    expect(await harness.raw('hello\r\n\r\n')).toMatch(
      /strict-transport-security: max-age=31536000/,
    )
  })

  it('http answers have no such header', async () => {
    const plain = await startHarness({ publicUrl: 'http://localhost:8080' })
    const answer = await fetch(`${plain.gateway.platformUrl}/health`)
    expect(answer.headers.get('strict-transport-security')).toBeNull()
    await plain.stop()
  })
})

describe('oversized requests', () => {
  it.each([
    {
      what: 'a long address',
      path: `/health?${'x'.repeat(12_300)}`,
      expected: { status: 414, code: 'uri_too_long' },
    },
    {
      what: 'many headers',
      headers: Object.fromEntries(Array.from({ length: 120 }, (_, i) => [`x-${i}`, '1'])),
      expected: { status: 431, code: 'headers_too_large' },
    },
    {
      what: 'many parameters',
      path: `/health?${'a&'.repeat(101)}`,
      expected: { status: 400, code: 'request_invalid' },
    },
    {
      what: 'a multipart body',
      headers: { 'content-type': 'multipart/form-data; boundary=x' },
      expected: { status: 415, code: 'media_type_unsupported' },
    },
  ])('refuses $what', async ({ path = '/health', headers = {}, expected }) => {
    const answer = await harness.ask('GET', path, { headers, authorization: null })
    expect([answer.status, answer.body]).toMatchObject([expected.status, expected])
  })

  it.each([
    ['an address that the parser rejects', `GET /${'x'.repeat(40_000)} HTTP/1.1\r\n\r\n`, 414],
    ['headers that the parser rejects', `GET / HTTP/1.1\r\nX: ${'x'.repeat(40_000)}\r\n\r\n`, 431],
  ])('answers %s', async (_, text, status) => {
    const answer = await harness.raw(text)
    expect(Number(answer.split(' ')[1])).toBe(status)
    expect(problemOf(answer)).toMatchObject({ status })
  })

  it('refuses deep nesting and many fields in a body', async () => {
    const deep = (levels: number) => `{"a":${'['.repeat(levels)}${']'.repeat(levels)}}`
    const headers = { 'content-type': 'application/json' }
    for (const [levels, code] of [
      [60, 'externalUserId is required'],
      [64, 'the body is nested more than 64 levels deep'],
      [200_000, 'the body is nested more than 64 levels deep'],
    ] as const) {
      const answer = await harness.ask('POST', users, { text: deep(levels), headers })
      expect([answer.status, answer.body['detail']]).toEqual([400, code])
    }
    const form = `grant_type=x${'&a=1'.repeat(100)}`
    const fields = await harness.ask('POST', '/api/v1/oidc/token', { form })
    expect([fields.status, fields.body['error_description']]).toEqual([
      400,
      'send at most 100 fields',
    ])
  })
})

/**
 * Sends the parts with a pause before each. Returns everything received until the other side
 * closes.
 */
async function drip(parts: readonly string[], pauseMs: number): Promise<string> {
  const { hostname, port } = new URL(harness.gateway.platformUrl)
  const socket = connect(Number(port), hostname)
  let received = ''
  let isClosed = false
  socket.on('data', (bytes) => (received += bytes.toString()))
  socket.on('error', () => socket.destroy())
  const closed = new Promise<void>((resolve) =>
    socket.once('close', () => {
      isClosed = true
      resolve()
    }),
  )
  for (const part of parts) {
    if (isClosed) break
    socket.write(part)
    await sleep(pauseMs)
  }
  await closed
  return received
}

describe('slow requests', () => {
  it('returns 408 and closes when headers arrive byte by byte', async () => {
    const answer = await drip(
      ['GET /health HTTP/1.1\r\n', ...Array.from({ length: 200 }, () => 'x')],
      50,
    )
    expect(Number(answer.split(' ')[1])).toBe(408)
    expect(problemOf(answer)).toMatchObject({ code: 'request_timeout', status: 408 })
  })

  it('returns 408 and closes when a body never ends', async () => {
    const head = `POST ${users} HTTP/1.1\r\nHost: x\r\nAuthorization: ${basic}\r\nContent-Length: 1000\r\n\r\n`
    const answer = await drip([head, ...Array.from({ length: 200 }, () => ' ')], 50)
    expect(Number(answer.split(' ')[1])).toBe(408)
    expect(harness.core.names()).not.toContain('upsertUser')
  })
})

describe('page policy', () => {
  it('names a redirect URI by its parsed parts', () => {
    expect(listSources('https://app.example:8443/cb?x=1;script-src *')).toEqual([
      'https://app.example:8443',
    ])
    expect(listSources('http://[::1]:1234/cb')).toEqual(['http://[::1]:1234'])
    expect(listSources('com.example.app:/cb')).toEqual(['com.example.app:'])
  })

  it.each([
    'https://a;script-src/cb',
    "https://'unsafe-inline'/cb",
    'https://*/cb',
    'https://*.example/cb',
    'https://a,b.example/cb',
    'https://user@*:443/',
    'not a uri',
    '',
  ])('does not name %s', (uri) => {
    expect(listSources(uri)).toEqual([])
  })

  it('stays one directive with one source for any registered URI', () => {
    const part = fc.string({
      unit: fc.constantFrom(
        'a',
        '.',
        ';',
        ' ',
        "'",
        '*',
        ',',
        ':',
        '/',
        '@',
        '%',
        '-',
        '\t',
        '"',
        'ü',
      ),
    })
    fc.assert(
      fc.property(
        fc.constantFrom('https://', 'http://', 'x:', ''),
        part,
        part,
        (scheme, host, rest) => {
          for (const source of listSources(`${scheme}${host}/${rest}`))
            expect(source).toMatch(/^[a-z][a-z0-9+.-]*:(\/\/[a-z0-9._[\]:-]+)?$/)
        },
      ),
      { numRuns: 2_000 },
    )
  })
})

describe('log', () => {
  it('samples anonymous refusals, then logs their number', async () => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
    try {
      lines.length = 0
      const strange = await startStrange()
      for (let i = 0; i < 50; i++) await fetch(`${strange.gateway.platformUrl}/nowhere-${i}`)
      const known = await fetch(`${strange.gateway.platformUrl}${users}`, {
        headers: { authorization: basic },
      })
      expect(known.status).toBe(200)
      expect(lines.filter((line) => line.includes('"status":404'))).toHaveLength(20)
      expect(lines.some((line) => line.includes('"status":200'))).toBe(true)
      await vi.advanceTimersByTimeAsync(60_000)
      expect(
        lines.map((line): { count?: number } => JSON.parse(line)).find(({ count }) => count),
      ).toMatchObject({
        route: 'unknown',
        status: 404,
        count: 30,
      })
      vi.useRealTimers()
      await strange.stop()
    } finally {
      vi.useRealTimers()
    }
  })
})

const startStrange = () => startHarness({ log })

describe('start page', () => {
  it('explains the service with links; short names redirect there', async () => {
    const page = await open('/')
    const text = await page.text()
    expect(page.status).toBe(200)
    for (const link of ['/api/v1/docs/', '/app', '/device', '/errors'])
      expect(text).toContain(`href="${link}"`)
    expect(text).toContain('/metrics')
    const to = async (path: string) => {
      const { status, headers } = await open(path)
      return [status, headers.get('location')]
    }
    expect(await to('/docs')).toEqual([302, '/api/v1/docs/'])
    expect(await to('/device?user_code=ABCD-EFGH')).toEqual([
      302,
      '/oidc/device?user_code=ABCD-EFGH',
    ])
  })

  it('links the metrics when PUBLIC_URL is on this machine', async () => {
    const local = await startHarness({ publicUrl: 'http://localhost:8080', adminPort: 9091 })
    const text = await (await fetch(local.gateway.platformUrl)).text()
    expect(text).toContain('http://127.0.0.1:9091/metrics')
    await local.stop()
  })
})

describe('page on loopback', () => {
  it.each(['localhost', '127.0.0.1', '[::1]'])(
    'works at %s for any loopback name in PUBLIC_URL',
    async (name) => {
      const local = await startHarness({ publicUrl: 'http://localhost:8080' })
      const url = local.gateway.platformUrl
      const form = await fetch(`${url}/login`)
      const cookie = form.headers.getSetCookie()[0]?.split(';')[0] ?? ''
      const logIn = async (origin: string, host: string) => {
        const answer = await local.raw(
          [
            'POST /login HTTP/1.1',
            `Host: ${host}`,
            'Connection: close',
            `Origin: ${origin}`,
            `Cookie: ${cookie}`,
            'Content-Type: application/x-www-form-urlencoded',
            `Content-Length: ${`csrf_token=${cookie.split('=')[1]}&email=a@b.example&password=x`.length}`,
            '',
            `csrf_token=${cookie.split('=')[1]}&email=a@b.example&password=x`,
          ].join('\r\n'),
        )
        return Number(answer.split(' ')[1])
      }
      local.core.refuse('logIn', 'CREDENTIAL_INVALID')
      expect(await logIn(`http://${name}:8080`, `${name}:8080`)).toBe(401)
      expect(await logIn(`http://${name}:9999`, `${name}:9999`)).toBe(403)
      expect(await logIn('http://evil.example:8080', `${name}:8080`)).toBe(403)
      expect(await logIn('http://127.0.0.1:8080', 'evil.example:8080')).toBe(403)
      await local.stop()
    },
  )
})

describe('query about money', () => {
  it.each([
    [
      `/api/v1/builder/apps/${clientId}/usage`,
      'endDate, externalUserId, gatewayRequestId, groupBy, include, includeRetail, modelId, pipeline, startDate, userId',
    ],
    [`/api/v1/builder/apps/${clientId}/usage/balance`, 'asOf, externalUserId'],
    [`/api/v1/apps/${clientId}/users/ada/allowances`, ''],
    ['/api/v1/user/usage/balance', 'asOf'],
  ])('of %s rejects unknown names', async (path, known) => {
    const answer = await harness.ask('GET', `${path}?externalUserId=ada&externaluserid=ada`)
    expect(answer.status).toBe(400)
    expect(answer.body['detail']).toContain(
      known === '' ? 'this route has no parameters' : `this route accepts: ${known}`,
    )
  })

  it('accepts externalUserId or its alias userId, not both', async () => {
    for (const name of ['externalUserId', 'userId']) {
      await harness.ask('GET', `/api/v1/builder/apps/${clientId}/usage?${name}=ada`)
      expect(harness.core.last().request).toMatchObject({ userId: 'ada' })
    }
    const both = await harness.ask(
      'GET',
      `/api/v1/builder/apps/${clientId}/usage?externalUserId=a&userId=b`,
    )
    expect(both.status).toBe(400)
  })
})
