import * as fc from 'fast-check'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { hostileText, spoiltJson } from '../../../support/web/hostile.ts'
import {
  type Operation,
  type Real,
  type RealApp,
  addressFor,
  bodyFor,
  operationsOf,
  sample,
  startReal,
} from '../../real.ts'
import { asRecord, basic, documentChecker } from '../../support.ts'
import { testSeed } from '../../../support/run/sizes.ts'

let real: Real
let app: RealApp
let other: RealApp
let operations: readonly Operation[]
let check: Awaited<ReturnType<typeof documentChecker>>
beforeAll(async () => {
  real = await startReal()
  app = await real.newApp('documented')
  other = await real.newApp('other')
  const covered = await operationsOf(real.url, app.session)
  operations = covered.operations
  check = await documentChecker(covered.document, { strict: true })
})
afterAll(() => real.stop())

interface Sent extends RequestInit {
  readonly path: string
  readonly method: string
}

async function ask({ path, ...init }: Sent): Promise<number> {
  const response = await fetch(real.url + path, { redirect: 'manual', ...init })
  const text = await textOf(response)
  const json = /[/+]json/.test(response.headers.get('content-type') ?? '') && text !== ''
  const body: unknown = json ? JSON.parse(text) : {}
  const answer = {
    status: response.status,
    headers: response.headers,
    text,
    body: Array.isArray(body) ? {} : asRecord(body),
  }
  if (!Array.isArray(body))
    check({ method: init.method, path: new URL(response.url).pathname, answer })
  return response.status
}

/** Does not wait for a stream, because it does not end. */
async function textOf(response: Response): Promise<string> {
  if (!response.headers.get('content-type')?.startsWith('text/event-stream')) return response.text()
  await response.body?.cancel()
  return ''
}

const credentials = (): Readonly<Record<string, string>>[] => [
  {},
  { authorization: app.basic },
  { authorization: app.machineToken },
  { authorization: app.userToken },
  { authorization: app.apiKey },
  app.session,
  other.session,
  { cookie: app.session['cookie'] ?? '' },
  { cookie: `__Host-tollgate_session=${'x'.repeat(43)}` },
  { authorization: other.basic },
  { authorization: 'Basic nonsense' },
  { authorization: basic },
  { authorization: 'Bearer nonsense' },
  { authorization: 'Bearer ingest-secret-of-at-least-32-characters' },
]

const headersOf = ({ headers }: RequestInit): Record<string, string> =>
  Object.fromEntries(new Headers(headers))

const bodyRefusals = new Set<unknown>([
  'invalid_request',
  'request_invalid',
  'amount_invalid',
  'confirm_required',
])

/** Every operation except the deletion of the app, which the others need. */
const keeping = () =>
  operations.filter(({ method, path }) => method !== 'DELETE' || path !== '/api/v1/apps/{clientId}')

