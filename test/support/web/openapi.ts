import { Ajv, type ErrorObject, type ValidateFunction } from 'ajv'
import addFormats from 'ajv-formats'

/**
 * Checks requests and responses against an OpenAPI 3.0 document. What the document does not
 * describe is a problem.
 */

interface Parameter {
  readonly in: string
  readonly name: string
  readonly required?: boolean
  readonly schema: object
  readonly style?: string
}
interface Operation {
  readonly parameters?: readonly object[]
  readonly requestBody?: { readonly content: Readonly<Record<string, unknown>> }
  readonly responses: Readonly<
    Record<string, { readonly $ref?: string; readonly content?: Readonly<Record<string, unknown>> }>
  >
}
export interface Document {
  readonly paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>
  readonly components: Readonly<Record<string, Readonly<Record<string, unknown>>>>
}

export interface SeenRequest {
  readonly method: string
  readonly path: string
  readonly search: URLSearchParams
  readonly contentType: string
  readonly body: unknown
}
export interface SeenResponse {
  readonly status: number
  readonly contentType: string
  readonly body: unknown
}

const escaped = (text: string): string => text.replaceAll('~', '~0').replaceAll('/', '~1')

export function createContract(document: Document) {
  // Requests may contain only described members; responses may contain more.
  const strict = compiler(closed(document), false)
  const lenient = compiler(document, false)
  const texts = compiler(closed(document), true)

  /** Returns the operation of a request, with its path template. */
  function operationOf(
    method: string,
    path: string,
  ): { template: string; operation: Operation } | null {
    const templates = Object.keys(document.paths).filter((template) =>
      patternOf(template).test(path),
    )
    // A path without parameters takes precedence.
    const template = templates.toSorted((a, b) => a.split('{').length - b.split('{').length)[0]
    const operation =
      template === undefined ? undefined : document.paths[template]?.[method.toLowerCase()]
    return template === undefined || !operation ? null : { template, operation }
  }

  function checkRequest({ method, path, search, contentType, body }: SeenRequest): string[] {
    const match = operationOf(method, path)
    if (!match) return [`${method} ${path} is not in the document`]
    const { template, operation } = match
    const where = `${method} ${template}`
    const problems = checkParameters(where, match, { path, search })
    if (!operation.requestBody)
      return body === undefined ? problems : [...problems, `${where} takes no body`]
    const type = contentType.split(';')[0] ?? ''
    if (!operation.requestBody.content[type])
      return [...problems, `${where} does not take ${type || 'a body without a type'}`]
    const pointer = `#/paths/${escaped(template)}/${method.toLowerCase()}/requestBody/content/${escaped(type)}/schema`
    return [...problems, ...faults(where, strict(pointer), body)]
  }

  function checkParameters(
    where: string,
    { template, operation }: { template: string; operation: Operation },
    seen: { path: string; search: URLSearchParams },
  ): string[] {
    const declared = (operation.parameters ?? []).map((one) => resolved(document, one))
    const inPath = patternOf(template).exec(seen.path)?.groups ?? {}
    const values = nested(seen.search)
    const unknown = Object.keys(values).filter(
      (name) => !declared.some((one) => one.in === 'query' && one.name === name),
    )
    const problems = unknown.map((name) => `${where} knows no parameter ${name}`)
    for (const one of declared) {
      const value =
        one.in === 'path' ? decodeURIComponent(inPath[one.name] ?? '') : values[one.name]
      if (value === undefined && one.required) problems.push(`${where} lacks ${one.name}`)
      if (value !== undefined)
        problems.push(...faults(`${where} ${one.name}`, texts(one.schema), value))
    }
    return problems
  }

  function checkResponse(
    { method, path }: Pick<SeenRequest, 'method' | 'path'>,
    { status, contentType, body }: SeenResponse,
  ): string[] {
    const match = operationOf(method, path)
    if (!match) return []
    const { template, operation } = match
    const where = `${status} of ${method} ${template}`
    const key = operation.responses[status] ? String(status) : 'default'
    const response = operation.responses[key]
    // A document need not describe every error response.
    if (!response) return status >= 400 ? [] : [`${where} is not in the document`]
    const pointer =
      response.$ref ?? `#/paths/${escaped(template)}/${method.toLowerCase()}/responses/${key}`
    const content = response.$ref ? refTarget(document, response.$ref) : response
    if (!content.content) return body === undefined ? [] : [`${where} has no body`]
    if (!content.content[contentType]) return [`${where} is never ${contentType}`]
    return faults(where, lenient(`${pointer}/content/${escaped(contentType)}/schema`), body)
  }

  return { checkRequest, checkResponse }
}

