import { validate } from '@readme/openapi-parser'
import { Validator } from '@seriousme/openapi-schema-validator'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type Real, startReal } from '../../real.ts'
import { asRecord } from '../../support.ts'

let real: Real
let session: Readonly<Record<string, string>>
beforeAll(async () => {
  real = await startReal()
  session = (await real.newApp('valid')).session
})
afterAll(() => real.stop())

async function fetchDocument(path: string): Promise<Record<string, unknown>> {
  const response = await fetch(real.url + path, { headers: session })
  expect(response.status).toBe(200)
  return asRecord(await response.json())
}

describe.each([
  '/api/v1/openapi.json',
  '/api/v1/internal/openapi.json',
  '/api/v1/sidecar/openapi.json',
])('%s', (path) => {
  it('is valid for openapi-schema-validator', async () => {
    const { valid, errors } = await new Validator().validate(await fetchDocument(path))
    expect({ valid, errors }).toEqual({ valid: true, errors: undefined })
  })

  it('is valid for openapi-parser', async () => {
    // The parser changes its input; the JSON round trip also separates the types.
    const document = JSON.parse(JSON.stringify(await fetchDocument(path)))
    expect(await validate(document)).toMatchObject({ valid: true, warnings: [] })
  })
})
