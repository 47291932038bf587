import { existsSync, readFileSync } from 'node:fs'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type SpecifiedField, readSpecification } from '../../../support/source/specification.ts'
import { type Harness, asRecord, startHarness } from '../../support.ts'
import specification from './specification.json' with { type: 'json' }

let harness: Harness
beforeAll(async () => {
  harness = await startHarness()
})
afterAll(() => harness.stop())

type Json = Record<string, unknown>
interface Operation {
  readonly surface: string
  readonly method: string
  readonly path: string
}

const nameOf = ({ surface, method, path }: Operation): string => `${surface} ${method} ${path}`

const documentOf = (surface: string): Json =>
  surface === 'builder' ? harness.builder.document : harness.document

function operationOf({ surface, method, path }: Operation): Json | null {
  const item = asRecord(documentOf(surface)['paths'])[path]
  const operation = item === undefined ? undefined : asRecord(item)[method.toLowerCase()]
  return operation === undefined ? null : asRecord(operation)
}

/** Credentials that a route accepts in addition to those of its table, with the reason. */
const added: Readonly<Record<string, readonly string[]>> = {
  // The dashboard shows and changes subscriptions.
  'platform GET /api/v1/apps/{clientId}/users/{externalUserId}/subscription': ['session'],
  'platform POST /api/v1/apps/{clientId}/users/{externalUserId}/subscription/change': ['session'],
}

const schemesOf = (operation: Json): string[] =>
  [operation['security'] ?? []]
    .flat()
    .flatMap((way) => Object.keys(asRecord(way)))
    .filter((scheme) => scheme !== 'csrfToken')

/** Resolves references, and takes the first of several alternatives. */
function resolve(surface: string, schema: unknown): Json {
  const { $ref, anyOf } = asRecord(schema ?? {})
  if (Array.isArray(anyOf)) return resolve(surface, anyOf[0])
  if (typeof $ref !== 'string') return asRecord(schema ?? {})
  const schemas = asRecord(asRecord(documentOf(surface)['components'])['schemas'])
  return resolve(surface, schemas[$ref.replace('#/components/schemas/', '')])
}

const schemaIn = (surface: string, holder: unknown): Json =>
  resolve(
    surface,
    asRecord(Object.values(asRecord(asRecord(holder ?? {})['content'] ?? {}))[0] ?? {})['schema'],
  )

interface Found {
  readonly schema: Json
  readonly isRequired: boolean
}

/** Returns a member by a path such as `grants[].id`. */
function member(surface: string, schema: Json, path: string): Found | null {
  const [first = '', ...rest] = path.split('.')
  const holder = schema['type'] === 'array' ? resolve(surface, schema['items']) : schema
  const found = asRecord(holder['properties'] ?? {})[first.replace('[]', '')]
  if (found === undefined) return null
  const resolved = resolve(surface, found)
  if (rest.length > 0) return member(surface, resolved, rest.join('.'))
  return { schema: resolved, isRequired: [holder['required'] ?? []].flat().includes(first) }
}

/** Compares a specified field with its place in a document. */
function differences(
  { name, type, isNullable, values }: SpecifiedField,
  found: Found | null,
): string[] {
  if (found === null) return [`${name} is missing`]
  const { schema } = found
  const [base, format] = type?.split('/') ?? []
  return [
    ...(base !== undefined && schema['type'] !== base ? [`${name} is no ${base}`] : []),
    ...(format !== undefined && schema['format'] !== format
      ? [`${name} lacks the format ${format}`]
      : []),
    ...(isNullable && schema['nullable'] !== true ? [`${name} may be null`] : []),
    ...(values ?? [])
      .filter((value) => ![schema['enum'] ?? []].flat().includes(value))
      .map((value) => `${name} lacks ${value}`),
  ]
}

const bodyOf = (operation: Operation): Json =>
  schemaIn(operation.surface, operationOf(operation)?.['requestBody'])

const answerOf = (operation: Operation, status: number): Json =>
  schemaIn(operation.surface, asRecord(operationOf(operation)?.['responses'])[status])

/** Compares a body with these fields, which must be required as the table states. */
const requestDifferences = (operation: Operation, fields: readonly SpecifiedField[]): string[] =>
  fields.flatMap((field) => {
    const found = member(operation.surface, bodyOf(operation), field.name)
    const obligation =
      found !== null && field.isRequired !== undefined && found.isRequired !== field.isRequired
        ? [`${field.name} must be ${field.isRequired ? 'required' : 'optional'}`]
        : []
    return [...differences(field, found), ...obligation]
  })

/**
 * Compares an answer with these fields. Fields that are always present may be required even if the
 * table does not state it.
 */
