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

/** Every object in a JSON document, with its keys. */
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

describe('the OpenAPI document', () => {
  it('is of version 3.0.3 and lists the routes of the specification', () => {
    expect(harness.document['openapi']).toBe('3.0.3')
    expect(harness.document['servers']).toEqual([{ url: publicUrl }])
    expect(operations().map(({ name }) => name)).toEqual(expect.arrayContaining(routes))
  })

  it('refers only to what it holds, and holds only what it refers to', () => {
    const schemas = Object.keys(asRecord(asRecord(harness.document['components'])['schemas']))
    const refs = objects(harness.document).flatMap(({ $ref }) =>
      typeof $ref === 'string' ? [$ref] : [],
    )
    expect([...new Set(refs)].sort()).toEqual(
      schemas.map((name) => `#/components/schemas/${name}`).sort(),
    )
  })

  it('uses no word of JSON Schema that OpenAPI 3.0 lacks', () => {
    for (const each of objects(harness.document)) {
      expect(Object.keys(each)).not.toEqual(expect.arrayContaining(['$id']))
      for (const word of ['const', '$schema', 'patternProperties', 'if', 'examples', '~kind'])
        expect(each).not.toHaveProperty(word)
      expect(each['type']).not.toBe('null')
      expect(Array.isArray(each['type'])).toBe(false)
    }
  })

  it('declares each path parameter, describes each response, and names only known security schemes', () => {
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
        expect(asRecord(response)['description']).toEqual(expect.any(String))
      }
      for (const name of objects(operation['security'] ?? []).flatMap(Object.keys))
        expect(schemes).toContain(name)
      expect(operation['summary']).toEqual(expect.any(String))
    }
  })

  it('marks old addresses as deprecated, and takes forms at the token endpoint', () => {
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
