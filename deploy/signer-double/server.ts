import http from 'node:http'
import { toHeaderMap } from './wire/go-headers.ts'
import type { GatewayCall } from './webhook/authorize.ts'
import { writeJson } from './wire/go-json.ts'
import type { JsonOut } from './wire/go-json.ts'
import { isRefusal, refusal } from './refusal.ts'
import type { Refusal } from './refusal.ts'

export type Route = (body: string, call: GatewayCall) => Promise<JsonOut>

export type ServerOptions = Readonly<{
  /** The routes by path; all are POST. */
  routes: Readonly<Record<string, Route>>
  /** The successor's `{"error":"..."}` instead of `{"error":{"message":"..."}}`. */
  flatErrors: boolean
  onAnswer: (status: number) => void
}>

/** Go's default limit for a request's head. */
const MAX_HEADER_BYTES = 1024 * 1024
const MAX_BODY_BYTES = 8 * 1024 * 1024

const MASKED: Readonly<Record<number, string>> = {
  500: 'Internal Server Error',
  503: 'Service Unavailable Error',
}

async function readBody(request: http.IncomingMessage): Promise<string> {
  const chunks: Buffer[] = []
  let size = 0
  request.on('data', (chunk: Buffer) => {
    size += chunk.length
    if (size <= MAX_BODY_BYTES) chunks.push(chunk)
  })
  await new Promise<void>((resolve, reject) => {
    request.once('end', resolve)
    request.once('error', reject)
  })
  if (size > MAX_BODY_BYTES) throw refusal(400, 'the request body is too large')
  return Buffer.concat(chunks).toString()
}

/**
 * Answers a status like Go's server (docs/signer-answers.md, "Statuses"): it panics on codes
 * outside 100-999 and closes the connection, sends a 200 after a 1xx, and no body with 204 and 304.
 */
function sendRefusal(response: http.ServerResponse, refused: Refusal, flat: boolean): void {
  const { status } = refused
  if (status < 100 || status > 999) {
    response.destroy()
    return
  }
  const message = MASKED[status] ?? refused.message
  const body = writeJson({ error: flat ? message : { message } })
  const bare = status === 204 || status === 304
  response.writeHead(status < 200 ? 200 : status, {
    'Content-Type': 'application/json',
    ...refused.headers,
  })
  response.end(bare ? undefined : `${body}\n`)
}

function sendText(response: http.ServerResponse, status: number, text: string): void {
  response.writeHead(status, { 'Content-Type': 'text/plain; charset=utf-8' })
  response.end(`${text}\n`)
}

/** Aborts when the gateway disconnects before it has its answer. */
function hangUpSignal(response: http.ServerResponse): AbortSignal {
  const hangUp = new AbortController()
  response.once('close', () => {
    if (!response.writableEnded) hangUp.abort()
  })
  return hangUp.signal
}

/** Creates a server that imitates the Go server's limits, routing and error bodies. */
export function createSignerServer({ routes, flatErrors, onAnswer }: ServerOptions): http.Server {
  async function answer(
    request: http.IncomingMessage,
    response: http.ServerResponse,
    route: Route,
  ): Promise<void> {
    const call = { headers: toHeaderMap(request.rawHeaders), signal: hangUpSignal(response) }
    try {
      const result = await route(await readBody(request), call)
      onAnswer(200)
      response.writeHead(200, { 'Content-Type': 'application/json' })
      response.end(writeJson(result))
    } catch (error) {
      const refused = isRefusal(error) ? error : refusal(500, String(error))
      onAnswer(refused.status)
      sendRefusal(response, refused, flatErrors)
    }
  }

  function serve(request: http.IncomingMessage, response: http.ServerResponse): void {
    const { pathname } = new URL(request.url ?? '/', 'http://signer.invalid')
    const route = Object.hasOwn(routes, pathname) ? routes[pathname] : undefined
    if (route === undefined) return sendText(response, 404, '404 page not found')
    if (request.method !== 'POST') return sendText(response, 405, 'Method Not Allowed')
    void answer(request, response, route)
  }

  const limits = { maxHeaderSize: MAX_HEADER_BYTES, requestTimeout: 60_000 }
  return http.createServer({ ...limits, keepAliveTimeout: 90_000 }, serve)
}

/** Starts listening and resolves to the port. Rejects when the port is in use. */
export function listen(server: http.Server, port: number, host: string): Promise<number> {
  return new Promise((resolve, reject) => {
    server.once('error', reject)
    server.listen(port, host, () => {
      server.off('error', reject)
      const address = server.address()
      resolve(address !== null && typeof address === 'object' ? address.port : port)
    })
  })
}

/** Closes the server and aborts running requests. */
export function close(server: http.Server): Promise<void> {
  return new Promise((resolve) => {
    server.close(() => resolve())
    server.closeAllConnections()
  })
}
