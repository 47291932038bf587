import { STATUS_CODES, type IncomingMessage } from 'node:http'
import { randomUUID } from 'node:crypto'
import type { Socket } from 'node:net'
import type { FastifyReply, FastifyRequest } from 'fastify'
import { DomainError, type Reason } from '../../proto/errors.ts'
import { renderPage } from './page.ts'
import { errorPage, renderError } from './errors.ts'
import { readCorrelationId, securityHeaders, wantsPage } from './headers.ts'
import type { HttpMetrics } from './metrics.ts'

const closeMs = 5_000

interface Refusal {
  readonly reason: Reason
  readonly detail: string
}

const notHttp: Refusal = { reason: 'REQUEST_INVALID', detail: 'the request is not valid HTTP' }
const badPath: Refusal = {
  reason: 'REQUEST_INVALID',
  detail: 'the path is not validly percent-encoded',
}
const tooSlow: Refusal = { reason: 'REQUEST_TIMEOUT', detail: 'the request did not arrive in time' }
const longAddress: Refusal = { reason: 'URI_TOO_LONG', detail: 'the path and query are too long' }
const largeHeaders: Refusal = {
  reason: 'HEADERS_TOO_LARGE',
  detail: 'the headers must be at most 16 KiB',
}

/** An error of node's parser; `rawPacket` is the last data received. */
interface ParserError extends Error {
  readonly code?: string
  readonly rawPacket?: unknown
}

function refusalOf({ code, rawPacket }: ParserError): Refusal {
  if (code === 'ERR_HTTP_REQUEST_TIMEOUT') return tooSlow
  if (code !== 'HPE_HEADER_OVERFLOW') return notHttp
  // The parser counts the request line as part of the headers.
  const isRequestLine =
    Buffer.isBuffer(rawPacket) && /^[A-Z]+ [^\r\n]{12000}/.test(rawPacket.toString('latin1'))
  return isRequestLine ? longAddress : largeHeaders
}

/**
 * Answers requests that never reach a route: undecodable paths, bytes that are not HTTP, and
 * requests that arrive too slowly.
 */
export function malformedRequests({
  publicUrl,
  httpMetrics,
}: {
  readonly publicUrl: string
  readonly httpMetrics: HttpMetrics
}) {
  const common = securityHeaders(publicUrl)

  function answer({ reason, detail }: Refusal, correlationId: string, isPage: boolean) {
    const error = new DomainError(reason, detail)
    const problem = renderError({ error, wire: 'problem', correlationId, publicUrl })
    const page = isPage ? renderPage(errorPage(error, correlationId)) : null
    const text = page?.document ?? JSON.stringify(problem.body)
    const headers = {
      ...common,
      ...page?.headers,
      'x-correlation-id': correlationId,
      'content-type': page ? 'text/html; charset=utf-8' : `${problem.type}; charset=utf-8`,
      'content-length': String(Buffer.byteLength(text)),
    }
    return { status: problem.status, headers, text }
  }

  function frameworkErrors(_: Error, request: FastifyRequest, reply: FastifyReply): void {
    const correlationId = readCorrelationId(request.raw)
    const isPage = wantsPage(request.raw.headers.accept, false)
    const { status, headers, text } = answer(badPath, correlationId, isPage)
    reply.hijack()
    reply.raw.writeHead(status, headers).end(text)
    httpMetrics.malformed(methodOf(request.raw), { correlationId, status, reason: badPath.reason })
  }

  function clientErrorHandler(error: ParserError, socket: Socket): void {
    const gone = error.code === 'ECONNRESET' || !socket.writable
    // A started answer cannot be replaced.
    if (gone || socket.bytesWritten > 0) return void socket.destroy()
    const refusal = refusalOf(error)
    const correlationId = randomUUID()
    const { status, headers, text } = answer(refusal, correlationId, false)
    const lines = Object.entries({ ...headers, connection: 'close' }).map(
      ([name, value]) => `${name}: ${value}`,
    )
    socket.end(`HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\n${lines.join('\r\n')}\r\n\r\n${text}`)
    // A client that does not read the answer must not keep the connection open.
    socket.setTimeout(closeMs, () => socket.destroy())
    httpMetrics.malformed('unknown', { correlationId, status, reason: refusal.reason })
  }

  return { frameworkErrors, clientErrorHandler }
}

const methodOf = (request: IncomingMessage): string => request.method ?? 'GET'
