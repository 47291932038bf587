import SerializerSelector from '@fastify/fast-json-stringify-compiler'
import { getOrInsert } from '../../core/lib/maps.ts'

type Serializer = SerializerSelector.Serializer

/**
 * Compiles one serializer for each distinct answer schema, when it is first used. Fastify alone would compile one for
 * every status of every route at the start; most routes share their refusals, each compilation walks all registered
 * schemas, and together they were a third of what a start allocates (bench row `start-up`).
 */
export const serializers: SerializerSelector.SerializerFactory = (shared, options) => {
  const compile = SerializerSelector()(shared, options)
  const known = new Map<string, Serializer>()
  return (answer) =>
    getOrInsert(known, JSON.stringify(answer.schema), () => onFirstUse(() => compile(answer)))
}

function onFirstUse(compile: () => Serializer): Serializer {
  let serializer: Serializer | null = null
  return (body) => (serializer ??= compile())(body)
}
