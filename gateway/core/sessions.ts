import type { Http2Session, SecureClientSessionOptions } from 'node:http2'
import { Code, ConnectError } from '@connectrpc/connect'
import { Http2SessionManager } from '@connectrpc/connect-node'
import type { CoreAddress } from '../../core/lib/core-link/address.ts'
import { type ClientTls, loadTls } from '../../core/lib/core-link/tls.ts'

export interface Pings {
  readonly pingIntervalMs: number
  readonly pingTimeoutMs: number
}

/** A connection that is lost without a sign ends after the sum of both at the latest. */
const usualPings: Pings = { pingIntervalMs: 5_000, pingTimeoutMs: 5_000 }

export interface SessionOptions extends Pick<CoreAddress, 'target' | 'tls'> {
  readonly pings?: Pings
}

/**
 * Opens connections to core, with TLS if `tls` is set. Throws a one-line error for an unreadable
 * file.
 */
export function openSessions({ target, tls, pings = usualPings }: SessionOptions) {
  const baseUrl = `${tls ? 'https' : 'http'}://${target}`
  const sessionManager = new PingedSessions(baseUrl, pings, tls && sessionOptions(tls))
  return { baseUrl, sessionManager }
}

/**
 * Pings every connection from its first request on. The manager's own pings are not used: each
 * request restarts their interval and their limit, so that under load a lost connection stays in
 * use forever; and the error of such a connection can end the process.
 */
class PingedSessions extends Http2SessionManager {
  readonly #pings: Pings
  readonly #known = new WeakSet<Http2Session>()

  constructor(baseUrl: string, pings: Pings, tls: SecureClientSessionOptions | undefined) {
    super(baseUrl, {}, tls)
    this.#pings = pings
  }

  override async request(
    ...args: Parameters<Http2SessionManager['request']>
  ): ReturnType<Http2SessionManager['request']> {
    const stream = await super.request(...args)
    const { session } = stream
    if (session && !this.#known.has(session)) {
      this.#known.add(session)
      keepPinging(session, this.#pings)
    }
    return stream
  }
}

function keepPinging(session: Http2Session, { pingIntervalMs, pingTimeoutMs }: Pings): void {
  // The manager stops listening when it opens the next connection.
  session.on('error', () => {})
  const timer = setInterval(() => {
    if (session.destroyed) return
    const late = setTimeout(() => {
      session.destroy(new ConnectError('core does not answer a ping', Code.Unavailable))
    }, pingTimeoutMs)
    late.unref()
    session.ping(() => clearTimeout(late))
  }, pingIntervalMs)
  timer.unref()
  session.once('close', () => clearInterval(timer))
}

/** Node copies the options for each connection, so the getters supply the current files. */
function sessionOptions({ files, serverName }: ClientTls): SecureClientSessionOptions {
  let material = loadTls(files)
  function read(): typeof material {
    try {
      material = loadTls(files)
    } catch {
      // The file is being replaced: keep the last valid one.
    }
    return material
  }
  return {
    get ca() {
      return read().ca
    },
    get cert() {
      return material.cert
    },
    get key() {
      return material.key
    },
    ...(serverName !== undefined && { servername: serverName }),
  }
}
