import SerializerSelector from '@fastify/fast-json-stringify-compiler'
import { getOrInsert } from '../../core/lib/maps.ts'

type Serializer = SerializerSelector.Serializer

/**
 * Serializers of answers, one for each schema: most routes refuse in the same words, and making one goes through all
 * of the shared schemas. Each is made when it is first used; all of them would be a third of what a start allocates.
 */
export const serializers: SerializerSelector.SerializerFactory = (shared, options) => {
  const compile = SerializerSelector()(shared, options)
  const known = new Map<string, Serializer>()
  return (answer) =>
    getOrInsert(known, JSON.stringify(answer.schema), () => whenUsed(() => compile(answer)))
}

function whenUsed(make: () => Serializer): Serializer {
  let made: Serializer | null = null
  return (body) => (made ??= make())(body)
}
