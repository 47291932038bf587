import { once } from 'node:events'
import { type IncomingHttpHeaders, type ServerResponse, createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { text } from 'node:stream/consumers'
import { isObject } from '../../../core/lib/json.ts'

/** A request as a receiver of webhooks gets it. */
export interface Received {
  readonly path: string
  readonly headers: IncomingHttpHeaders
  readonly body: string
  readonly eventId: string
  readonly type: unknown
  readonly data: Readonly<Record<string, unknown>>
}

type Answer = (received: Received, response: ServerResponse) => void

export const ok: Answer = (_, response) => response.writeHead(204).end()
export const status =
  (code: number, body = '', headers: Readonly<Record<string, string>> = {}): Answer =>
  (_, response) =>
    response.writeHead(code, headers).end(body)
export const hang: Answer = () => {}

/** Starts a real HTTP server that keeps what it receives. */
export async function startReceiver(initial: Answer = ok) {
  let answer = initial
  let open = 0
  let openMax = 0
  const received: Received[] = []
  const server = createServer(async (request, response) => {
    open++
    openMax = Math.max(openMax, open)
    response.on('close', () => open--)
    const body = await text(request)
    const value: unknown = JSON.parse(body)
    const event = isObject(value) ? value : {}
    const one = {
      path: request.url ?? '',
      headers: request.headers,
      body,
      eventId: String(request.headers['webhook-id']),
      type: event['type'],
      data: isObject(event['data']) ? event['data'] : {},
    }
    received.push(one)
    answer(one, response)
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  return {
    url: `http://127.0.0.1:${port}/hooks`,
    received,
    types: () => received.map(({ type }) => type),
    openMax: () => openMax,
    answer: (next: Answer) => void (answer = next),
    stop: () => {
      server.closeAllConnections()
      server.close()
    },
  }
}

export type Receiver = Awaited<ReturnType<typeof startReceiver>>
