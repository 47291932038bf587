import { type Server, createServer } from 'node:http'
import { Server as TlsServer } from 'node:tls'
import type { Metrics } from './metrics.ts'
import { boundConnections } from './network/connections.ts'
import { cutConnections } from './network/server-tls.ts'

export interface Listening {
  readonly port: number
  readonly url: string
  /**
   * Stops accepting connections, lets running requests finish within `graceMs`, then closes the
   * remaining connections.
   */
  stop(graceMs: number): Promise<void>
}

/**
 * Starts `server` on `host:port` (0 selects a free port). Rejects with a one-line error that names
 * the setting of an occupied port.
 */
export async function listen(
  server: Server,
  at: { host: string; port: number; setting: string },
): Promise<Listening> {
  const { promise, resolve, reject } = Promise.withResolvers<void>()
  server.once('error', (error: NodeJS.ErrnoException) => reject(listenError(error, at)))
  server.listen(at.port, at.host, resolve)
  await promise
  server.removeAllListeners('error')
  const address = server.address()
  const port = typeof address === 'object' && address ? address.port : at.port
  return {
    port,
    url: formatServerUrl(server, at.host, port),
    stop: (graceMs) => stopServer(server, graceMs),
  }
}

/** A one-line error for the operator when a listener cannot start. */
export function listenError(
  error: NodeJS.ErrnoException,
  at: { host: string; port: number; setting: string },
): Error {
  const { code } = error
  const isHostWrong = code === 'EADDRNOTAVAIL' || code === 'ENOTFOUND' || code === 'EAI_AGAIN'
  const why =
    code === 'EADDRINUSE'
      ? 'is already in use'
      : code === 'EACCES'
        ? 'needs more rights'
        : `cannot be opened (${code ?? error.message})`
  const cure = isHostWrong
    ? `${at.host} is not an address of this machine`
    : `set ${at.setting} to another port`
  return new Error(`port ${at.port} on ${at.host} ${why}; ${cure}`, { cause: error })
}

/** The URL of a listening server. */
export const formatServerUrl = (server: Server, host: string, port: number): string =>
  `${server instanceof TlsServer ? 'https' : 'http'}://${hostForUrl(host)}:${port}`

export const hostForUrl = (host: string): string =>
  host === '0.0.0.0' || host === '::' ? '127.0.0.1' : host.includes(':') ? `[${host}]` : host

async function stopServer(server: Server, graceMs: number): Promise<void> {
  if (!server.listening) return
  const { promise, resolve } = Promise.withResolvers<void>()
  server.close(() => resolve())
  server.closeIdleConnections()
  // Otherwise a connection whose last request was just answered stays open for another request.
  const sweep = setInterval(() => server.closeIdleConnections(), 20)
  const timer = setTimeout(() => cutConnections(server), graceMs)
  await promise
  clearInterval(sweep)
  clearTimeout(timer)
}

/**
 * State of a part of a process. `ok`: the part answers. `degraded`: the process works without the
 * part, or does less. `unavailable`: the process cannot do its work.
 */
export type PartState = 'ok' | 'degraded' | 'unavailable'

/** The state of each part by name. */
export type Parts = Readonly<Record<string, PartState>>

export type Readiness = () => Promise<Parts>

const states: readonly PartState[] = ['ok', 'degraded', 'unavailable']

/**
 * Merges the parts of processes that run as one. If several have a part of the same name, the worst
 * state wins.
 */
export function mergeParts(all: readonly Parts[]): Parts {
  const merged = new Map<string, PartState>()
  for (const [name, state] of all.flatMap((parts) => Object.entries(parts))) {
    const before = merged.get(name) ?? 'ok'
    merged.set(name, states.indexOf(state) > states.indexOf(before) ? state : before)
  }
  return Object.fromEntries(merged)
}

/**
 * States of parts that either answer or do not. The process cannot work without the `essential`
 * parts.
 */
