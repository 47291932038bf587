import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type Harness, asRecord, publicUrl, startHarness } from '../../support.ts'

let harness: Harness
beforeAll(async () => {
  harness = await startHarness({ webhook: (_, response) => response.end('{}') })
})
afterAll(() => harness.stop())

const app = '/api/v1/apps/{clientId}'
const builder = '/api/v1/builder/apps/{clientId}'
const routes = [
  'get /health',
  'get /api/v1/openapi.json',
  'get /.well-known/openid-configuration',
  'get /api/v1/oidc/.well-known/openid-configuration',
  'get /api/v1/oidc/jwks',
  'post /api/v1/oidc/token',
  `get ${app}/users`,
  `post ${app}/users`,
  `put ${app}/users`,
  `delete ${app}/users`,
  `post ${app}/users/{externalUserId}/token`,
  `get ${app}/users/{externalUserId}/keys`,
  `post ${app}/users/{externalUserId}/keys`,
  `delete ${app}/users/{externalUserId}/keys`,
  `get ${app}/users/{externalUserId}/allowances`,
  `post ${app}/users/{externalUserId}/allowances`,
  `post ${app}/auth/api-key/token`,
  `get ${builder}/usage`,
  `get ${builder}/usage/balance`,
  `get ${app}/usage`,
  `get ${app}/usage/balance`,
  `get ${builder}/usage/requests`,
  `get ${builder}/usage/stream`,
  'get /api/v1/user/usage/requests',
  'get /api/v1/user/usage/stream',
  'get /api/v1/user/usage',
  'get /api/v1/user/usage/balance',
  'post /webhooks/remote-signer',
  'post /api/signer/generate-live-payment',
  'post /api/signer/sign-orchestrator-info',
  'post /api/signer/sign-byoc-job',
  'get /api/signer/discover-orchestrators',
  `post ${app}/usage/signed-tickets`,
  'post /api/v1/subscriptions',
  'delete /api/v1/subscriptions',
  'get /api/v1/subscriptions',
  'post /api/v1/ingest/events',
]

/** Returns all objects in a JSON document. */
function objects(value: unknown): Record<string, unknown>[] {
  if (typeof value !== 'object' || value === null) return []
  const children = Object.values(value).flatMap(objects)
  return Array.isArray(value) ? children : [asRecord(value), ...children]
}

const operations = () =>
  Object.entries(asRecord(harness.document['paths'])).flatMap(([path, item]) =>
    Object.entries(asRecord(item)).map(([method, operation]) => ({
      name: `${method} ${path}`,
      path,
      operation: asRecord(operation),
    })),
  )

