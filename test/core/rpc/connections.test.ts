import { once } from 'node:events'
import {
  type ClientHttp2Session,
  type ClientHttp2Stream,
  connect as connectHttp2,
  constants,
} from 'node:http2'
import { type Socket, connect } from 'node:net'
import { describe, expect, it, onTestFinished } from 'vitest'
import type { Authenticator } from '../../../core/rpc/callers.ts'
import { serviceCaller } from '../../../core/rpc/guards.ts'
import type { ConnectionLimits } from '../../../core/rpc/connections.ts'
import { silentLog } from '../../../core/lib/log.ts'
import { createMetrics } from '../../../core/lib/metrics.ts'
import { grpcService, rpc, streamRpc } from '../../../core/rpc/serve.ts'
import { startGrpcServer } from '../../../core/rpc/server.ts'
import { serviceTokenHeader } from '../../../proto/headers.ts'
import {
  type SignerServiceServer,
  SignerServiceService,
} from '../../../proto/gen/ts-proto/tollgate/signer/v1/signer.ts'
import { serviceToken, serviceTokens } from '../support.ts'

const getAccess = '/tollgate.signer.v1.SignerService/GetAccess'
const watchInvalidations = '/tollgate.signer.v1.SignerService/WatchInvalidations'
const healthCheck = '/grpc.health.v1.Health/Check'
const healthWatch = '/grpc.health.v1.Health/Watch'
const withToken = { [serviceTokenHeader]: serviceToken }

/** Starts a server with one unary RPC, and one stream that stays open. */
async function startServer(limits: Partial<ConnectionLimits> = {}): Promise<number> {
  const signer = grpcService<Pick<SignerServiceServer, 'getAccess' | 'watchInvalidations'>>(
    SignerServiceService,
    {
      getAccess: rpc(serviceCaller('sidecar'), async () => ({ access: undefined })),
      watchInvalidations: streamRpc(serviceCaller('sidecar'), async (_request, _emit, context) => {
        await once(context.signal, 'abort')
      }),
    },
  )
  const server = await startGrpcServer([signer], {
    host: '127.0.0.1',
    port: 0,
    authenticator: unused,
    serviceTokens,
    log: silentLog(),
    metrics: createMetrics('core'),
    operatorLog: { record: async () => {} },
    limits,
  })
  onTestFinished(() => server.stop(100))
  return server.port
}

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

/** Opens connections one after another. */
async function open(port: number, count: number): Promise<Socket[]> {
  const sockets: Socket[] = []
  onTestFinished(() => sockets.forEach((socket) => void socket.destroy()))
  for (let i = 0; i < count; i++) {
    const socket = connect(port, '127.0.0.1')
    socket.on('error', () => socket.destroy()).resume()
    sockets.push(socket)
    await once(socket, 'connect')
  }
  return sockets
}

const openAmong = (sockets: readonly Socket[]): number =>
  sockets.filter(({ closed }) => !closed).length

/** Opens an HTTP/2 connection. */
async function openSession(port: number): Promise<ClientHttp2Session> {
  const session = connectHttp2(`http://127.0.0.1:${port}`)
  session.on('error', () => {})
  onTestFinished(() => session.destroy())
  await once(session, 'connect')
  return session
}

function call(
  session: ClientHttp2Session,
  path: string,
  headers: Record<string, string> = {},
): ClientHttp2Stream {
  const stream = session.request({
    ':method': 'POST',
    ':path': path,
    'content-type': 'application/grpc',
    te: 'trailers',
    ...headers,
  })
  stream.on('error', () => {}).resume()
  return stream
}

/**
 * Calls an RPC with an empty message. Resolves with its status, or with "closed" if the connection
 * ends.
 */
function statusOf(
  session: ClientHttp2Session,
  path: string,
  headers: Record<string, string> = {},
): Promise<string> {
  const { promise, resolve } = Promise.withResolvers<string>()
  const stream = call(session, path, headers)
  const take = (answered: Record<string, unknown>): void => {
    if (answered['grpc-status'] !== undefined) resolve(String(answered['grpc-status']))
  }
  stream.on('response', take).on('trailers', take)
  stream.on('close', () => resolve('closed'))
  stream.end(Buffer.alloc(5))
  return promise
}

