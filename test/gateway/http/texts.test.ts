import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { clientId } from '../../fakes/gateway-core/identity.ts'
import { type Ask, type Harness, startHarness } from '../support.ts'

let harness: Harness
beforeAll(async () => {
  harness = await startHarness()
})
afterAll(() => harness.stop())
beforeEach(() => harness.core.reset())

const app = `/api/v1/apps/${clientId}`
const encoded = encodeURIComponent

/** Inputs for text, and the field named in the refusal. */
const doors: readonly [string, (text: string) => [string, string, Ask?]][] = [
  ['externalUserId', (text) => ['GET', `${app}/users/${encoded(text)}/keys`]],
  ['clientId', (text) => ['GET', `/api/v1/apps/${encoded(text)}/users`]],
  ['status', (text) => ['GET', `${app}/users?status=${encoded(text)}`]],
  ['nobody', (text) => ['GET', `${app}/users?nobody=${encoded(text)}`]],
  ['limit/1', (text) => ['GET', `${app}/users?limit=1&limit=${encoded(text)}`]],
  ['the name a?b', (text) => ['GET', `${app}/users?${encoded(text)}=1`]],
  ['externalUserId', (text) => ['POST', `${app}/users`, { json: { externalUserId: text } }]],
  ['any', (text) => ['POST', `${app}/users`, { json: { externalUserId: 'a', any: text } }]],
  ['any/0/b', (text) => ['POST', `${app}/users`, { json: { any: [{ b: text }] } }]],
  ['the name a?b', (text) => ['POST', `${app}/users`, { json: { [text]: 1 } }]],
  ['the name any/a?b', (text) => ['POST', `${app}/users`, { json: { any: { [text]: 1 } } }]],
  ['scope', (text) => ['POST', '/api/v1/oidc/token', { form: `scope=${encoded(text)}` }]],
  ['the name a?b', (text) => ['POST', '/api/v1/oidc/token', { form: `${encoded(text)}=1` }]],
  ['audience/0', (text) => ['POST', '/api/v1/oidc/token', { form: `audience=${encoded(text)}` }]],
]

describe.each(doors)('%s', (field, requestOf) => {
  it.each([
    ['\0', 'a NUL character (U+0000)'],
    ['\u001b', 'a control character (U+001B)'],
    ['\u007f', 'a control character (U+007F)'],
    ['\u0085', 'a line break (U+0085)'],
    ['\r\n', 'a line break (U+000D)'],
    ['\u202e', 'a bidirectional formatting character (U+202E)'],
    ['\u2069', 'a bidirectional formatting character (U+2069)'],
  ])('is rejected with %j, and named', async (character, kind) => {
    const [method, path, ask] = requestOf(`a${character}b`)
    const { status, body } = await harness.ask(method, path, ask)
    const name = character.length === 1 ? field : field.replace('a?b', 'a??b')
    expect([status, body['detail'] ?? body['error_description']]).toEqual([
      400,
      `${name} contains ${kind}, which is not allowed`,
    ])
    expect([body['code'] ?? body['error']]).toEqual([
      path.endsWith('/token') ? 'invalid_request' : 'request_invalid',
    ])
    expect(harness.core.names().filter((each) => each !== 'checkCaller')).toEqual([])
  })
})

describe('half of a surrogate pair', () => {
  it('is rejected in JSON, in names and values', async () => {
    const headers = { 'content-type': 'application/json' }
    const post = async (text: string) =>
      (await harness.ask('POST', `${app}/users`, { text, headers })).body['detail']
    expect(await post('{"externalUserId":"a\\ud800"}')).toBe(
      'externalUserId contains half of a surrogate pair (U+D800), which is not allowed',
    )
    expect(await post('{"a\\udc00b":1}')).toBe(
      'the name a?b contains half of a surrogate pair (U+DC00), which is not allowed',
    )
  })

  it.each(['%ED%A0%80', '%FF', '%C3', '%C0%80'])(
    'is rejected like other bytes that are not UTF-8: %s',
    async (bytes) => {
      const inQuery = await harness.ask('GET', `${app}/users?status=${bytes}`)
      expect([inQuery.status, inQuery.body['detail']]).toEqual([400, 'the query is not UTF-8'])
      const inForm = await harness.ask('POST', '/api/v1/oidc/token', { form: `scope=${bytes}` })
      expect([inForm.status, inForm.body['error_description']]).toEqual([
        400,
        'the body is not UTF-8',
      ])
      expect((await harness.ask('GET', `${app}/users/${bytes}/keys`)).status).toBe(400)
    },
  )
})

describe('header in a schema', () => {
  it('is rejected with a control character, and named', async () => {
    const answer = await harness.raw(
      [
        'GET /api/v1/user/usage/stream HTTP/1.1',
        'Host: x',
        'Connection: close',
        `Authorization: Bearer a.b.c`,
        'Last-Event-ID: a\x9bb',
        '',
        '',
      ].join('\r\n'),
    )
    expect(answer).toMatch(/^HTTP\/1\.1 400 /)
    expect(answer).toContain('last-event-id contains a control character (U+009B)')
  })
})

describe('unusual text', () => {
  it.each([
    'a/b',
    "' or 1=1 --",
    '../../etc/passwd',
    '١٢٣',
    '日本語',
    '😀',
    'עברית',
    '%00',
    '\ufffd',
  ])('arrives unchanged: %j', async (externalUserId) => {
    expect((await harness.ask('POST', `${app}/users`, { json: { externalUserId } })).status).toBe(
      201,
    )
    expect(harness.core.last().request).toMatchObject({ externalUserId })
    await harness.ask('GET', `${app}/users/${encoded(externalUserId)}/keys`)
    expect(harness.core.last().request).toMatchObject({ externalUserId })
  })

  it("is cleaned in a key's label", async () => {
    const keys = `${app}/users/ada/keys`
    expect((await harness.ask('POST', keys, { json: { label: 'a\u202eb\n' } })).status).toBe(201)
    expect((await harness.ask('POST', keys, { json: { label: 'a\0' } })).status).toBe(400)
    expect((await harness.ask('POST', keys, { json: { other: '\n' } })).status).toBe(400)
  })

  it('is allowed in a password, except NUL', async () => {
    const log = async (password: string) => {
      const form = `email=ada@example.com&password=${encoded(password)}`
      const headers = { accept: 'application/json' }
      const { status, body } = await harness.ask('POST', '/login', { form, headers })
      return [status, body['detail']]
    }
    expect((await log('\u200ea long enough password\t'))[0]).toBe(403)
    expect(await log('a\0b')).toEqual([
      400,
      'password contains a NUL character (U+0000), which is not allowed',
    ])
  })
})
