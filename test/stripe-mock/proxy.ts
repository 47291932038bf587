import { createServer } from 'node:http'
import { isObject, parseObject } from '../../core/lib/json.ts'

export interface ProxiedRequest {
  /** `METHOD path`, ids replaced by `:id`. */
  readonly route: string
  readonly body: string
  readonly version: string
  readonly status: number
  readonly error: string
}

/**
 * Forwards requests to stripe-mock and records what it thinks of them. Fields of `answers`, by
 * route, replace those of its fixtures, which know no state.
 */
export async function startProxy(target: string) {
  const requests: ProxiedRequest[] = []
  const proxy = {
    requests,
    answers: {} as Record<string, object>,
    /** Changes the body of a request before stripe-mock gets it. */
    rewrite: (_route: string, body: string): string => body,
    url: '',
    stop: async (): Promise<void> => {
      server.closeAllConnections()
      await new Promise((resolve) => server.close(resolve))
    },
  }
  const server = createServer(async (request, response) => {
    const chunks: Buffer[] = []
    for await (const chunk of request) chunks.push(chunk)
    const body = Buffer.concat(chunks).toString()
    const path = request.url ?? ''
    const method = request.method ?? ''
    const route = `${method} ${path.replace(/\?.*/, '').replace(/\/(acct|cus|cs|pi|fee)_\w+/g, '/:id')}`
    const version = String(request.headers['stripe-version'])
    const sent = proxy.rewrite(route, body)
    const answer = await fetch(`${target}${path}`, {
      method,
      ...(method === 'GET' ? {} : { body: sent }),
      headers: {
        authorization: request.headers.authorization ?? '',
        'content-type': 'application/x-www-form-urlencoded',
      },
    })
    const text = await answer.text()
    const object = parseObject(text)
    const error = object && isObject(object['error']) ? String(object['error']['message']) : ''
    requests.push({ route, body, version, status: answer.status, error })
    const replaced = JSON.stringify({ ...object, ...(answer.ok ? proxy.answers[route] : {}) })
    response.writeHead(answer.status, { 'content-type': 'application/json' }).end(replaced)
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const address = server.address()
  proxy.url = `http://127.0.0.1:${typeof address === 'object' ? address?.port : ''}`
  return proxy
}
