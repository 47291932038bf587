import { randomUUID } from 'node:crypto'
import type { IncomingMessage, ServerResponse } from 'node:http'
import { type Readiness, readinessAnswer } from '../../core/lib/http.ts'
import { traceHandler } from '../../core/lib/telemetry/tracing.ts'
import { type Problem, problems, sendProblem, wrongMethod } from './problems.ts'

type Handler = (request: IncomingMessage, response: ServerResponse) => void

export interface Routes {
  readonly webhook: Handler
  readonly events: Handler
  readonly ready: Readiness
}

/** The sidecar's five routes. The decision call is compared first. */
export function createRouter({ ready, ...routes }: Routes): Handler {
  const webhook = traceHandler('/authorize', routes.webhook)
  const events = traceHandler('/events', routes.events)
  const posts = new Map([
    ['/authorize', webhook],
    ['/events', events],
  ])
  const gets = new Map<string, Handler>([
    ['/health', alive],
    ['/healthz', alive],
    ['/readyz', readyz],
  ])

  function readyz(_request: IncomingMessage, response: ServerResponse): void {
    ready().then(
      (parts) => {
        const { code, text } = readinessAnswer(parts)
        respond(response, code, text)
      },
      () => respond(response, 503, readinessAnswer({ sidecar: 'unavailable' }).text),
    )
  }

  return (request, response) => {
    if (request.url === '/authorize' && request.method === 'POST') return webhook(request, response)
    const path = pathOf(request.url ?? '')
    const post = posts.get(path)
    if (post)
      return request.method === 'POST'
        ? post(request, response)
        : refuse(response, wrongMethod('POST'))
    const get = gets.get(path)
    if (!get) return refuse(response, problems.notFound)
    const isRead = request.method === 'GET' || request.method === 'HEAD'
    return isRead ? get(request, response) : refuse(response, wrongMethod('GET, HEAD'))
  }
}

function pathOf(url: string): string {
  const query = url.indexOf('?')
  return query === -1 ? url : url.slice(0, query)
}

function alive(_request: IncomingMessage, response: ServerResponse): void {
  response
    .writeHead(200, {
      'content-type': 'text/plain',
      'content-length': 3,
      'cache-control': 'no-store',
    })
    .end('ok\n')
}

function respond(response: ServerResponse, status: number, body: string): void {
  response
    .writeHead(status, { 'content-type': 'application/json', 'cache-control': 'no-store' })
    .end(body)
}

const refuse = (response: ServerResponse, problem: Problem): void =>
  sendProblem(response, problem, randomUUID())
