import { execFileSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { type ServiceDefinition } from '@grpc/grpc-js'
import { loadFileDescriptorSetFromBuffer, loadSync } from '@grpc/proto-loader'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type TestApp, type TestCore, serviceToken, startTestCore } from '../support.ts'
import { connectTo, specOf } from './contract.ts'

const root = join(import.meta.dirname, '../../..')
const page = readFileSync(join(root, 'docs/grpc.md'), 'utf8')

let core: TestCore
let app: TestApp
beforeAll(async () => {
  core = await startTestCore()
  app = await core.newApp()
})
afterAll(() => core.stop())

/** The arguments of each grpcurl call on the page, as a shell splits them. */
function commandsOfPage(): string[][] {
  const block = /```sh\n(grpcurl[^]*?)```/.exec(page)?.[1] ?? ''
  const text = execFileSync(
    'bash',
    ['--norc', '-euc', `grpcurl() { printf '%s\\0' "$@" END; }\n${block}`],
    {
      encoding: 'utf8',
      env: {
        PATH: process.env['PATH'],
        CORE_TOKEN: serviceToken,
        M2M_CLIENT_ID: app.m2mClientId,
        M2M_CLIENT_SECRET: app.secret,
      },
    },
  )
  return text.split('END\0').flatMap((each) => (each === '' ? [] : [each.split('\0').slice(0, -1)]))
}

interface Command {
  readonly headers: Readonly<Record<string, string>>
  readonly data: object
  readonly address: string
  /** A service with its method, or `list`. */
  readonly what: string
}

function parse(args: readonly string[]): Command {
  const headers: Record<string, string> = {}
  let data = {}
  const operands: string[] = []
  const rest = args.values()
  for (const arg of rest) {
    const value = arg === '-H' || arg === '-d' ? String(rest.next().value) : ''
    const colon = value.indexOf(':')
    if (arg === '-H') headers[value.slice(0, colon)] = value.slice(colon + 1).trim()
    else if (arg === '-d') data = JSON.parse(value)
    else if (!arg.startsWith('-')) operands.push(arg)
  }
  const [address = '', what = ''] = operands
  return { headers, data, address, what }
}

const reflection = loadSync(
  join(root, 'node_modules/@grpc/reflection/build/proto/grpc/reflection/v1/reflection.proto'),
)

/** The response of the reflection service, which needs no token. grpcurl uses the same. */
async function reflect(request: object): Promise<Record<string, unknown>> {
  const definition = serviceOf(reflection, 'grpc.reflection.v1.ServerReflection')
  const { client, metadata } = connectTo(core.core.target, definition, {})
  const spec = specOf(definition, 'ServerReflectionInfo')
  const { promise, resolve, reject } = Promise.withResolvers<object>()
  const stream = client.makeBidiStreamRequest(
    spec.path,
    spec.requestSerialize,
    spec.responseDeserialize,
    metadata,
    { deadline: Date.now() + 10_000 },
  )
  stream.on('data', resolve).on('error', reject)
  stream.write(request)
  const message = await promise.finally(() => stream.end())
  client.close()
  return Object.fromEntries(Object.entries(message))
}

function serviceOf(loaded: ReturnType<typeof loadSync>, name: string): ServiceDefinition {
  const definition = loaded[name]
  if (!definition || 'format' in definition) throw new Error(`no service ${name}`)
  return definition
}

/** The service as reflection describes it, without reading a file of this repository. */
async function describeService(name: string): Promise<ServiceDefinition> {
  const { fileDescriptorResponse } = await reflect({ fileContainingSymbol: name })
  const files: unknown = Object(fileDescriptorResponse).fileDescriptorProto
  if (!Array.isArray(files)) throw new Error(`reflection knows no ${name}`)
  // A FileDescriptorSet consists of its files, each as field 1.
  const set = files.flatMap((file: Buffer) => [
    Buffer.from([0x0a, ...varint(file.length)]),
    Buffer.from(file),
  ])
  const loaded = loadFileDescriptorSetFromBuffer(Buffer.concat(set), {
    keepCase: true,
    enums: String,
  })
  return serviceOf(loaded, name)
}

const varint = (value: number): number[] =>
  value < 0x80 ? [value] : [(value & 0x7f) | 0x80, ...varint(value >>> 7)]

async function run({ headers, data, what }: Command): Promise<unknown> {
  const [service = '', method = ''] = what.split('/')
  const definition = await describeService(service)
  const { client, metadata } = connectTo(core.core.target, definition, headers)
  const spec = specOf(definition, method)
  const { promise, resolve, reject } = Promise.withResolvers<unknown>()
  client.makeUnaryRequest(
    spec.path,
    spec.requestSerialize,
    spec.responseDeserialize,
    data,
    metadata,
    { deadline: Date.now() + 10_000 },
    (error, message) => (error ? reject(error) : resolve(message)),
  )
  return promise.finally(() => client.close())
}

describe('the calls of docs/grpc.md', () => {
  it('list the services, check health and create a user by reflection alone', async () => {
    const [list, health, upsert, ...more] = commandsOfPage().map(parse)
    if (!list || !health || !upsert) throw new Error('the page has fewer than three calls')
    expect(more).toEqual([])
    expect([list, health, upsert].map(({ address }) => address)).toEqual(
      Array.from({ length: 3 }, () => 'localhost:50051'),
    )

    expect(list.what).toBe('list')
    expect(JSON.stringify(await reflect({ listServices: '' }))).toContain('"grpc.health.v1.Health"')
    expect(await run(health)).toEqual({ status: 'SERVING' })
    const data = { ...upsert.data, client_id: app.clientId }
    expect(Object.keys(data)).toEqual(Object.keys(upsert.data))
    expect(await run({ ...upsert, data })).toMatchObject({
      user: { client_id: app.clientId, external_user_id: 'ada' },
      created: true,
    })
    // The app on the page does not exist.
    await expect(run(upsert)).rejects.toThrow('no such app')
  })
})