export const partStates = (
  answers: Readonly<Record<string, boolean>>,
  essential: readonly string[],
): Parts =>
  Object.fromEntries(
    Object.entries(answers).map(([name, answers]) => [
      name,
      answers ? 'ok' : essential.includes(name) ? 'unavailable' : 'degraded',
    ]),
  )

/** Reads a state that another process sent. A state unknown to this version becomes `degraded`. */
export const toPartState = (text: string): PartState =>
  order.find((state) => state === text) ?? 'degraded'

const order: readonly PartState[] = ['unavailable', 'degraded', 'ok']

/**
 * The response of /readyz: the worst state of all parts, and each part. Status 503 only if the
 * process cannot do its work.
 */
export function readinessAnswer(parts: Parts): { readonly code: number; readonly text: string } {
  const states = Object.values(parts)
  const status = order.find((state) => states.includes(state)) ?? 'ok'
  return {
    code: status === 'unavailable' ? 503 : 200,
    text: JSON.stringify({ status, parts }),
  }
}

const maxAdminConnections = 200

/** The admin listener of each process: /metrics, /healthz (alive), /readyz (able to work). */
export function createAdminServer({
  metrics,
  ready,
}: {
  metrics: readonly Metrics[]
  ready: Readiness
}): Server {
  const server = createServer((request, response) => {
    const respond = (status: number, type: string, body: string): void => {
      response.writeHead(status, { 'content-type': type, 'cache-control': 'no-store' }).end(body)
    }
    const routes: Record<string, () => Promise<void>> = {
      '/healthz': async () => respond(200, 'text/plain', 'ok\n'),
      '/readyz': async () => {
        const { code, text } = readinessAnswer(await ready())
        respond(code, 'application/json', text)
      },
      '/metrics': async () => {
        const texts = await Promise.all(metrics.map((registry) => registry.metrics()))
        respond(200, 'text/plain; version=0.0.4; charset=utf-8', mergeExpositions(texts))
      },
    }
    const route = request.method === 'GET' ? routes[request.url?.split('?')[0] ?? ''] : undefined
    if (!route) return respond(404, 'text/plain', 'not found; try /metrics, /healthz or /readyz\n')
    route().catch(() => respond(500, 'text/plain', 'failed\n'))
  })
  boundConnections(server, { max: maxAdminConnections, maxPerAddress: null })
  return server
}

// Three registries of one process share a page. A metric must have one HELP, one TYPE and all its
// samples together.
function mergeExpositions(texts: readonly string[]): string {
  const families = new Map<string, string[]>()
  for (const block of texts.join('\n').split(/\n(?=# HELP )/)) {
    const [help = '', type = '', ...samples] = block.split('\n').filter(Boolean)
    const family = families.get(help) ?? [help, type]
    families.set(help, family.concat(samples))
  }
  return [...families.values()].map((lines) => lines.join('\n')).join('\n\n') + '\n'
}

/** A client's id and secret, as sent. */
export interface BasicPair {
  readonly id: string
  readonly secret: string
}

/**
 * The id and secret in a Basic value, split at the first colon (RFC 7617) and form-decoded (RFC
 * 6749 section 2.3.1). Some clients do not encode them, so if the raw and the decoded pair differ,
 * both are returned, the raw one first. Returns an empty list if the text holds no pair.
 */
export function basicPairs(text: string): BasicPair[] {
  const colon = text.indexOf(':')
  if (colon <= 0 || colon === text.length - 1) return []
  const raw = { id: text.slice(0, colon), secret: text.slice(colon + 1) }
  const decoded = { id: formDecode(raw.id), secret: formDecode(raw.secret) }
  return decoded.id === raw.id && decoded.secret === raw.secret ? [raw] : [raw, decoded]
}

function formDecode(text: string): string {
  try {
    return decodeURIComponent(text.replaceAll('+', ' '))
  } catch {
    return text
  }
}
