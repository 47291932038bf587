import { once } from 'node:events'
import { connect as connectSocket } from 'node:net'
import { type ClientHttp2Session, type ClientHttp2Stream, connect, constants } from 'node:http2'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { serviceTokenHeader } from '../../../proto/headers.ts'
import { smallMessageBytes } from '../../../core/rpc/server.ts'
import { type TestCore, outcome, serviceToken, startTestCore, until } from '../support.ts'

let core: TestCore
let session: ClientHttp2Session
beforeAll(async () => {
  core = await startTestCore()
  session = connect(`http://${core.core.target}`)
  // Sends a token, because core would otherwise close the connection after ten seconds.
  await announce(listUsers, { bytes: 32 * mebibyte, token: serviceToken })
})
afterAll(async () => {
  session.destroy()
  await core.stop()
})

const listUsers = '/tollgate.identity.v1.UserService/ListUsers'
const getJwks = '/tollgate.tokens.v1.TokenService/GetJwks'
const reflection = '/grpc.reflection.v1.ServerReflection/ServerReflectionInfo'
const healthCheck = '/grpc.health.v1.Health/Check'
const ingest = '/tollgate.metering.v1.MeteringService/IngestEvents'
const importTickets = '/tollgate.books.v1.BooksService/ImportTickets'
const mebibyte = 1024 * 1024

interface Exchange {
  readonly status: string
  readonly reason: string
}

/** Announces a message of `bytes` bytes without sending it. Resolves with the refusal. */
async function announce(
  path: string,
  { bytes, token, chunkBytes = 5 }: { bytes: number; token?: string; chunkBytes?: number },
): Promise<Exchange> {
  const stream = session.request({
    [constants.HTTP2_HEADER_METHOD]: 'POST',
    [constants.HTTP2_HEADER_PATH]: path,
    'content-type': 'application/grpc',
    te: 'trailers',
    ...(token !== undefined && { [serviceTokenHeader]: token }),
  })
  const { promise, resolve, reject } = Promise.withResolvers<Exchange>()
  const take = (headers: Record<string, unknown>): void => {
    if (headers['grpc-status'] === undefined) return
    resolve({
      status: String(headers['grpc-status']),
      reason: String(headers['tollgate-reason'] ?? ''),
    })
  }
  stream.on('response', take)
  stream.on('trailers', take)
  stream.on('error', reject)
  stream.resume()
  const prefix = Buffer.alloc(5)
  prefix.writeUInt32BE(bytes, 1)
  for (let from = 0; from < prefix.length; from += chunkBytes)
    stream.write(prefix.subarray(from, from + chunkBytes))
  return promise.finally(() => stream.destroy())
}

describe('a call without a token', () => {
  it('is rejected by its metadata, before its message is read', async () => {
    expect(await announce(listUsers, { bytes: 32 * mebibyte })).toEqual({
      status: '16',
      reason: 'SERVICE_TOKEN_INVALID',
    })
    expect(await announce(ingest, { bytes: 100, token: 'x'.repeat(40) })).toEqual({
      status: '16',
      reason: 'SERVICE_TOKEN_INVALID',
    })
  })

  it('uses no memory for 24 messages of 32 MiB', { timeout: 60_000 }, async () => {
    const before = process.memoryUsage().rss
    let highest = before
    const timer = setInterval(() => {
      highest = Math.max(highest, process.memoryUsage().rss)
    }, 5)
    const calls = Array.from({ length: 24 }, () => sendAll(listUsers, 32 * mebibyte))
    expect(new Set(await Promise.all(calls))).toEqual(new Set(['SERVICE_TOKEN_INVALID']))
    clearInterval(timer)
    expect(highest - before).toBeLessThan(200 * mebibyte)
  })
})

const piece = Buffer.alloc(64 * 1024, 1)

const drained = (stream: ClientHttp2Stream): Promise<void> =>
  new Promise((resolve) => void stream.once('drain', resolve))

/**
 * Sends a complete message of `bytes` bytes from one small buffer. Resolves with the reason of the
 * refusal.
 */
