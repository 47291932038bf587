import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { clientId } from '../../fakes/gateway-core/identity.ts'
import { type Harness, basic, rawExchange, startHarness } from '../support.ts'

let harness: Harness
beforeAll(async () => {
  harness = await startHarness()
})
afterAll(() => harness.stop())
beforeEach(() => harness.core.reset())

const users = `/api/v1/apps/${clientId}/users`
const request = (line: string, headers: readonly string[] = [], body = ''): string =>
  [`${line} HTTP/1.1`, 'Host: x', 'Connection: close', ...headers, '', body].join('\r\n')
const statusOf = (answer: string): number => Number(answer.split(' ')[1])
const send = (line: string, headers: readonly string[] = [], body = '') =>
  harness.raw(request(line, headers, body))

describe('credentials on the wire', () => {
  it.each([
    ['two Basic lines', [`Authorization: ${basic}`, `authorization: ${basic}`]],
    ['Basic and Bearer lines', [`Authorization: ${basic}`, 'AUTHORIZATION: Bearer x']],
    ['Basic and Bearer in one line', [`Authorization: ${basic}, Bearer x`]],
    ['a second word', ['Authorization: Bearer x y']],
    ['bytes outside ASCII', ['Authorization: Bearer \xe4']],
    ['a scheme alone', ['Authorization: Basic']],
    ['an empty line', ['Authorization:']],
    ['9 KB', [`Authorization: Bearer ${'x'.repeat(9000)}`]],
  ])('are refused when there are %s', async (_, headers) => {
    for (const line of [
      `GET ${users}`,
      `GET ${users}?limit=0`,
      'GET /api/v1/user/usage',
      'POST /api/v1/oidc/token',
    ]) {
      const answer = await send(line, headers)
      expect([line, statusOf(answer)]).toEqual([line, 401])
      expect(answer).toMatch(/\r\nwww-authenticate: /i)
    }
    expect(harness.core.names()).toEqual([])
  })

  it('get both challenges, on separate lines', async () => {
    const answer = await send(`GET ${users}`, ['Authorization:'])
    expect(answer.match(/www-authenticate: (Basic|Bearer)/gi)).toHaveLength(2)
  })

  it('are ignored on public routes', async () => {
    expect(statusOf(await send('GET /health', ['Authorization: a', 'Authorization: b']))).toBe(200)
  })
})

describe('malformed requests', () => {
  it.each([
    `${users}/%zz/token`,
    `${users}/%/keys`,
    `${users}/%E4/keys`,
    `${users}/%C3%28/keys`,
    '/%',
  ])('get 400 for the path %s', async (path) => {
    const answer = await send(`GET ${path}`, [`Authorization: ${basic}`, 'X-Correlation-Id: mine'])
    expect(statusOf(answer)).toBe(400)
    expect(answer).toMatch(/application\/problem\+json/)
    expect(answer).toMatch(/x-correlation-id: mine/i)
    expect(answer).toMatch(/"code":"request_invalid"/)
  })

  it.each([
    ['text that is not HTTP', 'hello\r\n\r\n', 400],
    ['headers without end', request('GET /health', [`X: ${'x'.repeat(20_000)}`]), 431],
    ['an unknown method', request('BREW /health'), 400],
    ['two lengths', request(`POST ${users}`, ['Content-Length: 1', 'Content-Length: 2'], 'x'), 400],
  ])('are answered: %s', async (_, text, status) => {
    const answer = await harness.raw(text)
    expect(statusOf(answer)).toBe(status)
    expect(answer).toMatch(/x-correlation-id: /i)
  })

  it('get 404 for odd methods on unknown paths and 405 on known ones', async () => {
    expect(statusOf(await send('PROPFIND /nowhere'))).toBe(404)
    const answer = await send(`PROPFIND ${users}`)
    expect(statusOf(answer)).toBe(405)
    expect(answer).toMatch(/allow: DELETE, GET, HEAD, POST, PUT/i)
  })
})

describe('body on the wire', () => {
  const auth = `Authorization: ${basic}`

  it('may have no content type', async () => {
    const body = '{"externalUserId":"a"}'
    expect(
      statusOf(await send(`POST ${users}`, [auth, `Content-Length: ${body.length}`], body)),
    ).toBe(201)
  })

  it('may be empty with a content type', async () => {
    const answer = await send(`POST ${users}/a/keys`, [
      auth,
      'Content-Type: application/json',
      'Content-Length: 0',
    ])
    expect(statusOf(answer)).toBe(201)
  })

  it('is refused by its length before it is read', async () => {
    const answer = await send(`POST ${users}`, [
      auth,
      'Content-Type: application/json',
      'Content-Length: 999999999',
    ])
    expect(statusOf(answer)).toBe(413)
    expect(harness.core.names()).toEqual(['checkCaller'])
  })

  it('is refused when chunks exceed the limit', async () => {
    const chunk = `10000\r\n${'x'.repeat(65_536)}\r\n`
    const answer = await send(
      `POST ${users}`,
      [auth, 'Transfer-Encoding: chunked'],
      chunk.repeat(17) + '0\r\n\r\n',
    )
    expect(statusOf(answer)).toBe(413)
  })
})

describe('builder listener', () => {
  it('answers all malformed paths alike', async () => {
    expect(statusOf(await rawExchange(harness.gateway.builderUrl, request('GET /%zz')))).toBe(400)
  })
})