describe('a connection to core', () => {
  it('is closed when no stream has sent a token in time', async () => {
    const port = await startServer({ strangerMs: 300 })
    const [silent] = await open(port, 1)
    const [stranger, guesser, known] = [
      await openSession(port),
      await openSession(port),
      await openSession(port),
    ]
    call(stranger, healthWatch).end(Buffer.alloc(5))
    expect(await statusOf(guesser, getAccess, { [serviceTokenHeader]: 'x'.repeat(40) })).toBe('16')
    call(known, watchInvalidations, withToken).end(Buffer.alloc(5))
    await Promise.all([once(silent!, 'close'), once(stranger, 'close'), once(guesser, 'close')])
    expect(known.closed).toBe(false)
    expect(await statusOf(known, getAccess)).toBe('16')
    expect(await statusOf(known, getAccess, withToken)).toBe('0')
  })

  it('is admitted despite 2,000 idle ones from its address', async () => {
    const port = await startServer()
    const strangers = await open(port, 2_000)
    const peer = await openSession(port)
    expect(await statusOf(peer, getAccess, withToken)).toBe('0')
    await expect.poll(() => openAmong(strangers)).toBeLessThanOrEqual(100)
    const more = await open(port, 200)
    expect(await statusOf(peer, getAccess, withToken)).toBe('0')
    await expect.poll(() => openAmong([...strangers, ...more])).toBeLessThanOrEqual(100)
  }, 30_000)

  it('is never closed for strangers when its peer is known', async () => {
    const port = await startServer({ max: 4, maxStrangers: 2, maxStrangersPerAddress: 10 })
    const peers: ClientHttp2Session[] = []
    for (let i = 0; i < 4; i++) {
      const strangers = await open(port, 3)
      await expect.poll(() => openAmong(strangers)).toBeLessThanOrEqual(2)
      const peer = await openSession(port)
      expect(await statusOf(peer, getAccess, withToken)).toBe('0')
      peers.push(peer)
    }
    const [beyond] = await open(port, 1)
    await once(beyond!, 'close')
    for (const peer of peers) expect(await statusOf(peer, getAccess, withToken)).toBe('0')
  })

  it('carries 16 streams before a token, and any number afterwards', async () => {
    const port = await startServer()
    const session = await openSession(port)
    const held = Array.from({ length: 16 }, () => call(session, healthCheck))
    const [refusal] = await once(call(session, healthCheck), 'response')
    expect(refusal['grpc-status']).toBe('8')
    expect(refusal['grpc-message']).toMatch(/without a service token a connection has 16 calls/)
    for (const stream of held) expect([stream.closed, stream.readableEnded]).toEqual([false, false])
    held[0]?.destroy()
    await statusOf(session, healthCheck)
    held.push(call(session, healthCheck))
    expect(await statusOf(session, getAccess, withToken)).toBe('0')
    held.push(...Array.from({ length: 30 }, () => call(session, healthCheck)))
    expect(await statusOf(session, getAccess, withToken)).toBe('0')
    expect(held.slice(1).filter(({ closed, readableEnded }) => closed || readableEnded)).toEqual([])
  })

  it('survives calls of unknown RPCs beyond its streams', async () => {
    const port = await startServer()
    const session = await openSession(port)
    for (let i = 0; i < 40; i++) call(session, '/no.such.Service/Call')
    expect(await statusOf(session, getAccess, withToken)).toBe('0')
  })

  it('carries one Health/Watch at a time', async () => {
    const port = await startServer()
    const session = await openSession(port)
    expect(await statusOf(session, getAccess, withToken)).toBe('0')
    const first = call(session, healthWatch)
    first.end(Buffer.alloc(5))
    await once(first, 'response')
    const second = call(session, healthWatch)
    second.end(Buffer.alloc(5))
    await new Promise((resolve) => second.once('close', resolve))
    expect([second.rstCode, first.closed]).toEqual([constants.NGHTTP2_ENHANCE_YOUR_CALM, false])
    first.close(constants.NGHTTP2_CANCEL)
    expect(await statusOf(session, getAccess, withToken)).toBe('0')
    const third = call(session, healthWatch)
    third.end(Buffer.alloc(5))
    await once(third, 'data')
    expect(third.closed).toBe(false)
  })
})
