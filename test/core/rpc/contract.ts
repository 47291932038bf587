import { globSync } from 'node:fs'
import { join } from 'node:path'
import {
  type Client,
  credentials,
  makeGenericClientConstructor,
  Metadata,
  type ServiceDefinition,
  type ServiceError,
} from '@grpc/grpc-js'
import { loadSync } from '@grpc/proto-loader'
import { reasonTrailer } from '../../../proto/errors.ts'

const protoRoot = join(import.meta.dirname, '../../../proto')
export const files = globSync('tollgate/*/v1/*.proto', { cwd: protoRoot }).toSorted()
const loaded = loadSync(files, { includeDirs: [protoRoot], longs: String, defaults: true })

/** Every service of the contract, as loaded by proto-loader. */
export const services = Object.entries(loaded).flatMap(([name, definition]) =>
  'format' in definition ? [] : [{ name, definition: definition satisfies ServiceDefinition }],
)
export const methods = services.flatMap(({ name, definition }) =>
  Object.entries(definition).map(([method, spec]) => ({
    name: `${name}/${method}`,
    service: definition,
    method,
    streams: spec.responseStream,
  })),
)
export const unaryMethods = methods.filter(({ streams }) => !streams)

export interface Answer {
  readonly code: number
  readonly reason: string | undefined
  readonly details: string
}

export function connectTo(
  target: string,
  service: ServiceDefinition,
  headers: Readonly<Record<string, string>>,
): { client: Client; metadata: Metadata } {
  const client = new (makeGenericClientConstructor(service, 'service'))(
    target,
    credentials.createInsecure(),
  )
  const metadata = new Metadata()
  for (const [name, value] of Object.entries(headers)) metadata.set(name, value)
  return { client, metadata }
}

const answerOf = (error: ServiceError | null): Answer => ({
  code: error?.code ?? 0,
  reason: error?.metadata?.get(reasonTrailer)[0]?.toString(),
  details: error?.details ?? '',
})

export interface Method {
  readonly target: string
  readonly service: ServiceDefinition
  readonly method: string
}

export async function callEmpty(
  { target, service, method }: Method,
  headers: Readonly<Record<string, string>>,
): Promise<Answer> {
  const { client, metadata } = connectTo(target, service, headers)
  const spec = specOf(service, method)
  const { promise, resolve } = Promise.withResolvers<Answer>()
  client.makeUnaryRequest(
    spec.path,
    spec.requestSerialize,
    spec.responseDeserialize,
    {},
    metadata,
    { deadline: Date.now() + 10_000 },
    (error) => resolve(answerOf(error)),
  )
  return promise.finally(() => client.close())
}

export async function streamEmpty(
  { target, service, method }: Method,
  headers: Readonly<Record<string, string>>,
): Promise<Answer> {
  const { client, metadata } = connectTo(target, service, headers)
  const spec = specOf(service, method)
  const { promise, resolve } = Promise.withResolvers<Answer>()
  const stream = client.makeServerStreamRequest(
    spec.path,
    spec.requestSerialize,
    spec.responseDeserialize,
    {},
    metadata,
    { deadline: Date.now() + 10_000 },
  )
  stream.on('error', (error: ServiceError) => resolve(answerOf(error)))
  stream.on('end', () => resolve(answerOf(null)))
  stream.resume()
  return promise.finally(() => client.close())
}

export function specOf(service: ServiceDefinition, method: string) {
  const spec = service[method]
  if (!spec) throw new Error(`no method ${method}`)
  return spec
}
