import { asRecord } from '../../gateway/support.ts'

type Schema = Readonly<Record<string, unknown>>

/** One string of an operation's request: its location and, in a body, its path. */
export interface StringField {
  readonly in: 'path' | 'query' | 'header' | 'body'
  readonly name: string
  /** Members and elements on the path to it in the body; `[]` for an element. */
  readonly way: readonly string[]
  /** Such as `date-time`. The formats `password` and `label` are exempt from the rule for text. */
  readonly format: string | undefined
}

/** A documented request, with its content type ("" for none) and a body that its schema permits. */
export interface DocumentedRequest {
  readonly method: string
  readonly path: string
  readonly security: readonly string[]
  readonly contentType: string
  readonly required: readonly { readonly in: string; readonly name: string }[]
  readonly body: Schema | null
  readonly fields: readonly StringField[]
}

const list = (value: unknown): readonly unknown[] => (Array.isArray(value) ? value : [])
const depthMax = 6

/** Returns every request of an OpenAPI document, one per content type, with all of its strings. */
export function requestsOf(document: Schema): DocumentedRequest[] {
  const schemas = asRecord(asRecord(document['components'])['schemas'])
  const resolve = (value: unknown): Schema => {
    const schema = asRecord(value ?? {})
    const ref = schema['$ref']
    return typeof ref === 'string' ? resolve(schemas[ref.split('/').at(-1) ?? '']) : schema
  }

  function stringsOf(value: unknown, way: readonly string[]): StringField[] {
    const schema = resolve(value)
    if (way.length > depthMax) return []
    const branches = ['oneOf', 'anyOf', 'allOf'].flatMap((word) => list(schema[word]))
    const members = Object.entries(asRecord(schema['properties'] ?? {}))
    const inside = [
      ...branches.flatMap((branch) => stringsOf(branch, way)),
      ...members.flatMap(([name, member]) => stringsOf(member, [...way, name])),
      ...(schema['items'] === undefined ? [] : stringsOf(schema['items'], [...way, '[]'])),
    ]
    if (schema['type'] !== 'string' && inside.length > 0) return inside
    const isText = schema['type'] === 'string' || schema['type'] === undefined
    return isText ? [{ in: 'body', name: way.join('.'), way, format: formatOf(schema) }] : []
  }

  return Object.entries(asRecord(document['paths'])).flatMap(([path, item]) =>
    Object.entries(asRecord(item)).flatMap(([method, value]): DocumentedRequest[] => {
      const operation = asRecord(value)
      const parameters = list(operation['parameters']).map(asRecord)
      const content = Object.entries(
        asRecord(asRecord(operation['requestBody'] ?? {})['content'] ?? {}),
      )
      const inAddress = parameters.flatMap((each) => parameterField(each, resolve))
      const required = parameters
        .filter((each) => each['required'] === true)
        .map((each) => ({ in: String(each['in']), name: String(each['name']) }))
      const security = list(operation['security'] ?? document['security']).flatMap((each) =>
        Object.keys(asRecord(each)),
      )
      const common = { method: method.toUpperCase(), path, security, required }
      if (content.length === 0)
        return [{ ...common, contentType: '', body: null, fields: inAddress }]
      return content.map(([contentType, media], index) => {
        const body = resolve(asRecord(media)['schema'])
        const fields = [...(index === 0 ? inAddress : []), ...stringsOf(body, [])]
        return { ...common, contentType, body, fields }
      })
    }),
  )
}

function parameterField(
  parameter: Schema,
  resolve: (value: unknown) => Schema,
): readonly StringField[] {
  const place = parameter['in']
  if (place !== 'path' && place !== 'query' && place !== 'header') return []
  const format = formatOf(resolve(parameter['schema']))
  return [{ in: place, name: String(parameter['name']), way: [], format }]
}

const formatOf = (schema: Schema): string | undefined =>
  typeof schema['format'] === 'string' ? schema['format'] : undefined

/** Returns the value with `text` at the end of the path. Creates missing members. */
export function withText(value: unknown, way: readonly string[], text: unknown): unknown {
  const [name, ...rest] = way
  if (name === undefined) return text
  if (name === '[]') return [withText(undefined, rest, text)]
  const object = typeof value === 'object' && value !== null ? asRecord(value) : {}
  return { ...object, [name]: withText(object[name], rest, text) }
}
