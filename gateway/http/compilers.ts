import AjvCompiler from '@fastify/ajv-compiler'
import SerializerSelector from '@fastify/fast-json-stringify-compiler'
import { isObject } from '../../core/lib/json.ts'
import { getOrInsert } from '../../core/lib/maps.ts'

type Serializer = SerializerSelector.Serializer

/**
 * Creates the factories of the app's validators and serializers. Fastify calls both for each route,
 * and its own factories would compare all registered schemas as text each time, which took a third
 * of the start-up time (bench row `start-up`).
 */
export const createCompilers = () => ({
  buildValidator: untilSchemasAreAdded(AjvCompiler()),
  buildSerializer: untilSchemasAreAdded(serializers),
})

/**
 * Caches the result by the number of registered schemas, because schemas are only added and never
 * replaced.
 */
function untilSchemasAreAdded<Schemas, Options, Result>(
  build: (schemas: Schemas, options?: Options) => Result,
): (schemas: Schemas, options?: Options) => Result {
  let last: { readonly count: number; readonly result: Result } | null = null
  return (schemas, options) => {
    const count = Object.keys(Object(schemas)).length
    if (last?.count !== count) last = { count, result: build(schemas, options) }
    return last.result
  }
}

/**
 * Compiles one serializer per distinct answer schema, on first use. Fastify alone would compile one
 * for each status of each route at start-up. Most routes share their refusals and each compilation
 * walks all registered schemas; together they were a third of the allocations at start-up.
 */
const serializers: SerializerSelector.SerializerFactory = (shared, options) => {
  const compile = SerializerSelector()(absentAsNull(shared), options)
  const known = new Map<string, Serializer>()
  return (answer) => {
    const text = JSON.stringify(answer.schema)
    const build = () => compile({ ...answer, schema: absentAsNull(answer.schema) })
    return getOrInsert(known, text, () => onFirstUse(build))
  }
}

/**
 * Returns the schemas such that an absent member is null if it is required and nullable. Routes can
 * then send core's messages as they are: the serializer selects the members of the schema, and
 * writes counts, which messages hold as text, as numbers.
 */
const absentAsNull = (schemas: unknown) =>
  JSON.parse(JSON.stringify(schemas), (_, schema: unknown) => {
    if (!isObject(schema) || !isObject(schema['properties'])) return schema
    const required = [schema['required'] ?? []].flat()
    for (const [name, member] of Object.entries(schema['properties']))
      if (isObject(member) && member['nullable'] === true && required.includes(name))
        Object.assign(member, { default: null })
    return schema
  })

function onFirstUse(compile: () => Serializer): Serializer {
  let serializer: Serializer | null = null
  return (body) => (serializer ??= compile())(body)
}