const answerDifferences = (
  operation: Operation,
  { status, fields }: { status: number; fields: readonly SpecifiedField[] },
): string[] =>
  fields.flatMap((field) => {
    const found = member(operation.surface, answerOf(operation, status), field.name)
    const isLacking = found !== null && field.isRequired === true && !found.isRequired
    return [...differences(field, found), ...(isLacking ? [`${field.name} must be required`] : [])]
  })

const app = '/api/v1/apps/{clientId}'
const user = `${app}/users/{externalUserId}`
const at = (surface: 'builder' | 'platform', method: string, path: string): Operation => ({
  surface,
  method,
  path,
})

const fieldsOf = (title: string): readonly SpecifiedField[] => {
  const fields = new Map<string, readonly SpecifiedField[]>(Object.entries(specification.fields))
  const found = fields.get(title)
  if (found === undefined) throw new Error(`the specification has no table ${title}`)
  return found
}

/** Fields that the specification describes in sentences. */
const sentences: readonly (readonly [Operation, number, readonly SpecifiedField[]])[] = [
  [
    at('platform', 'POST', `${user}/keys`),
    201,
    [{ name: 'keyId' }, { name: 'apiKey' }, { name: 'createdAt', type: 'string/date-time' }],
  ],
  [
    at('platform', 'POST', `${app}/auth/api-key/token`),
    200,
    [
      { name: 'access_token' },
      { name: 'token_type' },
      { name: 'expires_in', type: 'integer' },
      { name: 'scope' },
      { name: 'externalUserId' },
    ],
  ],
  [
    at('platform', 'GET', '/api/v1/builder/apps/{clientId}/usage/balance'),
    200,
    [
      { name: 'balanceUsdMicros', type: 'string' },
      { name: 'remainingUsdMicros', type: 'string' },
      { name: 'consumedUsdMicros', type: 'string' },
      { name: 'lifetimeGrantedUsdMicros', type: 'string' },
      { name: 'hasAccess', type: 'boolean' },
    ],
  ],
  [
    at('platform', 'GET', `${app}/signer/routing`),
    200,
    [
      { name: 'dmzUrl', type: 'string/uri' },
      { name: 'jwksUrl', type: 'string/uri' },
      { name: 'webhookUrl', type: 'string/uri' },
      { name: 'meteringMode', type: 'string', values: ['stream', 'direct'] },
    ],
  ],
  [
    at('platform', 'POST', `${app}/billing/processor/connect`),
    200,
    [{ name: 'url', type: 'string/uri' }],
  ],
]

describe('specification in this repository', () => {
  it('matches the tables when the specification is next to the checkout', () => {
    const source = new URL('../../../../../shared/spec/service.md', import.meta.url)
    const tables = existsSync(source)
      ? readSpecification(readFileSync(source, 'utf8'))
      : specification
    expect(tables).toEqual(specification)
  })

  it('is parsed from tables as written', () => {
    const table = [
      '### Surface B: x',
      '| Method | Path | Auth | Request / response |',
      '|---|---|---|---|',
      '| GET, PUT | `/api/v1/a/{id}` and DELETE `.../a/{id}?k=<k>` | M2M or Session | JSON `n`, `m?`; 202 |',
    ].join('\n')
    const common = {
      surface: 'platform',
      path: '/api/v1/a/{id}',
      auth: ['m2mBasic', 'machineToken', 'session'],
      body: [
        { name: 'n', isRequired: true },
        { name: 'm', isRequired: false },
      ],
      answers: [202],
    }
    expect(readSpecification(table).routes).toEqual([
      { ...common, method: 'GET', query: [] },
      { ...common, method: 'PUT', query: [] },
      { ...common, method: 'DELETE', query: ['k'] },
    ])
  })
})

