import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { bodyExamples, schemaExamples } from '../../gateway/examples.ts'
import { type Real, type RealApp, startReal } from './real.ts'
import { asRecord, documentChecker } from './support.ts'

let real: Real
let app: RealApp
let document: Record<string, unknown>
beforeAll(async () => {
  real = await startReal()
  app = await real.newApp('examples')
  document = asRecord(await (await fetch(`${real.url}/api/v1/openapi.json`)).json())
})
afterAll(() => real.stop())

const users = '/api/v1/apps/{clientId}/users'
const sent = [
  { operation: `post ${users}`, schema: 'User' },
  { operation: `put ${users}`, schema: 'UpdatedUser' },
  { operation: `post ${users}/{externalUserId}/allowances`, schema: undefined },
  { operation: `post ${users}/{externalUserId}/keys`, schema: 'CreatedKey' },
]

describe('the examples of the document', () => {
  it('stand in it', () => {
    const text = JSON.stringify(document)
    for (const example of Object.values(schemaExamples)) expect(text).toContain(`"example":${JSON.stringify(example)}`)
  })

  it('satisfy the schemas that they stand in', async () => {
    const names = Object.keys(schemaExamples)
    const paths = Object.fromEntries(names.map((name) => [`/${name}`, { get: { responses: { 200: {
      content: { 'application/json': { schema: { $ref: `#/components/schemas/${name}` } } },
    } } } }]))
    const check = await documentChecker({ ...document, paths }, { strict: true })
    expect(names.length).toBeGreaterThan(0)
    for (const [name, body] of Object.entries(schemaExamples)) {
      const headers = new Headers({ 'content-type': 'application/json' })
      check({ method: 'GET', path: `/${name}`, answer: { status: 200, headers, text: '', body: asRecord(body) } })
    }
  })

  it.each(sent)('$operation: is accepted, and answers as shown', async ({ operation, schema }) => {
    const [method = '', template = ''] = operation.split(' ')
    const path = template.replace('{clientId}', app.clientId).replace('{externalUserId}', 'ada')
    const headers = { authorization: app.basic, 'content-type': 'application/json' }
    const response = await fetch(real.url + path, { method: method.toUpperCase(), headers, body: JSON.stringify(bodyExamples[operation]) })
    expect(response.ok).toBe(true)
    const answer = asRecord(await response.json())
    const shown = schema === undefined ? answer : asRecord(schemaExamples[schema])
    expect(Object.keys(answer).sort()).toEqual(Object.keys(shown).sort())
  })
})
