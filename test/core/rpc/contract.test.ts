import { join } from 'node:path'
import { type ServiceDefinition, loadPackageDefinition } from '@grpc/grpc-js'
import { loadSync } from '@grpc/proto-loader'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { protoFiles } from '../../../core/rpc/health.ts'
import { serviceTokenHeader } from '../../../proto/headers.ts'
import { isReason, reasons } from '../../../proto/errors.ts'
import {
  type TestApp,
  type TestCore,
  bearerOf,
  createCaller,
  outcome,
  serviceToken,
  startTestCore,
} from '../support.ts'
import {
  type Answer,
  type Method,
  callEmpty,
  connectTo,
  files,
  methods,
  services,
  specOf,
  streamEmpty,
  unaryMethods,
} from './contract.ts'

let core: TestCore
let app: TestApp
beforeAll(async () => {
  core = await startTestCore({ PAYMENT_PROCESSOR: 'simulated' })
  app = await core.newApp()
})
afterAll(() => core.stop())

const at = (service: ServiceDefinition, method: string): Method => ({
  target: core.core.target,
  service,
  method,
})

describe('the contract', () => {
  it('can be loaded by proto-loader completely', () => {
    expect(files).toEqual(protoFiles.toSorted())
    expect(files.length).toBeGreaterThan(20)
    expect(methods.length).toBeGreaterThan(20)
  })

  it.each(unaryMethods)(
    '$name responds to an empty request, or rejects it with a known reason',
    async ({ service, method }) => {
      const answers = [undefined, app.basic, bearerOf('x'), 'Basic !', ''].map((authorization) =>
        callEmpty(at(service, method), {
          [serviceTokenHeader]: serviceToken,
          ...(authorization === undefined ? {} : { authorization }),
        }),
      )
      for (const answer of await Promise.all(answers)) {
        expectKnown(answer)
        expect(answer.reason).not.toBe('INTERNAL')
      }
    },
  )

  it.each(methods)(
    '$name rejects a caller with a missing or wrong service token',
    async ({ service, method, streams }) => {
      const ask = streams ? streamEmpty : callEmpty
      for (const headers of [
        {},
        { [serviceTokenHeader]: '' },
        { [serviceTokenHeader]: `${serviceToken}x` },
      ]) {
        const answer = await ask(at(service, method), { ...headers, authorization: app.basic })
        expectKnown(answer)
        expect(answer.reason).toBe('SERVICE_TOKEN_INVALID')
      }
    },
  )
})

describe('health and reflection', () => {
  it('answers the health check without a service token', async () => {
    const health = loadSync(
      join(
        import.meta.dirname,
        '../../../node_modules/grpc-health-check/proto/health/v1/health.proto',
      ),
    )
    const definition = health['grpc.health.v1.Health']
    if (!definition || 'format' in definition) throw new Error('no health service')
    const answer = await callForMessage(definition, 'Check')
    expect(answer).toMatchObject({ status: 'SERVING' })
  })

  it('lists every service by reflection without a service token', async () => {
    const listed = await listByReflection()
    expect(listed).toEqual(
      expect.arrayContaining([...services.map(({ name }) => name), 'grpc.health.v1.Health']),
    )
  })

  it('gives a missing and a wrong token the same response', async () => {
    const callers = [
      createCaller(core.core.target, null),
      createCaller(core.core.target, 'x'.repeat(40)),
    ]
    for (const caller of callers) {
      expect(await outcome(caller.as(app.basic).listUsers({ clientId: app.clientId }))).toBe(
        'SERVICE_TOKEN_INVALID',
      )
      caller.close()
    }
  })
})

function expectKnown({ code, reason, details }: Answer): void {
  if (code === 0) return
  if (!isReason(reason)) throw new Error(`code ${code}, reason ${reason}: ${details}`)
  expect(code).toBe(reasons[reason].grpc)
}

async function callForMessage(service: ServiceDefinition, method: string): Promise<unknown> {
  const { client, metadata } = connectTo(core.core.target, service, {})
  const spec = specOf(service, method)
  const { promise, resolve, reject } = Promise.withResolvers<unknown>()
  client.makeUnaryRequest(
    spec.path,
    spec.requestSerialize,
    (bytes) => spec.responseDeserialize(bytes),
    {},
    metadata,
    { deadline: Date.now() + 10_000 },
    (error, message) => (error ? reject(error) : resolve(enumNames(message))),
  )
  return promise.finally(() => client.close())
}

// proto-loader returns enum values as numbers by default.
const enumNames = (message: unknown): unknown =>
  typeof message === 'object' && message !== null && 'status' in message && message.status === 1
    ? { status: 'SERVING' }
    : message

async function listByReflection(): Promise<string[]> {
  const file = join(
    import.meta.dirname,
    '../../../node_modules/@grpc/reflection/build/proto/grpc/reflection/v1/reflection.proto',
  )
  const reflection = loadSync(file)
  expect(loadPackageDefinition(reflection)).toBeDefined()
  const definition = reflection['grpc.reflection.v1.ServerReflection']
  if (!definition || 'format' in definition) throw new Error('no reflection service')
  const { client, metadata } = connectTo(core.core.target, definition, {})
  const spec = specOf(definition, 'ServerReflectionInfo')
  const { promise, resolve, reject } = Promise.withResolvers<unknown>()
  const stream = client.makeBidiStreamRequest(
    spec.path,
    spec.requestSerialize,
    spec.responseDeserialize,
    metadata,
    { deadline: Date.now() + 10_000 },
  )
  stream.on('data', resolve)
  stream.on('error', reject)
  stream.write({ listServices: '' })
  const message = await promise.finally(() => stream.end())
  client.close()
  return [...JSON.stringify(message).matchAll(/"name":"([^"]+)"/g)].map((match) => match[1] ?? '')
}