describe('documents', () => {
  it('have every specified route', () => {
    const absent = specification.routes.filter((route) => operationOf(route) === null).map(nameOf)
    expect(absent).toEqual([])
  })

  it('list the specified credentials', () => {
    const seen = specification.routes.flatMap((route) =>
      route.auth === null ? [] : [[nameOf(route), schemesOf(asRecord(operationOf(route))).sort()]],
    )
    const expected = specification.routes.flatMap((route) =>
      route.auth === null
        ? []
        : [[nameOf(route), [...route.auth, ...(added[nameOf(route)] ?? [])].sort()]],
    )
    expect(seen).toEqual(expected)
  })

  it('require the query parameters and body members of their routes', () => {
    const odd = specification.routes.flatMap((route) => {
      const parameters = [operationOf(route)?.['parameters'] ?? []].flat().map(asRecord)
      const optional = route.query.filter(
        (name) => !parameters.some((each) => each['name'] === name && each['required'] === true),
      )
      const body = requestDifferences(route, route.body)
      return [...optional, ...body].map((each) => `${nameOf(route)}: ${each}`)
    })
    expect(odd).toEqual([])
  })

  it('document the statuses of their routes and endpoint groups', () => {
    const groups: Readonly<Record<keyof typeof specification.statuses, readonly Operation[]>> = {
      'users (B)': [at('platform', 'POST', `${app}/users`), at('platform', 'PUT', `${app}/users`)],
      'app-scoped (B)': specification.routes.filter(
        ({ surface, path }) => surface === 'platform' && path.includes('{clientId}'),
      ),
      'allowances (B)': [at('platform', 'POST', `${user}/allowances`)],
      'billing summary': [at('platform', 'GET', `${app}/billing`)],
      plans: [at('platform', 'PUT', `${app}/plans`)],
      'api-key exchange': [at('platform', 'POST', `${app}/auth/api-key/token`)],
      'surface A users': [at('builder', 'POST', `${app}/users`)],
      'surface A token exchange': [at('builder', 'POST', `${app}/oidc/token`)],
      'surface A usage': [at('builder', 'GET', `${app}/usage`)],
      'removed routes': [
        at('platform', 'POST', '/api/signer/generate-live-payment'),
        at('platform', 'POST', '/api/signer/sign-orchestrator-info'),
        at('platform', 'POST', '/api/signer/sign-byoc-job'),
        at('platform', 'GET', '/api/signer/discover-orchestrators'),
        at('platform', 'POST', `${app}/usage/signed-tickets`),
        at('platform', 'POST', '/api/v1/subscriptions'),
        at('platform', 'DELETE', '/api/v1/subscriptions'),
        at('platform', 'POST', `${user}/credits`),
      ],
    }
    const ofGroups = new Map<string, readonly Operation[]>(Object.entries(groups))
    const claims = [
      ...specification.routes.map((route) => [route, route.answers] as const),
      ...Object.entries(specification.statuses).flatMap(([group, statuses]) =>
        (ofGroups.get(group) ?? []).map((operation) => [operation, statuses] as const),
      ),
    ]
    expect(Object.keys(specification.statuses)).toEqual([...ofGroups.keys()])
    const absent = claims.flatMap(([operation, statuses]) => {
      const documented = Object.keys(asRecord(operationOf(operation)?.['responses']))
      return statuses
        .filter((status) => !documented.includes(String(status)))
        .map((status) => `${nameOf(operation)} ${status}`)
    })
    expect(absent).toEqual([])
  })

  it('have the fields of the tables, with types, formats and obligation', () => {
    const exchange = at('builder', 'POST', `${app}/oidc/token`)
    const newUser = at('builder', 'POST', `${app}/users`)
    const upsert = at('platform', 'POST', `${app}/users`)
    const answers: readonly (readonly [Operation, number, string])[] = [
      [upsert, 201, 'User record (surface B)'],
      [exchange, 200, 'Signer session (surface A response)'],
      [at('platform', 'GET', `${user}/allowances`), 200, 'Allowance detail (surface B)'],
      [at('platform', 'GET', `${app}/plans`), 200, 'Plan (surface B, default list shape)'],
      [at('platform', 'GET', `${app}/billing`), 200, 'Billing summary (surface B)'],
    ]
    const requests: readonly (readonly [Operation, string])[] = [
      [newUser, 'Create-user request (surface A)'],
      [exchange, 'Token-exchange request (surface A, form-encoded)'],
      [at('platform', 'POST', `${app}/plans`), 'Plan create body'],
    ]
    const query = 'Surface A usage query'
    const tables = [...answers.map(([, , title]) => title), ...requests.map(([, title]) => title)]
    expect([...tables, query].sort()).toEqual(Object.keys(specification.fields).sort())

    const described = sentences.map(
      ([operation, status, fields]) =>
        [nameOf(operation), answerDifferences(operation, { status, fields })] as const,
    )
    const odd = [
      ...answers.map(
        ([operation, status, title]) =>
          [title, answerDifferences(operation, { status, fields: fieldsOf(title) })] as const,
      ),
      ...requests.map(
        ([operation, title]) => [title, requestDifferences(operation, fieldsOf(title))] as const,
      ),
      [query, queryDifferences(at('builder', 'GET', `${app}/usage`), fieldsOf(query))] as const,
      ...described,
    ]
    expect(odd.filter(([, differing]) => differing.length > 0)).toEqual([])
  })
})

function queryDifferences(operation: Operation, fields: readonly SpecifiedField[]): string[] {
  const parameters = [operationOf(operation)?.['parameters'] ?? []].flat().map(asRecord)
  return fields.flatMap((field) => {
    const parameter = parameters.find((each) => each['name'] === field.name)
    const isRequired = parameter?.['required'] === true
    const schema = parameter === undefined ? null : asRecord(parameter['schema'])
    return [
      ...differences(field, schema && { schema, isRequired }),
      ...(isRequired === (field.isRequired ?? false) ? [] : [`${field.name}: required differs`]),
    ]
  })
}