function compiler(document: Document, coerce: boolean) {
  const ajv = new Ajv({
    strict: false,
    allErrors: true,
    unicodeRegExp: false,
    coerceTypes: coerce ? 'array' : false,
  })
  addFormats.default(ajv)
  for (const format of ['int16', 'uint8', 'float', 'double', 'ISO8601', 'json'])
    ajv.addFormat(format, true)
  ajv.addSchema(repaired(document), 'contract')
  const compiled = new Map<string, ValidateFunction>()
  return (of: string | object): ValidateFunction => {
    const schema = typeof of === 'string' ? { $ref: `contract${of}` } : rebased(of)
    const key = JSON.stringify(schema)
    const validate = compiled.get(key) ?? ajv.compile(schema)
    compiled.set(key, validate)
    return validate
  }
}

function faults(where: string, validate: ValidateFunction, value: unknown): string[] {
  return validate(structuredClone(value))
    ? []
    : (validate.errors ?? []).map((error) => `${where}: ${describeFault(error)}`)
}

const describeFault = ({ instancePath, message, params }: ErrorObject): string =>
  `${instancePath || '/'} ${message} ${JSON.stringify(params)}`

const patternOf = (template: string): RegExp =>
  new RegExp(`^${template.replace(/\{(\w+)\}/g, '(?<$1>[^/]+)')}$`)

function refTarget(
  document: Document,
  ref: string,
): { content?: Readonly<Record<string, unknown>> } {
  const [section = '', name = ''] = ref.replace('#/components/', '').split('/')
  const match: unknown = document.components[section]?.[name]
  return typeof match === 'object' && match !== null ? match : {}
}

function resolved(document: Document, values: object): Parameter {
  const match =
    '$ref' in values && typeof values.$ref === 'string' ? refTarget(document, values.$ref) : values
  return JSON.parse(JSON.stringify(match))
}

/** Parses a[b][c]=d into nested objects (deepObject); repeated names become a list. */
function nested(search: URLSearchParams): Record<string, unknown> {
  const root: Record<string, unknown> = {}
  for (const name of new Set(search.keys())) {
    const path = name.replaceAll(']', '').split('[')
    const values = search.getAll(name)
    put(root, path, values.length === 1 ? values[0] : values)
  }
  return root
}

function put(
  into: Record<string, unknown>,
  [first = '', ...rest]: readonly string[],
  value: unknown,
): void {
  if (rest.length === 0) return void (into[first] = value)
  const below: Record<string, unknown> = { ...(typeof into[first] === 'object' ? into[first] : {}) }
  put(below, rest, value)
  into[first] = below
}

type Change = (node: Record<string, unknown>) => Record<string, unknown>

function changed(value: unknown, change: Change): unknown {
  if (Array.isArray(value)) return value.map((item) => changed(item, change))
  if (typeof value !== 'object' || value === null) return value
  return change(
    Object.fromEntries(Object.entries(value).map(([name, item]) => [name, changed(item, change)])),
  )
}

const copy = (value: unknown, change: Change): Document =>
  JSON.parse(JSON.stringify(changed(value, change)))

/** Removes `nullable` without a type: it has no effect in OpenAPI 3.0, and ajv rejects it. */
const repaired = (document: Document): Document =>
  copy(document, (node) => {
    const { nullable, discriminator: _unused, ...rest } = node
    return nullable === true && typeof node['type'] === 'string' ? { ...rest, nullable } : rest
  })

/** Forbids additional properties in objects that list their properties. */
const closed = (document: Document): Document =>
  copy(document, (node) =>
    node['type'] === 'object' &&
    typeof node['properties'] === 'object' &&
    !('additionalProperties' in node)
      ? { ...node, additionalProperties: false }
      : node,
  )

const rebased = (schema: object): object =>
  copy(schema, (node) =>
    typeof node['$ref'] === 'string' && node['$ref'].startsWith('#')
      ? { ...node, $ref: `contract${node['$ref']}` }
      : node,
  )