describe('OpenAPI document', () => {
  it('has version 3.0.3 and lists the specified routes', () => {
    expect(harness.document['openapi']).toBe('3.0.3')
    expect(harness.document['servers']).toEqual([{ url: publicUrl }])
    expect(operations().map(({ name }) => name)).toEqual(expect.arrayContaining(routes))
  })

  it('contains exactly the schemas to which it refers', () => {
    const schemas = Object.keys(asRecord(asRecord(harness.document['components'])['schemas']))
    const refs = objects(harness.document).flatMap(({ $ref }) =>
      typeof $ref === 'string' ? [$ref] : [],
    )
    expect([...new Set(refs)].sort()).toEqual(
      schemas.map((name) => `#/components/schemas/${name}`).sort(),
    )
  })

  it('uses no JSON Schema keyword that OpenAPI 3.0 lacks', () => {
    const all = objects(harness.document)
    const words = new Set(all.flatMap(Object.keys))
    for (const word of ['$id', 'const', '$schema', 'patternProperties', 'if', '~kind'])
      expect(words).not.toContain(word)
    // A media type may have them next to its schema; a schema may not.
    expect(all.filter((each) => 'examples' in each && !('schema' in each))).toEqual([])
    const types = all.map(({ type }) => type)
    expect(types).not.toContain('null')
    expect(types.filter(Array.isArray)).toEqual([])
  })

  it('declares each path parameter, describes each response, and refers only to existing security schemes', () => {
    const schemes = Object.keys(
      asRecord(asRecord(harness.document['components'])['securitySchemes']),
    )
    for (const { path, operation } of operations()) {
      const parameters = objects(operation['parameters'] ?? [])
      const inPath = parameters
        .filter((each) => each['in'] === 'path')
        .map((each) => `{${String(each['name'])}}`)
      expect(inPath.sort()).toEqual((path.match(/\{[^}]+\}/g) ?? []).sort())
      for (const response of Object.values(asRecord(operation['responses']))) {
        // Not the library's "Default Response".
        expect(asRecord(response)['description']).toMatch(/^(?!Default Response$)./)
      }
      for (const name of objects(operation['security'] ?? []).flatMap(Object.keys))
        expect(schemes).toContain(name)
      expect(operation['summary']).toEqual(expect.any(String))
    }
  })

  it('requires the CSRF token for each change by session, but not for reads', () => {
    const odd = operations().filter(({ name, operation }) => {
      const ways = [operation['security'] ?? []].flat().map(asRecord)
      const isChange = !name.startsWith('get ')
      return ways.some((way) => 'session' in way && 'csrfToken' in way !== isChange)
    })
    expect(odd.map(({ name }) => name)).toEqual([])
  })

  it('has a success answer for each route that is not removed', () => {
    const without = operations().filter(
      ({ operation }) =>
        !Object.keys(asRecord(operation['responses'])).some((status) => status.startsWith('2')),
    )
    expect(without.map(({ operation }) => operation['tags'])).toEqual(
      without.map(() => ['removed']),
    )
  })

  it('marks old paths as deprecated, and accepts forms at the token endpoint', () => {
    const deprecated = operations()
      .filter(({ operation }) => operation['deprecated'] === true)
      .map(({ name }) => name)
    expect(deprecated).toEqual(
      expect.arrayContaining([
        `get ${app}/usage`,
        `get ${app}/usage/balance`,
        `get ${app}/users/{externalUserId}/credits`,
      ]),
    )
    const token = asRecord(
      asRecord(asRecord(harness.document['paths'])['/api/v1/oidc/token'])['post'],
    )
    expect(Object.keys(asRecord(asRecord(token['requestBody'])['content']))).toEqual([
      'application/x-www-form-urlencoded',
    ])
  })
})

/** Returns the schema itself, or the alternatives to which it refers. */
function alternatives(schema: unknown): Record<string, unknown>[] {
  const components = asRecord(asRecord(harness.document['components'])['schemas'])
  const { oneOf, $ref } = asRecord(schema)
  if (Array.isArray(oneOf)) return oneOf.flatMap(alternatives)
  return typeof $ref === 'string'
    ? [asRecord(components[$ref.replace('#/components/schemas/', '')])]
    : [asRecord(schema)]
}

const contentsOf = (operation: Record<string, unknown>, isWanted: (status: number) => boolean) =>
  Object.entries(asRecord(operation['responses']))
    .filter(([status]) => isWanted(Number(status)))
    .flatMap(([status, response]) =>
      Object.entries(asRecord(asRecord(response)['content'] ?? {})).map(([type, media]) => ({
        status,
        type,
        media: asRecord(media),
      })),
    )

