import { Agent, request } from 'node:http'
import * as fc from 'fast-check'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { isReadable } from '../../../core/lib/text/readable.ts'
import { type Real, type RealApp, sample, startReal } from '../../gateway/real.ts'
import { asRecord } from '../../gateway/support.ts'
import {
  type DocumentedRequest,
  type StringField,
  requestsOf,
  withText,
} from '../../support/web/string-fields.ts'
import { readSize, testSeed } from '../../support/run/sizes.ts'

/**
 * Sends hostile values in every string of every request in both listeners' OpenAPI documents, as a
 * caller who may make the request.
 */
const atOnce = 8

const sqlTexts = [
  "' or '1'='1",
  "'; drop table apps; --",
  "') union select password_hash from accounts --",
  '$1',
]
/** Values for every string in a large run; in others each string gets some of them. */
const always = [
  '',
  'a\0b',
  '\u202eevil',
  'a\r\nSet-Cookie: x=y',
  '\ud800',
  ...sqlTexts,
  '9'.repeat(400),
]
/** Values of which each string gets some. */
const classics = [
  ' ',
  '\0',
  '\u0007',
  '\u001b[31m',
  '\u007f',
  '\u009b',
  '\u2028',
  '\u2066a\u2069',
  'a\udfff',
  'a'.repeat(3_000),
  '😀'.repeat(60),
  '-1',
  '1e309',
  'NaN',
  '٣٤٥',
  '１２３',
  '..',
  '../../../etc/passwd',
  '%2e%2e%2f',
  '%00',
  '%',
  'null',
  '__proto__',
  'constructor',
  '{{7*7}}',
  '<script>alert(1)</script>',
  '9999-12-31T23:59:59Z',
  '2026-02-30T00:00:00Z',
  '-271821-04-20T00:00:00.000Z',
]
const texts = fc.oneof(
  fc.string({ unit: 'binary', maxLength: 40 }),
  fc.string({ unit: 'grapheme', maxLength: 40 }),
  fc.string({ unit: fc.constantFrom(...'\0\u0008\u202e\ud83d\udc00\u2029é٣a'), maxLength: 6 }),
)
/** JSON values instead of a string. */
const others: readonly unknown[] = [0, -1, 1e21, 2 ** 53, true, null, [], {}, ['a'], { a: '\0' }]

const grantTypes = [
  'authorization_code',
  'refresh_token',
  'urn:ietf:params:oauth:grant-type:device_code',
  'urn:ietf:params:oauth:grant-type:token-exchange',
]
const publicGrants = new Set(grantTypes.slice(0, 3))
const publicPath = /\/device\/auth$|\/device_authorization$/

interface Attack extends DocumentedRequest {
  /** URL of the listener. */
  readonly url: string
  readonly grantType?: string
}

let real: Real
let app: RealApp
let admin: Readonly<Record<string, string>>
let requests: readonly Attack[]
const agent = new Agent({ keepAlive: true, maxSockets: atOnce })

beforeAll(async () => {
  real = await startReal({ PAYMENT_PROCESSOR: 'simulated' })
  admin = (await real.newPerson(true)).session
  await renew()
  requests = [
    ...requestsOf(await internalDocument())
      .map(at(real.url))
      .flatMap(withGrantTypes),
    ...requestsOf(await builderDocument()).map(at(real.builderUrl)),
  ]
}, 120_000)
afterAll(async () => {
  agent.destroy()
  await real?.stop()
})

const at =
  (url: string) =>
  (documented: DocumentedRequest): Attack => ({ ...documented, url })

/** Repeats the request for each grant type, because each reads different fields. */
function withGrantTypes(documented: Attack): Attack[] {
  const hasGrants = documented.fields.some(({ name }) => name === 'grant_type')
  return hasGrants
    ? [documented, ...grantTypes.map((grantType) => ({ ...documented, grantType }))]
    : [documented]
}

let apps = 0
async function renew(): Promise<void> {
  apps += 1
  app = await real.newApp(`hostile${apps}`)
}

const internalDocument = async () =>
  asRecord(
    await (await fetch(`${real.url}/api/v1/internal/openapi.json`, { headers: admin })).json(),
  )

const builderDocument = async () =>
  asRecord(await (await fetch(`${real.builderUrl}/api/v1/openapi.json`)).json())

/** Returns the headers of a caller who may make the request. */
function callerOf({ path, security, grantType }: Attack): Readonly<Record<string, string>> {
  if (path.startsWith('/api/v1/quotas/')) return admin
  if (publicPath.test(path) || (grantType !== undefined && publicGrants.has(grantType))) return {}
  const [scheme] = security
  const credentials: Readonly<Record<string, Readonly<Record<string, string>>>> = {
    m2mBasic: { authorization: app.basic },
    machineToken: { authorization: app.machineToken },
    userToken: { authorization: app.userToken },
    apiKey: { authorization: app.apiKey },
    session: app.session,
    sharedSecret: { authorization: 'Bearer ingest-secret-of-at-least-32-characters' },
  }
  return credentials[scheme ?? 'm2mBasic'] ?? { authorization: app.basic }
}

