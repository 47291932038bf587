import AjvCompiler from '@fastify/ajv-compiler'
import SerializerSelector from '@fastify/fast-json-stringify-compiler'
import { getOrInsert } from '../../core/lib/maps.ts'

type Serializer = SerializerSelector.Serializer

/**
 * What makes an app's validators and serializers. Fastify asks for both again at each route, and its own would compare
 * all registered schemas as text each time, which was a third of what a start takes (bench row `start-up`).
 */
export const createCompilers = () => ({
  buildValidator: untilSchemasAreAdded(AjvCompiler()),
  buildSerializer: untilSchemasAreAdded(serializers),
})

/** The same result for the same registered schemas: they have names, are added, and are never replaced. */
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
 * Compiles one serializer for each distinct answer schema, when it is first used. Fastify alone would compile one for
 * every status of every route at the start; most routes share their refusals, each compilation walks all registered
 * schemas, and together they were a third of what a start allocates.
 */
const serializers: SerializerSelector.SerializerFactory = (shared, options) => {
  const compile = SerializerSelector()(shared, options)
  const known = new Map<string, Serializer>()
  return (answer) =>
    getOrInsert(known, JSON.stringify(answer.schema), () => onFirstUse(() => compile(answer)))
}

function onFirstUse(compile: () => Serializer): Serializer {
  let serializer: Serializer | null = null
  return (body) => (serializer ??= compile())(body)
}
