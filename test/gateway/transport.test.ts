import { once } from 'node:events'
import { type ServerHttp2Stream, createServer } from 'node:http2'
import { toBinary, create } from '@bufbuild/protobuf'
import { Code, ConnectError, createClient } from '@connectrpc/connect'
import { Http2SessionManager } from '@connectrpc/connect-node'
import { describe, expect, it, onTestFinished } from 'vitest'
import { createUnaryTransport } from '../../gateway/transport.ts'
import { MintUserTokenResponseSchema, TokenService } from '../../proto/gen/es/tollgate/tokens/v1/tokens_pb.ts'

const headers = { ':status': 200, 'content-type': 'application/grpc' }

function frame(message: Uint8Array, declared = message.length): Buffer {
  const head = Buffer.alloc(5)
  head.writeUInt32BE(declared, 1)
  return Buffer.concat([head, message])
}

const token = frame(toBinary(MintUserTokenResponseSchema, create(MintUserTokenResponseSchema, { accessToken: 'a-token' })))

/** What a call ends with when the server answers by `answer`. */
async function callWhen(answer: (stream: ServerHttp2Stream) => void, timeoutMs = 2_000) {
  const server = createServer()
  server.on('stream', (stream) => {
    stream.on('error', () => undefined)
    answer(stream)
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const address = server.address()
  const sessions = new Http2SessionManager(`http://127.0.0.1:${typeof address === 'object' && address ? address.port : 0}`)
  onTestFinished(() => {
    sessions.abort()
    server.close()
  })
  const client = createClient(TokenService, createUnaryTransport({ sessions, answerMaxBytes: 1_000 }))
  return client.mintUserToken({}, { timeoutMs }).catch((error: unknown) => ConnectError.from(error))
}

function answerWith(bytes: Buffer, trailers: Record<string, string> = { 'grpc-status': '0' }) {
  return (stream: ServerHttp2Stream): void => {
    stream.respond(headers, { waitForTrailers: true })
    stream.on('wantTrailers', () => stream.sendTrailers(trailers))
    stream.end(bytes)
  }
}

describe('a unary call', () => {
  it('gives the message that answers it, however it is cut', async () => {
    expect(await callWhen(answerWith(token))).toMatchObject({ accessToken: 'a-token' })
    expect(await callWhen((stream) => {
      stream.respond(headers, { waitForTrailers: true })
      stream.on('wantTrailers', () => stream.sendTrailers({ 'grpc-status': '0' }))
      stream.write(token.subarray(0, 7))
      setTimeout(() => stream.end(token.subarray(7)), 20)
    })).toMatchObject({ accessToken: 'a-token' })
  })

  it('throws what the trailers, or the only headers, say', async () => {
    const said = { 'grpc-status': '7', 'grpc-message': 'not%20you', 'x-reason': 'SCOPE_MISSING' }
    for (const answer of [answerWith(Buffer.alloc(0), said), (stream: ServerHttp2Stream) => stream.respond({ ...headers, ...said }, { endStream: true })]) {
      const error = await callWhen(answer)
      expect(error).toMatchObject({ code: Code.PermissionDenied, rawMessage: 'not you' })
      expect(error instanceof ConnectError && error.metadata.get('x-reason')).toBe('SCOPE_MISSING')
    }
  })

  it.each<[string, Code, (stream: ServerHttp2Stream) => void]>([
    ['no answer in time', Code.DeadlineExceeded, () => undefined],
    ['an answer that is too large', Code.Internal, answerWith(frame(Buffer.alloc(2_000)))],
    ['half a message', Code.Internal, answerWith(frame(Buffer.alloc(3), 300))],
    ['no message', Code.Internal, answerWith(Buffer.alloc(0))],
    ['no status', Code.Unavailable, (stream) => stream.respond(headers, { endStream: true })],
    ['a stream that is reset', Code.Aborted, (stream) => stream.close(2)],
  ])('ends with %s', async (_what, code, answer) => {
    expect(await callWhen(answer, 300)).toMatchObject({ code })
  })
})
