import SerializerSelector from '@fastify/fast-json-stringify-compiler'
import { within } from '../core/lib/maps.ts'

/**
 * Serializers of answers, one for each schema: most routes refuse in the same words, and making one goes through all
 * of the shared schemas. Each is made when it is first used; all of them would be a third of what a start allocates.
 */
export const serializers: SerializerSelector.SerializerFactory = (shared, options) => {
  const compile = SerializerSelector()(shared, options)
  const known = new Map<string, SerializerSelector.Serializer>()
  return (answer) => {
    const name = JSON.stringify(answer.schema)
    return (body) => within(known, name, () => compile(answer))(body)
  }
}
