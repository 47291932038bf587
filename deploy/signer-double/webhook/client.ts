import http from 'node:http'
import https from 'node:https'
import { Socket } from 'node:net'
import { pipeline } from 'node:stream/promises'
import { createGunzip } from 'node:zlib'
import { canonicalName, toGoWire } from '../wire/go-headers.ts'
import type { HeaderLine } from '../wire/go-headers.ts'

export type WebhookOptions = Readonly<{
  url: string
  headers: readonly HeaderLine[]
  /** Total time for connect, TLS, send, head and complete body; the signer has 5,000 ms. */
  budgetMs: number
  followRedirects: boolean
}>

export type WebhookResponse = Readonly<{ status: number; text: string }>

export type WebhookClient = Readonly<{
  /** Calls the webhook. Rejects on time-out, abort, or any transport failure. */
  post: (body: string, signal: AbortSignal) => Promise<WebhookResponse>
  close: () => void
}>

type Hop = Readonly<{
  url: URL
  method: string
  body: string | undefined
  headers: ReadonlyMap<string, string>
}>

const MAX_REDIRECTS = 10
const MAX_ANSWER_BYTES = 16 * 1024 * 1024
const FREE_SOCKET_MS = 90_000

// Go's default transport: two idle connections per host, for 90 s, regardless of the Keep-Alive
// header.
const POOL = { keepAlive: true, maxFreeSockets: 2, timeout: FREE_SOCKET_MS }

function keepFreeSockets<A extends http.Agent>(agent: A): A {
  agent.keepSocketAlive = (socket) => {
    if (socket instanceof Socket) socket.setKeepAlive(true, 15_000).setTimeout(FREE_SOCKET_MS)
    return true
  }
  return agent
}

function firstHop({ url, headers }: WebhookOptions, body: string): Hop {
  const target = new URL(url)
  const map = new Map([['Content-Type', 'application/json']])
  for (const [name, value] of headers) map.set(canonicalName(name), value)
  if (target.username !== '' && !map.has('Authorization')) {
    const pair = `${decodeURIComponent(target.username)}:${decodeURIComponent(target.password)}`
    map.set('Authorization', `Basic ${Buffer.from(pair).toString('base64')}`)
  }
  return { url: target, method: 'POST', body, headers: map }
}

const sameSite = (from: URL, to: URL): boolean =>
  to.hostname === from.hostname || to.hostname.endsWith(`.${from.hostname}`)

function refererOf(from: URL, to: URL): string | undefined {
  if (from.protocol === 'https:' && to.protocol === 'http:') return undefined
  const clean = new URL(from)
  clean.username = ''
  clean.password = ''
  return clean.href
}

/** The next request of Go's client, or undefined when the answer is final. */
function nextHop(hop: Hop, response: http.IncomingMessage): Hop | undefined {
  const status = response.statusCode ?? 0
  const { location } = response.headers
  if (![301, 302, 303, 307, 308].includes(status) || location === undefined) return undefined
  const url = new URL(location, hop.url)
  const headers = new Map(hop.headers)
  const referer = refererOf(hop.url, url)
  if (referer !== undefined) headers.set('Referer', referer)
  if (!sameSite(hop.url, url)) headers.delete('Authorization')
  if (status >= 307) return { url, method: hop.method, body: hop.body, headers }
  return { url, method: 'GET', body: undefined, headers }
}

async function collect(source: AsyncIterable<Buffer>): Promise<string> {
  const chunks: Buffer[] = []
  let size = 0
  for await (const chunk of source) {
    size += chunk.length
    if (size > MAX_ANSWER_BYTES) throw new RangeError('the webhook answer is too large')
    chunks.push(chunk)
  }
  return Buffer.concat(chunks).toString()
}

async function readAnswer(response: http.IncomingMessage, signal: AbortSignal): Promise<string> {
  const gzipped = response.headers['content-encoding']?.toLowerCase() === 'gzip'
  if (!gzipped) return await pipeline(response, collect, { signal })
  return await pipeline(response, createGunzip(), collect, { signal })
}

/** Creates a client with the signer's connection pool, redirects and bytes on the wire. */
export function createWebhookClient(options: WebhookOptions): WebhookClient {
  const plain = keepFreeSockets(new http.Agent(POOL))
  const secure = keepFreeSockets(new https.Agent(POOL))

  function send(hop: Hop, signal: AbortSignal): Promise<http.IncomingMessage> {
    const tls = hop.url.protocol === 'https:'
    const contentLength = hop.body === undefined ? undefined : Buffer.byteLength(hop.body)
    return new Promise((resolve, reject) => {
      const request = (tls ? https : http).request({
        agent: tls ? secure : plain,
        hostname: hop.url.hostname.replace(/^\[|\]$/g, ''),
        port: hop.url.port,
        path: `${hop.url.pathname}${hop.url.search}`,
        method: hop.method,
        setDefaultHeaders: false,
        headers: toGoWire({ host: hop.url.host, headers: hop.headers, contentLength }),
        signal,
      })
      request.on('response', resolve)
      request.on('error', reject)
      // With a string body, Node would write the head in UTF-8 too, and its bytes are already
      // encoded.
      request.end(hop.body === undefined ? undefined : Buffer.from(hop.body))
    })
  }

  async function post(body: string, inbound: AbortSignal): Promise<WebhookResponse> {
    const signal = AbortSignal.any([inbound, AbortSignal.timeout(options.budgetMs)])
    let hop = firstHop(options, body)
    for (let redirects = 0; redirects <= MAX_REDIRECTS; redirects += 1) {
      const response = await send(hop, signal)
      const next = options.followRedirects ? nextHop(hop, response) : undefined
      const text = await readAnswer(response, signal)
      if (next === undefined) return { status: response.statusCode ?? 0, text }
      hop = next
    }
    throw new Error(`stopped after ${MAX_REDIRECTS} redirects`)
  }

  const close = (): void => {
    plain.destroy()
    secure.destroy()
  }
  return { post, close }
}
