import type { IncomingMessage } from 'node:http'
import { Agent as HttpAgent } from 'node:http'
import { Agent as HttpsAgent } from 'node:https'
import { Stripe } from 'stripe'
import { traceOutgoing } from '../../../lib/telemetry/tracing.ts'

const maxBytes = 4 * 1024 * 1024
/** Connections, and so requests at a time, of one plane. */
export const connectionsMax = 64
const connections = { keepAlive: true, maxSockets: connectionsMax, maxFreeSockets: 16 }

type HttpClient = NonNullable<Stripe.StripeConfig['httpClient']>

/**
 * Returns the SDK's client with limits for the answer: 4 MiB, and `timeout` for its whole body,
 * where the SDK itself limits only the time between two packets.
 */
export function createHttpClient(protocol: 'http' | 'https'): HttpClient {
  const agent = protocol === 'http' ? new HttpAgent(connections) : new HttpsAgent(connections)
  const inner = Stripe.createNodeHttpClient(agent)
  return {
    getClientName: () => inner.getClientName(),
    makeRequest: async (...request) => {
      const [host, port, path, method, headers, ...rest] = request
      const response = await traceOutgoing(`${method} Stripe`, (trace) =>
        inner.makeRequest(host, port, path, method, { ...headers, ...trace }, ...rest),
      )
      const [, , timeoutMs] = rest
      const stream = response.toStream(() => {})
      if (isMessage(stream)) boundBody(stream, timeoutMs)
      return response
    },
  }
}

const isMessage = (stream: object): stream is IncomingMessage =>
  'statusCode' in stream && 'destroy' in stream

function boundBody(message: IncomingMessage, timeoutMs: number): void {
  const timer = setTimeout(() => message.destroy(new Error('the body is late')), timeoutMs)
  let bytes = 0
  // The SDK reads the body as text in the same turn, so a listener here loses nothing.
  message.on('data', (chunk: string | Buffer) => {
    bytes += chunk.length
    if (bytes > maxBytes) message.destroy(new Error('the body is too large'))
  })
  message.once('close', () => clearTimeout(timer))
}