describe('every route', () => {
  it('is in the document that generates this test', () => {
    expect(operations.length).toBeGreaterThan(30)
  })

  it('answers every caller as documented', async () => {
    const good = new Set<string>()
    const unauthorized = new Set<string>()
    // All credentials are answered alike for an app that does not exist (test/e2e/hostile/tenancy.test.ts).
    const callers = [
      ...credentials().map((credential) => ({ credential, clientId: app.clientId })),
      { credential: { authorization: app.basic }, clientId: other.m2mClientId },
      { credential: app.session, clientId: other.m2mClientId },
    ]
    // The callers of one operation do not wait for each other, because they are hundreds of calls.
    for (const operation of keeping()) {
      const body = bodyFor(operation)
      const name = `${operation.method} ${operation.path}`
      const statuses = await Promise.all(
        callers.map(({ credential, clientId }) =>
          ask({
            method: operation.method,
            path: addressFor(operation, { clientId }),
            ...body,
            headers: { ...headersOf(body), ...credential },
          }),
        ),
      )
      if (statuses.some((status) => status < 300)) good.add(name)
      if (statuses.includes(401)) unauthorized.add(name)
    }
    // Routes that only refuse would prove little.
    expect(good.size).toBeGreaterThan(operations.length / 3)
    expect(
      keeping().flatMap(({ method, path, statuses }) =>
        statuses.includes('401') ? [`${method} ${path}`] : [],
      ),
      'a 401 that is documented is answered',
    ).toEqual(
      keeping().flatMap(({ method, path }) =>
        unauthorized.has(`${method} ${path}`) ? [`${method} ${path}`] : [],
      ),
    )
  }, 300_000)

  it('accepts an absent body only if it is documented as optional', async () => {
    const fresh = await real.newApp('bodies')
    const admin = await real.newPerson(true)
    const callers = [
      { authorization: fresh.basic },
      { authorization: fresh.apiKey },
      { authorization: fresh.userToken },
      { authorization: 'Bearer ingest-secret-of-at-least-32-characters' },
      fresh.session,
      admin.session,
    ]
    const wrong: string[] = []
    for (const operation of keeping().filter(({ body }) => body !== null)) {
      const { method, path, isBodyRequired } = operation
      const url = real.url + addressFor(operation, { clientId: fresh.clientId })
      const refusals = await Promise.all(
        callers.map(async (headers) => {
          const { error } = asRecord(await (await fetch(url, { method, headers })).json())
          return bodyRefusals.has(error)
        }),
      )
      if (refusals.includes(true) !== isBodyRequired) wrong.push(`${method} ${path}`)
    }
    // An app without a test clock, and a person who is no user of the app, are refused before the
    // body.
    expect(wrong).toEqual([
      'POST /api/v1/internal/me/apps/{clientId}/billing/wallet/top-up',
      'POST /api/v1/apps/{clientId}/test-clock',
    ])
  })

  it('answers invalid bodies only as documented', async () => {
    const bodies = [
      '',
      '{',
      'null',
      '[]',
      '1',
      '"x"',
      '{"a":{"b":[1]}}',
      `{"name":"${'x'.repeat(3_000)}"}`,
      'a=b&a=b',
    ]
    const types = ['application/json', 'application/x-www-form-urlencoded', 'text/plain']
    const sent = bodies.flatMap((body) =>
      types.flatMap((type) =>
        [{ authorization: app.basic }, app.session].map((credential) => ({
          body,
          headers: { 'content-type': type, ...credential },
        })),
      ),
    )
    const statuses = new Set<number>()
    for (const operation of keeping().filter(({ body }) => body !== null)) {
      const path = addressFor(operation, { clientId: app.clientId })
      const answers = sent.map((each) => ask({ method: operation.method, path, ...each }))
      for (const status of await Promise.all(answers)) statuses.add(status)
    }
    expect([...statuses]).toEqual(expect.arrayContaining([400, 415]))
    expect(statuses).not.toContain(500)
  }, 300_000)

  it(`answers random input only as documented (TEST_SEED=${testSeed})`, async () => {
    const chosen = fc
      .record({
        operation: fc.constantFrom(...keeping()),
        text: hostileText,
        credential: fc.constantFrom(...credentials()),
      })
      .chain(({ operation, ...rest }) =>
        fc.record({
          operation: fc.constant(operation),
          rest: fc.constant(rest),
          body:
            operation.body === null
              ? fc.constant(null)
              : spoiltJson({ x: 1, ...Object(sample(operation.body)) }),
        }),
      )
    const statuses = new Set<number>()
    await fc.assert(
      fc.asyncProperty(chosen, async ({ operation, rest, body }) => {
        const clientId = app.clientId
        const text = rest.text.toWellFormed()
        const values = {
          clientId,
          externalUserId: text || 'x',
          id: text || 'x',
          domainId: text || 'x',
          memberId: text || 'x',
        }
        const path = addressFor(operation, values)
        // Dot segments would change the route.
        if (/\/(\.|%2e){1,2}(\/|$|\?)/i.test(path)) return
        const status = await ask({
          method: operation.method,
          path: path.slice(0, 8_000),
          ...(body === null ? {} : { body: body.toWellFormed() }),
          headers: { 'content-type': 'application/json', ...rest.credential },
        })
        statuses.add(status)
      }),
      { seed: testSeed, numRuns: 600 },
    )
    expect(statuses).not.toContain(500)
  }, 300_000)
})
