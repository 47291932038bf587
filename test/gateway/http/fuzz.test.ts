import * as fc from 'fast-check'
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { asRecord, type Ask, basic, type Harness, startHarness } from '../support.ts'
import { testSeed } from '../../support/run/sizes.ts'

let harness: Harness
beforeAll(async () => {
  const builderEdge = { port: 0, url: 'https://edge.example', corsOrigins: [], perAddress: 1 }
  harness = await startHarness({ builderEdge })
})
afterAll(() => harness.stop())
beforeEach(() => harness.core.reset())

/** Texts that have broken parsers before, and any other text. */
const text = fc.oneof(
  fc.string({ unit: 'binary', maxLength: 30 }),
  fc.constantFrom(
    '',
    ' ',
    '\0',
    '%',
    '%zz',
    '..',
    '/',
    '__proto__',
    'constructor',
    '\ud800',
    '🤡',
    "'",
    '9'.repeat(400),
    'null',
    'toString',
  ),
)

const names = [
  'externalUserId',
  'email',
  'status',
  'label',
  'connection',
  'issueApiKey',
  'meter',
  'from',
  'to',
  'subject_token',
  'subject_token_type',
  'audience',
  'scope',
  'amountUsdMicros',
  'source',
  'featureKey',
  'grant_type',
  'client_id',
  'client_secret',
  'limit',
  'cursor',
  'keyId',
  'groupBy',
  'startDate',
  'endDate',
  'userId',
  'include',
  'includeRetail',
  'gatewayRequestId',
  'manifestId',
  '__proto__',
  'x',
]

const json = fc.oneof(
  fc
    .dictionary(fc.constantFrom(...names), fc.oneof(text, fc.jsonValue()), { maxKeys: 5 })
    .map((value) => JSON.stringify(value)),
  fc.json(),
  text,
)

const query = fc
  .array(
    fc.tuple(fc.constantFrom(...names), fc.oneof(text, fc.constantFrom('1', 'user', 'active'))),
    { maxLength: 4 },
  )
  .map((pairs) =>
    pairs.map(([name, value]) => `${name}=${encodeURIComponent(value.toWellFormed())}`).join('&'),
  )

const headers = fc.record(
  {
    'content-type': fc.constantFrom(
      'application/json',
      'application/x-www-form-urlencoded',
      'text/plain',
      'a',
      'application/json; charset=',
    ),
    'idempotency-key': fc.stringMatching(/^[\x20-\x7e]{0,40}$/),
    'x-correlation-id': fc.stringMatching(/^[\x20-\x7e]{0,80}$/),
  },
  { requiredKeys: [] },
)

const authorization = fc.oneof(
  fc.constantFrom(basic, 'Bearer a.b.c', 'Bearer', 'Basic ', 'Basic Og==', null),
  fc.stringMatching(/^[\x21-\x7e ]{0,40}$/),
)

const statuses = new Set([200, 201, 204, 304, 400, 401, 403, 404, 405, 409, 410, 413, 415, 422])
const isDocumented = (status: number) => statuses.has(status)

const operationsOf = ({ document }: Listener) =>
  Object.entries(asRecord(document['paths'])).flatMap(([path, item]) =>
    Object.keys(asRecord(item)).map((method) => ({ method: method.toUpperCase(), path })),
  )

/** Routes of the edge, which has no document. */
const edgePaths = {
  '/health': { get: {} },
  '/api/v1/apps/{clientId}/usage': { get: {} },
  '/api/v1/oidc/register': { post: {} },
  '/api/v1/oidc/register/{client_id}': { get: {}, put: {}, delete: {} },
  '/.well-known/oauth-protected-resource': { get: {} },
  '/.well-known/oauth-protected-resource/api/v1/apps/{clientId}/usage': { get: {} },
  '/.well-known/oauth-authorization-server': { get: {} },
  '/.well-known/oauth-authorization-server/api/v1/oidc': { get: {} },
}

type Listener = Pick<Harness, 'ask' | 'document'>
const listeners = [
  ['platform', (): Listener => harness],
  ['builder', (): Listener => harness.builder],
  ['edge', (): Listener => ({ ask: harness.askEdge, document: { paths: edgePaths } })],
] as const

it.each(listeners)('answers every operation of the %s API for an empty document', async (_, of) => {
  const listener = of()
  for (const { method, path } of operationsOf(listener)) {
    const ask = { authorization: basic, ...(method === 'GET' ? {} : { text: '{}' }) }
    const { status } = await listener.ask(method, path.replaceAll(/\{[^}]+\}/g, 'x'), ask)
    expect({ path, status }).toEqual({ path, status: expect.toSatisfy(isDocumented) })
  }
})

describe(`any input (TEST_SEED=${testSeed})`, () => {
  it.each([
    ['platform', 1500, listeners[0][1]],
    ['builder', 500, listeners[1][1]],
    ['edge', 500, listeners[2][1]],
  ] as const)(
    'of the %s API gets a documented answer without an internal error',
    async (_, numRuns, of) => {
      const listener = of()
      const paths = operationsOf(listener)
      const request = fc.record({
        route: fc.constantFrom(...paths),
        segments: fc.tuple(text, text),
        query,
        headers,
        authorization,
        body: json,
      })
      await fc.assert(
        fc.asyncProperty(
          request,
          async ({ route, segments, query, headers, authorization, body }) => {
            const path = route.path
              .replace(/\{[^}]+\}/g, () => '\u0000')
              .split('\u0000')
              .reduce(
                (left, right, index) =>
                  left + encodeURIComponent(segments[index - 1]?.toWellFormed() ?? '') + right,
              )
            const ask: Ask = {
              headers,
              authorization,
              ...(route.method === 'GET' ? {} : { text: body }),
            }
            const { status } = await listener.ask(route.method, `${path}?${query}`, ask)
            expect(statuses).toContain(status)
          },
        ),
        { seed: testSeed, numRuns },
      )
    },
    120_000,
  )

  it('on the wire gets an answer or a closed connection', async () => {
    const bytes = fc
      .uint8Array({ maxLength: 60 })
      .map((each) => Buffer.from(each).toString('latin1'))
    await fc.assert(
      fc.asyncProperty(fc.constantFrom('GET', 'POST', 'DELETE'), bytes, async (method, path) => {
        const answer = await harness.raw(
          `${method} /${path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n\r\n`,
        )
        expect(answer === '' || /^HTTP\/1\.1 (200|400|401|404|405|413|415|431) /.test(answer)).toBe(
          true,
        )
      }),
      { seed: testSeed, numRuns: 300 },
    )
  }, 60_000)
})
