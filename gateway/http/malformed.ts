import { STATUS_CODES, type IncomingMessage } from 'node:http'
import { randomUUID } from 'node:crypto'
import type { Socket } from 'node:net'
import type { FastifyReply, FastifyRequest } from 'fastify'
import { DomainError } from '../../proto/errors.ts'
import { renderError } from './errors.ts'
import { correlationIdOf, securityHeaders } from './headers.ts'
import type { HttpMetrics } from './metrics.ts'

const parserStatus: Readonly<Record<string, number>> = {
  HPE_HEADER_OVERFLOW: 431,
  ERR_HTTP_REQUEST_TIMEOUT: 408,
}

/** Answers requests that never reach a route: a path that does not decode, bytes that are not HTTP. */
export function malformedRequests({
  publicUrl,
  httpMetrics,
}: {
  readonly publicUrl: string
  readonly httpMetrics: HttpMetrics
}) {
  const badRequest = (correlationId: string, detail: string) => {
    const error = new DomainError('REQUEST_INVALID', detail)
    const { status, type, body } = renderError({ error, wire: 'problem', correlationId, publicUrl })
    const text = JSON.stringify(body)
    const headers = {
      ...securityHeaders,
      'x-correlation-id': correlationId,
      'content-type': `${type}; charset=utf-8`,
      'content-length': String(Buffer.byteLength(text)),
    }
    return { status, headers, text }
  }

  function frameworkErrors(_: Error, request: FastifyRequest, reply: FastifyReply): void {
    const correlationId = correlationIdOf(request.raw)
    const { status, headers, text } = badRequest(
      correlationId,
      'the path is not validly percent-encoded',
    )
    reply.hijack()
    reply.raw.writeHead(status, headers).end(text)
    httpMetrics.malformed(methodOf(request.raw), correlationId)
  }

  function clientErrorHandler(error: Error & { code?: string }, socket: Socket): void {
    const gone = error.code === 'ECONNRESET' || !socket.writable
    // An answer that has begun cannot become another one.
    if (gone || socket.bytesWritten > 0) return void socket.destroy()
    const { headers, text } = badRequest(randomUUID(), 'the request is not valid HTTP')
    const status = parserStatus[error.code ?? ''] ?? 400
    const lines = Object.entries({ ...headers, connection: 'close' }).map(
      ([name, value]) => `${name}: ${value}`,
    )
    socket.end(`HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\n${lines.join('\r\n')}\r\n\r\n${text}`)
  }

  return { frameworkErrors, clientErrorHandler }
}

const methodOf = (request: IncomingMessage): string => request.method ?? 'GET'
