import * as fc from 'fast-check'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { hostileText, spoiltJson } from '../support/hostile.ts'
import { type Operation, type Real, type RealApp, addressFor, bodyFor, operationsOf, sample, startReal } from './real.ts'
import { asRecord, documentChecker } from './support.ts'

const seed = Number(process.env['FUZZ_SEED'] ?? Math.floor(Math.random() * 2 ** 31))

let real: Real
let app: RealApp
let other: RealApp
let operations: readonly Operation[]
let check: Awaited<ReturnType<typeof documentChecker>>
beforeAll(async () => {
  real = await startReal()
  app = await real.newApp('documented')
  other = await real.newApp('other')
  const found = await operationsOf(real.url, app.session)
  operations = found.operations
  check = await documentChecker(found.document, { strict: true })
})
afterAll(() => real.stop())

interface Sent extends RequestInit { readonly path: string; readonly method: string }

async function ask({ path, ...init }: Sent): Promise<number> {
  const response = await fetch(real.url + path, { redirect: 'manual', ...init })
  const text = await response.text()
  const json = /json/.test(response.headers.get('content-type') ?? '') && text !== ''
  const body: unknown = json ? JSON.parse(text) : {}
  const answer = { status: response.status, headers: response.headers, text, body: Array.isArray(body) ? {} : asRecord(body) }
  if (!Array.isArray(body)) check({ method: init.method, path: new URL(response.url).pathname, answer })
  return response.status
}

const credentials = (): Readonly<Record<string, string>>[] => [
  {}, { authorization: app.basic }, { authorization: app.machineToken }, { authorization: app.userToken }, { authorization: app.apiKey },
  app.session, other.session, { cookie: app.session['cookie'] ?? '' }, { authorization: other.basic },
  { authorization: 'Basic nonsense' }, { authorization: 'Bearer nonsense' }, { authorization: 'Bearer ingest-secret-of-at-least-32-characters' },
]

const headersOf = ({ headers }: RequestInit): Record<string, string> => Object.fromEntries(new Headers(headers))

/** Deleting the app that the others need, and its owner's own doing, come last. */
const destructive = ({ method, path }: Operation): boolean => method === 'DELETE' && path === '/api/v1/apps/{clientId}'

describe('every route', () => {
  it('is in the document that this test is made from', () => {
    expect(operations.length).toBeGreaterThan(30)
  })

  it('answers whoever calls it only as it is documented', async () => {
    const good: string[] = []
    for (const operation of operations.filter((each) => !destructive(each))) {
      for (const credential of credentials()) {
        for (const clientId of [app.clientId, other.m2mClientId]) {
          const body = bodyFor(operation)
          const status = await ask({
            method: operation.method, path: addressFor(operation, { clientId }), ...body, headers: { ...headersOf(body), ...credential },
          })
          if (status < 300) good.push(`${operation.method} ${operation.path}`)
        }
      }
    }
    // What is only ever refused is not much of a test.
    expect(new Set(good).size).toBeGreaterThan(operations.length / 3)
  }, 120_000)

  it('answers bad bodies only as it is documented', async () => {
    const bodies = ['', '{', 'null', '[]', '1', '"x"', '{"a":{"b":[1]}}', `{"name":"${'x'.repeat(3_000)}"}`, 'a=b&a=b']
    for (const operation of operations.filter(({ body, ...rest }) => body !== null && !destructive({ body, ...rest }))) {
      const path = addressFor(operation, { clientId: app.clientId })
      for (const body of bodies) {
        for (const type of ['application/json', 'application/x-www-form-urlencoded', 'text/plain']) {
          for (const credential of [{ authorization: app.basic }, app.session]) {
            await ask({ method: operation.method, path, body, headers: { 'content-type': type, ...credential } })
          }
        }
      }
    }
  }, 120_000)

  it(`answers what nobody would send only as it is documented (FUZZ_SEED=${seed})`, async () => {
    const chosen = fc.record({
      operation: fc.constantFrom(...operations.filter((each) => !destructive(each))), text: hostileText,
      credential: fc.constantFrom(...credentials()),
    }).chain(({ operation, ...rest }) => fc.record({
      operation: fc.constant(operation), rest: fc.constant(rest),
      body: operation.body === null ? fc.constant(null) : spoiltJson({ x: 1, ...Object(sample(operation.body)) }),
    }))
    await fc.assert(fc.asyncProperty(chosen, async ({ operation, rest, body }) => {
      const clientId = app.clientId
      const text = rest.text.toWellFormed()
      const values = { clientId, externalUserId: text || 'x', id: text || 'x', domainId: text || 'x', memberId: text || 'x' }
      const path = addressFor(operation, values)
      // Dot segments would make it another route.
      if (/\/(\.|%2e){1,2}(\/|$|\?)/i.test(path)) return
      await ask({
        method: operation.method, path: path.slice(0, 8_000),
        ...(body === null ? {} : { body: body.toWellFormed() }), headers: { 'content-type': 'application/json', ...rest.credential },
      })
    }), { seed, numRuns: 600 })
  }, 120_000)
})
