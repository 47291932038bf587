import { once } from 'node:events'
import { type AddressInfo, type Server, type Socket, createServer } from 'node:net'
import { type TLSSocket, createServer as createTlsServer } from 'node:tls'
import { listenError } from '../lib/http.ts'
import type { Log } from '../lib/log.ts'
import { type ServerTls, loadTls, tlsAdvice } from '../lib/core-link/tls.ts'
import { watchFiles } from '../lib/watch-files.ts'

export interface ListenerOptions {
  readonly host: string
  readonly port: number
  readonly tls?: ServerTls | undefined
  readonly log: Log
  /** Receives an accepted connection before any TLS handshake. */
  readonly onAccept: (socket: Socket) => void
  /** Receives a connection after its TLS handshake, if there is one. */
  readonly onConnection: (socket: Socket) => void
}

export interface Listener {
  readonly port: number
  /** Stops accepting connections. Resolves when the existing ones have ended. */
  close(): Promise<void>
}

const handshakeMs = 10_000

/**
 * Listens for connections to core. Rejects with one clear error for an occupied port or unusable
 * certificates.
 */
export async function openListener(options: ListenerOptions): Promise<Listener> {
  const { host, port, tls } = options
  const { server, unwatch } = tls ? createSecureServer(options, tls) : createPlainServer(options)
  server.prependListener('connection', options.onAccept)
  const { promise, resolve, reject } = Promise.withResolvers<void>()
  server.once('error', (error: NodeJS.ErrnoException) =>
    reject(listenError(error, { host, port, setting: 'CORE_PORT' })),
  )
  server.listen(port, host, resolve)
  await promise
  server.removeAllListeners('error')
  const address = server.address()
  return {
    port: isAddress(address) ? address.port : port,
    close: async () => {
      unwatch()
      const closed = once(server, 'close')
      server.close()
      await closed
    },
  }
}

const isAddress = (address: AddressInfo | string | null): address is AddressInfo =>
  typeof address === 'object' && address !== null

function createPlainServer({ onConnection }: ListenerOptions) {
  const server: Server = createServer({ noDelay: true }, onConnection)
  return { server, unwatch: () => {} }
}

function createSecureServer({ onConnection, log }: ListenerOptions, tls: ServerTls) {
  const { files, clientAuth } = tls
  const isRequired = clientAuth === 'require'
  const protocol = {
    requestCert: isRequired,
    rejectUnauthorized: isRequired,
    ALPNProtocols: ['h2'],
    handshakeTimeout: handshakeMs,
    noDelay: true,
  }
  const server = createTlsServer({ ...loadTls(files), ...protocol }, onConnection)
  server.on('tlsClientError', createFailureLog(log))
  const unwatch = watchFiles(Object.values(files), () => {
    try {
      server.setSecureContext(loadTls(files))
      log.info('the certificates of core were read again')
    } catch (error) {
      log.error(
        { err: error },
        'the new certificates of core cannot be used; the old ones stay in use',
      )
    }
  })
  return { server, unwatch }
}

const quietMs = 1_000

/** Logs failed handshakes with advice, at most one per second because strangers can cause them. */
function createFailureLog(log: Log) {
  let quietUntil = 0
  let suppressed = 0
  return (error: NodeJS.ErrnoException, socket: TLSSocket): void => {
    const at = performance.now()
    if (at < quietUntil) {
      suppressed++
      return
    }
    // Set if the caller's certificate was rejected. Node reports this nowhere else.
    const refusal = socket.authorizationError ? String(socket.authorizationError) : ''
    const code = refusal === '' ? (error.code ?? error.message) : refusal
    const address = socket.remoteAddress
    log.warn({ code, address, suppressed }, `TLS handshake failed: ${tlsAdvice(code) ?? code}`)
    quietUntil = at + quietMs
    suppressed = 0
  }
}
