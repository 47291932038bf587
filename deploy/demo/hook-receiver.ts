import { once } from 'node:events'
import { createServer } from 'node:http'
import { text } from 'node:stream/consumers'
import { Webhook } from 'standardwebhooks'

export interface ReceivedEvent {
  readonly id: string
  readonly type: string
  readonly data: Readonly<Record<string, unknown>>
}

/** An app's endpoint for webhooks: verifies each signature, and keeps each event once. */
export async function startHookReceiver() {
  let secret = ''
  const events = new Map<string, ReceivedEvent>()
  let refused = 0
  const server = createServer(async (request, response) => {
    const body = await text(request)
    try {
      const headers = Object.fromEntries(
        ['webhook-id', 'webhook-timestamp', 'webhook-signature'].map((name) => [
          name,
          String(request.headers[name] ?? ''),
        ]),
      )
      const event = new Webhook(secret).verify(body, headers) as Omit<ReceivedEvent, 'id'>
      const id = headers['webhook-id'] ?? ''
      events.set(id, { id, type: event.type, data: event.data })
      response.writeHead(204).end()
    } catch {
      refused++
      response.writeHead(400).end()
    }
  })
  server.listen(0, 'localhost')
  await once(server, 'listening')
  const address = server.address()
  const port = typeof address === 'object' && address ? address.port : 0
  return {
    url: `http://localhost:${port}/hooks`,
    /** Sets the secret that the service returned for this endpoint. */
    trust: (value: string): void => {
      secret = value
    },
    events: (): readonly ReceivedEvent[] => [...events.values()],
    refused: (): number => refused,
    stop: async (): Promise<void> => {
      server.closeAllConnections()
      server.close()
      await once(server, 'close')
    },
  }
}

export type HookReceiver = Awaited<ReturnType<typeof startHookReceiver>>