async function sendAll(path: string, bytes: number): Promise<string> {
  const stream = session.request({
    [constants.HTTP2_HEADER_METHOD]: 'POST',
    [constants.HTTP2_HEADER_PATH]: path,
    'content-type': 'application/grpc',
    te: 'trailers',
  })
  let reason = ''
  stream.on('response', (headers) => {
    reason = String(headers['tollgate-reason'])
  })
  stream.on('error', () => {})
  const closed = once(stream, 'close')
  stream.resume()
  const prefix = Buffer.alloc(5)
  prefix.writeUInt32BE(bytes, 1)
  stream.write(prefix)
  for (let sent = 0; sent < bytes && !stream.closed; sent += piece.length) {
    if (!stream.write(piece)) await Promise.race([drained(stream), closed])
  }
  if (!stream.closed) stream.end()
  await until(() => reason !== '')
  return reason
}

function framed(message: Buffer): Buffer {
  const prefix = Buffer.alloc(5)
  prefix.writeUInt32BE(message.length, 1)
  return Buffer.concat([prefix, message])
}

const cutAt = (bytes: Buffer, cuts: readonly number[]): Buffer[] =>
  [0, ...cuts].map((from, index) => bytes.subarray(from, cuts[index]))

/**
 * Sends the chunks and ends the stream. Resolves with the status, or with the error that closed the
 * stream.
 */
async function sendChunks(path: string, chunks: readonly Buffer[]): Promise<string> {
  const stream = session.request({
    [constants.HTTP2_HEADER_METHOD]: 'POST',
    [constants.HTTP2_HEADER_PATH]: path,
    'content-type': 'application/grpc',
    te: 'trailers',
    [serviceTokenHeader]: serviceToken,
  })
  let end = ''
  const take = (headers: Record<string, unknown>): void => {
    end = String(headers['grpc-status'] ?? end)
  }
  stream.on('response', take).on('trailers', take)
  stream.on('error', ({ message }) => {
    end = message
  })
  stream.resume()
  for (const chunk of chunks) stream.write(chunk)
  stream.end()
  await until(() => end !== '')
  return end
}

describe('a message', () => {
  it('is rejected when its announced length exceeds 1 MiB and its frame', async () => {
    const refusal = await announce(listUsers, { bytes: smallMessageBytes + 1, token: serviceToken })
    expect(refusal.status).toBe('8')
  })

  it('is also limited for the health check, which needs no token', async () => {
    expect((await announce(healthCheck, { bytes: 2 * mebibyte })).status).toBe('8')
    expect((await announce(healthCheck, { bytes: 2 * mebibyte, chunkBytes: 1 })).status).toBe('8')
  })

  it('is accepted at the maximum length in any chunks', async () => {
    // Field 15, which the request does not have, with all remaining bytes.
    const field = Buffer.from([0x7a, 0xfc, 0xff, 0x43])
    const value = Buffer.alloc(smallMessageBytes - field.length, 'x')
    const body = framed(Buffer.concat([field, value]))
    const sent = (cuts: readonly number[]): Promise<string> =>
      sendChunks(getJwks, cutAt(body, cuts))
    expect(await sent([])).toBe('0')
    expect(await sent([1, 4, 5, 6])).toBe('0')
    expect(await sent([3, 100_000, 700_001])).toBe('0')
  })

  it('is limited on its own, not together with others of its stream', async () => {
    const listServices = framed(Buffer.from([0x3a, 0x01, 0x2a]))
    const many = Array.from({ length: 100 }, () => listServices)
    expect(await sendChunks(reflection, many)).toBe('0')
    const prefix = framed(Buffer.alloc(0))
    prefix.writeUInt32BE(2 * mebibyte, 1)
    expect(await sendChunks(reflection, [listServices, prefix])).toMatch(/^8$|ENHANCE_YOUR_CALM/)
  })

  it('may be larger for events and tickets, up to their own limit', async () => {
    const token = serviceToken
    const ends = [
      await announce(ingest, { bytes: 5 * mebibyte, token }),
      await announce(importTickets, { bytes: 10 * mebibyte, token }),
    ]
    expect(ends.map(({ status }) => status)).toEqual(['8', '8'])
    const lines = `${'x'.repeat(3 * mebibyte)}\n`
    expect(await outcome(core.as().ingestEvents({ envelopes: [Buffer.from(lines)] }))).toBe('OK')
  })
})

describe('a connection', () => {
  it('is closed when the caller sends nothing', { timeout: 30_000 }, async () => {
    const [, port = ''] = core.core.target.split(':')
    const socket = connectSocket(Number(port), '127.0.0.1')
    const { promise, resolve } = Promise.withResolvers<void>()
    socket.resume()
    socket.on('close', () => resolve()).on('error', () => resolve())
    await promise
    expect(await outcome(core.as().getJwks())).toBe('OK')
  })
})