interface Seen {
  readonly status: number
  readonly type: string
  readonly text: string
}

// Encodes every byte, so that URL parsers change neither dot segments nor invalid UTF-8.
const percent = (text: string): string =>
  [...text]
    .map((each) => (each.isWellFormed() ? Buffer.from(each) : surrogateBytes(each.charCodeAt(0))))
    .flatMap((bytes) => [...bytes])
    .map((byte) => `%${byte.toString(16).padStart(2, '0')}`)
    .join('')
const surrogateBytes = (unit: number): Buffer =>
  Buffer.from([0xe0 | (unit >> 12), 0x80 | ((unit >> 6) & 0x3f), 0x80 | (unit & 0x3f)])

const knownText: Readonly<Record<string, string>> = {
  externalUserId: 'ada',
  email: 'ada@example.com',
  meter: 'fee_wei',
}

/** Returns the request with `value` in the field. */
function requestWith(documented: Attack, field: StringField, value: unknown) {
  const text = String(value)
  const known = (name: string): string =>
    name === 'clientId' ? app.clientId : (knownText[name] ?? 'text')
  const valueOf = (place: string, name: string): string =>
    field.in === place && field.name === name ? percent(text) : encodeURIComponent(known(name))
  const path = documented.path.replace(/\{([^}]+)\}/g, (_, name: string) => valueOf('path', name))
  const names = documented.required.filter((each) => each.in === 'query').map(({ name }) => name)
  if (field.in === 'query' && !names.includes(field.name)) names.push(field.name)
  const query = names.map((name) => `${name}=${valueOf('query', name)}`).join('&')
  const headers: Record<string, string> = { accept: 'application/json', ...callerOf(documented) }
  if (field.in === 'header') headers[field.name] = text.replace(/[^\t\x20-\x7e\x80-\xff]/g, '\x80')
  const base = documented.body === null ? undefined : baseOf(documented)
  const body = field.in === 'body' ? withText(base, field.way, value) : base
  if (documented.body !== null) headers['content-type'] = documented.contentType
  const bytes = Buffer.from(body === undefined ? '' : encode(body, documented.contentType))
  // Node sets no length for a DELETE by default.
  headers['content-length'] = String(bytes.length)
  return {
    method: documented.method,
    url: documented.url,
    path: query === '' ? path : `${path}?${query}`,
    headers,
    body: bytes,
  }
}

/** Returns a body that the schema permits. Public clients are named in it. */
function baseOf({ url, path, body, contentType, grantType }: Attack): unknown {
  const base = sample({ ...body })
  if (url === real.builderUrl && contentType.includes('form')) return exchangeOf(app.apiKey)
  if (grantType !== undefined)
    return { ...asRecord(base), grant_type: grantType, client_id: app.clientId }
  return publicPath.test(path) ? { ...asRecord(base), client_id: app.clientId } : base
}

/** The only form body of the builder API. */
const exchangeOf = (bearer: string) => ({
  grant_type: 'urn:ietf:params:oauth:grant-type:token-exchange',
  subject_token: bearer.slice('Bearer '.length),
  subject_token_type: 'urn:ietf:params:oauth:token-type:access_token',
})

function encode(body: unknown, contentType: string): string {
  if (!contentType.includes('form')) return JSON.stringify(body)
  return Object.entries(asRecord(body))
    .map(([name, value]) => `${encodeURIComponent(name)}=${percent(String(value))}`)
    .join('&')
}

function send({ url, method, path, headers, body }: ReturnType<typeof requestWith>): Promise<Seen> {
  const { hostname, port } = new URL(url)
  return new Promise((resolve, reject) => {
    const call = request({ agent, hostname, port, method, path, headers }, (response) => {
      const seen = {
        status: response.statusCode ?? 0,
        type: response.headers['content-type'] ?? '',
      }
      // A stream does not end until its reader closes it.
      if (seen.type.startsWith('text/event-stream')) {
        response.destroy()
        return resolve({ ...seen, text: '' })
      }
      let text = ''
      response.setEncoding('utf8').on('data', (chunk: string) => (text += chunk))
      response.on('end', () => resolve({ ...seen, text }))
      response.on('error', reject)
    })
    call.on('error', (error) => reject(new Error(`${method} ${path}`, { cause: error })))
    call.end(body)
  })
}

const innards =
  /\n\s+at |node_modules|\.ts:\d|\b(?:Type|Range|Syntax|Reference)Error\b|\bpg_|postgres|relation "|column "|invalid byte sequence|syntax error at|violates .* constraint|\bselect .* from\b|\binsert into\b|ECONN/i
