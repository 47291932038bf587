import { connect as connectHttp2, constants } from 'node:http2'
import { Metadata, credentials } from '@grpc/grpc-js'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { Authenticator } from '../../../core/rpc/callers.ts'
import { serviceCaller } from '../../../core/rpc/guards.ts'
import { serviceTokenHeader } from '../../../proto/headers.ts'
import { silentLog } from '../../../core/lib/log.ts'
import { createMetrics } from '../../../core/lib/metrics.ts'
import { startGrpcServer } from '../../../core/rpc/server.ts'
import { grpcService, rpc, streamRpc } from '../../../core/rpc/serve.ts'
import { DomainError } from '../../../proto/errors.ts'
import {
  SignerServiceClient,
  SignerServiceService,
  type WatchInvalidationsRequest,
  type WatchInvalidationsResponse,
} from '../../../proto/gen/ts-proto/tollgate/signer/v1/signer.ts'
import {
  type TestApp,
  type TestCore,
  outcome,
  serviceToken,
  serviceTokens,
  startTestCore,
} from '../support.ts'

const ada = 'ada'

let core: TestCore
let app: TestApp
beforeAll(async () => {
  core = await startTestCore()
  app = await core.newApp()
  await core.as(app.basic).upsertUser({ clientId: app.clientId, externalUserId: ada })
})
afterAll(() => core.stop())

const notAsked = async (): Promise<never> => {
  throw new Error('not asked for')
}
const unused: Authenticator = {
  m2mByBasic: notAsked,
  m2mByToken: notAsked,
  userByToken: notAsked,
  actorByToken: notAsked,
  userByBuilderKey: notAsked,
  provisionerByBasic: notAsked,
  accountBySession: notAsked,
  memberOf: notAsked,
  userOfAccount: notAsked,
  appOf: notAsked,
}

type Emit = (message: WatchInvalidationsResponse) => void

/** Starts a server whose only stream sends what `send` emits. */
function startStream(send: (emit: Emit, signal: AbortSignal) => Promise<void>) {
  const never = rpc(serviceCaller('sidecar'), notAsked)
  const watchInvalidations = streamRpc(
    serviceCaller('sidecar'),
    async (_request: WatchInvalidationsRequest, emit: Emit, { signal }) => send(emit, signal),
  )
  const signer = grpcService(SignerServiceService, {
    verifyApiKey: never,
    getAccess: never,
    watchInvalidations,
  })
  return startGrpcServer([signer], {
    host: '127.0.0.1',
    port: 0,
    authenticator: unused,
    serviceTokens,
    log: silentLog(),
    metrics: createMetrics('core'),
    operatorLog: { record: async () => {} },
  })
}

describe('a stream with a slow reader', () => {
  it('is ended, so that the number of waiting messages is limited', async () => {
    const sent = { count: 0 }
    const done = Promise.withResolvers<void>()
    const listening = await startStream(async (emit, signal) => {
      for (; !signal.aborted && sent.count < 200_000; sent.count++) {
        emit({ kind: 'key', id: 'x'.repeat(36), endsBefore: 0n })
        if (sent.count % 100 === 0) await new Promise(setImmediate)
      }
      done.resolve()
    })
    const session = connectHttp2(`http://127.0.0.1:${listening.port}`)
    const stream = session.request({
      [constants.HTTP2_HEADER_METHOD]: 'POST',
      [constants.HTTP2_HEADER_PATH]: '/tollgate.signer.v1.SignerService/WatchInvalidations',
      'content-type': 'application/grpc',
      te: 'trailers',
      [serviceTokenHeader]: serviceToken,
    })
    stream.end(Buffer.from([0, 0, 0, 0, 0]))
    await done.promise
    expect(sent.count).toBeLessThan(50_000)
    session.destroy()
    await listening.stop(100)
  })

  it('is not ended for a reader that keeps up', async () => {
    const all = 30_000
    const listening = await startStream(async (emit) => {
      for (let i = 0; i < all; i++) {
        emit({ kind: 'key', id: String(i), endsBefore: 0n })
        if (i % 1_000 === 0) await new Promise((resolve) => setTimeout(resolve, 20))
      }
    })
    const client = new SignerServiceClient(
      `127.0.0.1:${listening.port}`,
      credentials.createInsecure(),
    )
    const metadata = new Metadata()
    metadata.set(serviceTokenHeader, serviceToken)
    const heard: string[] = []
    for await (const message of client.watchInvalidations({}, metadata)) heard.push(message.id)
    expect(heard).toHaveLength(all)
    expect(heard.at(-1)).toBe(String(all - 1))
    client.close()
    await listening.stop(100)
  })
})

describe('a malformed call', () => {
  it('is rejected without harm: garbage bytes, an unknown method, a message that is too large', async () => {
    const path = '/tollgate.identity.v1.UserService/ListUsers'
    expect(await rawStatus(path, Buffer.from([0, 0, 0, 0, 2, 0x0a, 0xff]))).not.toBe('0')
    expect(
      await rawStatus('/tollgate.identity.v1.UserService/DropUsers', Buffer.from([0, 0, 0, 0, 0])),
    ).toBe('12')
    const long = await outcome(
      core
        .as(app.basic)
        .listUsers({ clientId: app.clientId, cursor: 'x'.repeat(17 * 1024 * 1024) }),
    )
    expect(long).not.toBe('OK')
    expect(await outcome(core.as(app.basic).listUsers({ clientId: app.clientId }))).toBe('OK')
  })
})

/** Sends bytes as a gRPC call. Resolves with the grpc-status. */
async function rawStatus(path: string, body: Buffer): Promise<string> {
  const session = connectHttp2(`http://${core.core.target}`)
  const stream = session.request({
    [constants.HTTP2_HEADER_METHOD]: 'POST',
    [constants.HTTP2_HEADER_PATH]: path,
    'content-type': 'application/grpc',
    te: 'trailers',
    [serviceTokenHeader]: serviceToken,
    authorization: app.basic,
  })
  const { promise, resolve, reject } = Promise.withResolvers<string>()
  stream.on('response', (headers) => {
    if (headers['grpc-status'] !== undefined) resolve(String(headers['grpc-status']))
  })
  stream.on('trailers', (headers) => resolve(String(headers['grpc-status'])))
  stream.on('error', (error) =>
    reject(new DomainError('UNAVAILABLE', 'the stream broke', { cause: error })),
  )
  stream.resume()
  stream.end(body)
  return promise.finally(() => session.close())
}
