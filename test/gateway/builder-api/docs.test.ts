import { validate } from '@readme/openapi-parser'
import { Validator } from '@seriousme/openapi-schema-validator'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { meterNames } from '../../../core/metering/backend/catalog.ts'
import { asRecord, publicUrl } from '../support.ts'
import { type Builder, startBuilder } from './support.ts'

let builder: Builder
beforeAll(async () => {
  builder = await startBuilder()
})
afterAll(() => builder.stop())

describe('builder API document', () => {
  it('is OpenAPI 3.1.0, version 1.0.0, with exactly the specified routes', () => {
    expect(builder.document).toMatchObject({ openapi: '3.1.0', info: { version: '1.0.0' } })
    const paths = Object.entries(asRecord(builder.document['paths'])).flatMap(([path, item]) =>
      Object.keys(asRecord(item)).map((method) => `${method} ${path}`),
    )
    expect(paths.toSorted()).toEqual([
      'get /api/v1/apps/{clientId}/usage',
      'get /api/v1/openapi.json',
      'get /health',
      'post /api/v1/apps/{clientId}/oidc/token',
      'post /api/v1/apps/{clientId}/users',
    ])
  })

  it("lists core's meters", () => {
    const usage = asRecord(asRecord(builder.document['paths'])['/api/v1/apps/{clientId}/usage'])
    expect(asRecord(usage['get'])['parameters']).toContainEqual(
      expect.objectContaining({
        name: 'meter',
        schema: expect.objectContaining({ enum: [...meterNames] }),
      }),
    )
  })

  it('is valid', async () => {
    const { valid, errors } = await new Validator().validate(
      JSON.parse(JSON.stringify(builder.document)),
    )
    expect({ valid, errors }).toEqual({ valid: true, errors: undefined })
    expect(await validate(JSON.parse(JSON.stringify(builder.document)))).toMatchObject({
      valid: true,
      warnings: [],
    })
  })

  it('has a page that loads only its own files', async () => {
    const { status, headers, text } = await builder.ask('GET', '/api/v1/docs/')
    expect(status).toBe(200)
    expect(headers.get('content-security-policy')).toMatch(/^default-src 'none'; script-src 'self'/)
    const sources = [...text.matchAll(/(?:src|href)="([^"]+)"/g)].map(([, source]) => source)
    expect(sources.length).toBeGreaterThan(2)
    for (const source of sources) expect(source).toMatch(/^(?!https?:|\/\/)/)
  })

  it('has a page with working links', async () => {
    const { text } = await builder.ask('GET', '/api/v1/docs/static/theme/tollgate.js')
    const links = /\[\[.*?\]\]/.exec(text)?.[0] ?? '[]'
    expect(JSON.parse(links)).toEqual([
      ['Builder API', '/api/v1/docs/'],
      ['OpenAPI document', '/api/v1/openapi.json'],
      ['Platform API', `${publicUrl}/api/v1/docs/`],
      ['Error codes', `${publicUrl}/errors`],
    ])
  })
})

describe('builder API listener', () => {
  it('answers health checks with one word', async () => {
    const { status, headers, text } = await builder.ask('GET', '/health')
    expect([status, headers.get('content-type'), text]).toEqual([
      200,
      'text/plain; charset=utf-8',
      'ok',
    ])
  })

  it('has no routes of the platform API', async () => {
    for (const path of ['/api/v1/oidc/jwks', '/api/v1/auth/validate', '/login', '/'])
      expect((await builder.ask('GET', path)).status).toBe(404)
    const { status, headers } = await builder.ask('GET', '/api/v1/apps/app_x/users')
    expect([status, headers.get('allow')]).toEqual([405, 'POST'])
  })
})