/** Status names of gRPC. Pages list the public code `internal`, so there only upper case counts. */
const statusName = { page: /\bINTERNAL\b/, document: /\bINTERNAL\b/i }

const withoutEntities = (text: string): string =>
  text.replaceAll('&#39;', "'").replaceAll('&quot;', '"').replaceAll('&amp;', '&')

/** Returns what is wrong with an answer; null if it is correct. */
function faultOf(field: StringField, value: unknown, { status, type, text }: Seen): string | null {
  const isRefusal = status >= 400
  if (status >= 500 && !/"(?:code|error)":"metering_not_configured"/.test(text))
    return 'a fault of ours'
  const isPage = type.includes('html')
  const plain = isPage ? withoutEntities(text) : text
  // Blank text cannot be replaced: that would change the rest of the page. Without a letter in its
  // place its neighbours would become one word: `stripe_connect` without `_` contains ECONN.
  const isVisible = typeof value === 'string' && value.trim() !== ''
  const own = isVisible ? plain.replaceAll(value, 'x') : plain
  // Tokens and cursors are random and may contain any word.
  const words = own.replace(/[\w-]{40,}/g, '')
  const unsent = sqlTexts.reduce((rest, each) => rest.replaceAll(each, ''), words)
  if (innards.test(unsent) || statusName[isPage ? 'page' : 'document'].test(unsent))
    return 'it shows what is inside'
  if (isRefusal && !/json/.test(type)) return `a refusal as ${type}`
  if (isRefusal && !/^[a-z][a-z0-9_]*$/.test(codeOf(text))) return 'a refusal without a code'
  const isExcepted = field.format === 'label' || field.format === 'password'
  // HTTP strips blanks around header values (RFC 9110, 5.5).
  const sent = typeof value === 'string' && field.in === 'header' ? value.trim() : value
  const isHostile = typeof sent === 'string' && !isReadable(sent)
  if (isHostile && !isRefusal && !isExcepted) return 'unreadable text was taken'
  return null
}

function codeOf(text: string): string {
  const body = asRecord(JSON.parse(text))
  return String(body['code'] ?? body['error'])
}

/** Returns the values for one field; they depend only on the seed and the index. */
function valuesFor(field: StringField, index: number): readonly unknown[] {
  const of = <T>(each: fc.Arbitrary<T>, numRuns: number): T[] =>
    fc.sample(each, { seed: testSeed + index, numRuns })
  const inJson = field.in === 'body' ? of(fc.constantFrom(...others), 3) : []
  const all = [...always, ...of(fc.constantFrom(...classics), 4), ...of(texts, 2), ...inJson]
  const length = Math.min(readSize('TEST_STRINGS'), all.length)
  return of(fc.shuffledSubarray(all, { minLength: length, maxLength: length }), 1).flat()
}

async function attack(documented: Attack, offset: number): Promise<string[]> {
  const faults: string[] = []
  const cases = documented.fields.flatMap((field, index) =>
    valuesFor(field, offset + index).map((value) => ({ field, value })),
  )
  const next = cases.values()
  const work = async (): Promise<void> => {
    for (const { field, value } of next) {
      const seen = await send(requestWith(documented, field, value))
      const fault = faultOf(field, value, seen)
      const shown = JSON.stringify(value)?.slice(0, 60)
      if (fault !== null)
        faults.push(
          `${documented.method} ${documented.path} ${field.in} ${field.name} = ${shown}: ${fault}: ${seen.status} ${seen.text.slice(0, 200)}`,
        )
    }
  }
  await Promise.all(Array.from({ length: atOnce }, work))
  return faults
}

/** Returns whether the app's credentials still work, because a request may have ended them. */
async function isWhole(): Promise<boolean> {
  const at = `/api/v1/apps/${app.clientId}`
  const ask = async (path: string, headers: Readonly<Record<string, string>>) =>
    (await fetch(real.url + path, { headers })).status
  const statuses = await Promise.all([
    ask(`${at}/users`, { authorization: app.basic }),
    ask(`${at}/users`, { authorization: app.machineToken }),
    ask('/api/v1/auth/validate', { authorization: app.apiKey }),
    ask('/api/v1/session', app.session),
    ask('/api/v1/user/allowance', { authorization: app.userToken }),
  ])
  return statuses.every((status) => status !== 401 && status !== 403)
}

describe(`every string of every request, TEST_SEED=${testSeed}`, () => {
  it('gets an answer or a documented refusal, never a 5xx', async () => {
    const faults: string[] = []
    let offset = 0
    let count = 0
    for (const documented of requests) {
      if (!(await isWhole())) await renew()
      faults.push(...(await attack(documented, offset)))
      offset += documented.fields.length
      count += documented.fields.length
    }
    expect(faults.slice(0, 20)).toEqual([])
    expect(count).toBeGreaterThan(250)
  }, 300_000)
})