describe('groups of operations', () => {
  it('are ordered by role, with users, keys and tokens first and removed routes last', () => {
    const tags = [harness.document['tags']].flat().map((tag) => String(asRecord(tag)['name']))
    expect(tags.slice(0, 3)).toEqual(['users', 'keys', 'tokens'])
    expect(tags.at(-1)).toBe('removed')
    const used = new Set(operations().flatMap(({ operation }) => [operation['tags']].flat()))
    expect([...used].toSorted()).toEqual(tags.toSorted())
  })

  it('are preceded by the first steps, with links to operations', () => {
    const text = String(asRecord(harness.document['info'])['description'])
    const links = [...text.matchAll(/\(#\/(\w+)\/(\w+)\)/g)].map(([, tag, id]) => [tag, id])
    expect(links.length).toBeGreaterThan(3)
    const known = operations().map(({ operation }) => [
      [operation['tags']].flat()[0],
      operation['operationId'],
    ])
    for (const link of links) expect(known).toContainEqual(link)
  })
})

describe('every operation', () => {
  it('has a unique operationId, a verb and a noun in camel case', () => {
    const ids = operations().map(({ operation }) => String(operation['operationId']))
    const odd = operations().flatMap(({ name, operation }) =>
      /^[a-z]+([A-Z][a-z0-9]*)+$/.test(String(operation['operationId'])) ? [] : [name],
    )
    expect(odd, 'give these routes an operationId such as listUsers').toEqual([])
    expect(
      ids.filter((id, i) => ids.indexOf(id) !== i),
      'an operationId names one operation',
    ).toEqual([])
  })

  it('is described in sentences, like its parameters', () => {
    const sentence = /^.{20,}\.$/s
    const vague = operations().flatMap(({ name, operation }) => [
      ...(sentence.test(String(operation['description'])) ? [] : [name]),
      ...objects(operation['parameters'] ?? [])
        .filter((each) => 'in' in each && !each['description'])
        .map((each) => `${name}: parameter ${String(each['name'])}`),
    ])
    expect(vague, 'describe these (RouteSchema.description, and Type.X({ description }))').toEqual(
      [],
    )
  })

  it('takes an Idempotency-Key where it matters, above all for credits', () => {
    const takesKey = operations().flatMap(({ name, operation }) =>
      objects(operation['parameters'] ?? [])
        .filter((each) => each['name'] === 'idempotency-key')
        .map((each) => ({ name, example: each['example'], required: each['required'] })),
    )
    expect(takesKey.map(({ name }) => name)).toContain(
      'post /api/v1/apps/{clientId}/users/{externalUserId}/allowances',
    )
    for (const { example, required } of takesKey) {
      expect(example).toBe('order-4711')
      expect(required).not.toBe(true)
    }
  })

  it('lists the codes of each refusal, with examples', () => {
    // The signer's contract has its own codes (docs/signer-answers.md).
    const ours = operations().filter(({ name }) => name !== 'post /webhooks/remote-signer')
    const vague = ours.flatMap(({ name, operation }) =>
      contentsOf(operation, (status) => status >= 400)
        .filter(({ type }) => type !== 'text/html')
        .flatMap(({ status, type, media }) => {
          const word = type === 'application/problem+json' ? 'code' : 'error'
          const codes = alternatives(media['schema']).flatMap(
            (schema) => asRecord(asRecord(schema['properties'])[word] ?? {})['enum'] ?? [],
          )
          const shown = Object.keys(asRecord(media['examples'] ?? {}))
          return codes.length > 0 && shown.length > 0 ? [] : [`${name} ${status}`]
        }),
    )
    expect(vague, 'state the reasons: `refuses` of the route (http/route.ts)').toEqual([])
    expect(operations().flatMap(({ operation }) => Object.keys(asRecord(operation['responses']))))
      // A default would mean that any refusal is possible.
      .not.toContain('default')
  })

  it('links each problem to a page about it', async () => {
    const types = new Set(
      operations().flatMap(({ operation }) =>
        contentsOf(operation, (status) => status >= 400).flatMap(({ media }) =>
          Object.values(asRecord(media['examples'] ?? {})).flatMap(
            (example) => asRecord(asRecord(example)['value'])['type'] ?? [],
          ),
        ),
      ),
    )
    expect(types.size).toBeGreaterThan(10)
    for (const type of types) {
      const { pathname, origin } = new URL(String(type))
      expect(origin).toBe(publicUrl)
      const page = await harness.ask('GET', pathname, { authorization: null })
      expect([type, page.status]).toEqual([type, 301])
      const { status, headers } = await harness.ask('GET', page.headers.get('location') ?? '', {
        authorization: null,
      })
      expect([status, headers.get('content-type')]).toEqual([200, 'text/html; charset=utf-8'])
    }
  })
})
