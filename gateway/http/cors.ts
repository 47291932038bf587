import type { FastifyReply, FastifyRequest } from 'fastify'
import { LRUCache } from 'lru-cache'
import type { Core } from '../core/client.ts'

const loopbackNames = ['localhost', '127.0.0.1', '[::1]']

/**
 * Returns the origins of our own pages: that of PUBLIC_URL and, if it is http on loopback, the
 * other loopback names with the same port.
 */
export function ownOrigins(publicUrl: string): string[] {
  const { origin, protocol, hostname, port } = new URL(publicUrl)
  if (protocol !== 'http:' || !loopbackNames.includes(hostname)) return [origin]
  return loopbackNames.map((name) => `http://${name}${port && `:${port}`}`)
}

export interface CorsDeps {
  readonly core: Core
  readonly publicUrl: string
  /** Origins that may call routes outside any app. */
  readonly origins: readonly string[]
}

const methods = 'GET, POST, PUT, PATCH, DELETE, OPTIONS'
const requestHeaders =
  'Authorization, Content-Type, Accept, Idempotency-Key, If-None-Match, Last-Event-ID, X-Correlation-Id'
const exposedHeaders =
  'X-Correlation-Id, ETag, Retry-After, RateLimit-Limit, RateLimit-Remaining, RateLimit-Reset, WWW-Authenticate'
const maxAgeSeconds = '86400'
const rememberMs = 60_000
const originMax = 260

const appPath = /^\/api\/v1\/(?:builder\/)?apps\/(?<clientId>[^/?]+)/
const oidcPath = /^\/(?:api\/v1\/oidc|\.well-known)\//

/**
 * Decides which origins may read our answers in a browser (docs/identity.md): on an app's routes
 * the origins registered by the app, on OIDC routes those of any app, elsewhere the deployment's.
 * Credentials are never allowed, so a browser sends no cookie.
 */
export function createCors({ core, publicUrl, origins }: CorsDeps) {
  const own = ownOrigins(publicUrl)
  const remembered = new LRUCache<string, { allowed: boolean }>({ max: 10_000, ttl: rememberMs })

  /**
   * Writes the headers. Returns true if the request was a preflight, which it has answered.
   * Synchronous if there is no Origin.
   */
  function answer(request: FastifyRequest, reply: FastifyReply): boolean | Promise<boolean> {
    void reply.header('vary', 'Origin')
    const { origin } = request.headers
    return origin === undefined ? false : answerTo(origin, request, reply)
  }

  async function answerTo(
    origin: string,
    request: FastifyRequest,
    reply: FastifyReply,
  ): Promise<boolean> {
    const namesMethod = request.headers['access-control-request-method'] !== undefined
    const preflight = request.method === 'OPTIONS' && namesMethod
    if (await isAllowed(request, origin)) allow(reply, { origin, preflight })
    if (preflight) void reply.code(204).send()
    return preflight
  }

  async function isAllowed(request: FastifyRequest, origin: string): Promise<boolean> {
    if (own.includes(origin)) return true
    if (!isOrigin(origin)) return false
    const path = request.raw.url ?? ''
    const clientId = appPath.exec(path)?.groups?.['clientId']
    if (clientId === undefined && !oidcPath.test(path)) return origins.includes(origin)
    return mayCall(request, { origin, clientId })
  }

  async function mayCall(
    { correlationId }: FastifyRequest,
    call: { origin: string; clientId: string | undefined },
  ) {
    const key = `${call.clientId ?? '*'} ${call.origin}`
    const known = remembered.get(key)
    if (known) return known.allowed
    try {
      const { allowed } = await core.callsFor({ correlationId }).management.checkOrigin(call)
      remembered.set(key, { allowed })
      return allowed
    } catch {
      // Core is unavailable, so the request itself will fail.
      return false
    }
  }

  return { answer }
}

export type Cors = ReturnType<typeof createCors>

/** Whether the text is scheme, host and port exactly as a browser sends them; never `null`. */
const isOrigin = (text: string): boolean =>
  text.length <= originMax && URL.canParse(text) && new URL(text).origin === text && text !== 'null'

function allow(
  reply: FastifyReply,
  { origin, preflight }: { origin: string; preflight: boolean },
): void {
  void reply.header('access-control-allow-origin', origin)
  if (!preflight) return void reply.header('access-control-expose-headers', exposedHeaders)
  void reply.headers({
    'access-control-allow-methods': methods,
    'access-control-allow-headers': requestHeaders,
    'access-control-max-age': maxAgeSeconds,
  })
}
