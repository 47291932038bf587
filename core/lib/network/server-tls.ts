import { readFileSync, statSync } from 'node:fs'
import type { Server as PlainServer } from 'node:http'
import type { Socket } from 'node:net'
import type { RequestListener, ServerOptions } from 'node:http'
import { createServer as createPlain } from 'node:http'
import { createServer as createSecure } from 'node:https'
import type { EnvReader } from '../env.ts'
import { requireUsable } from '../files/certificate.ts'
import type { Log } from '../log.ts'
import { unusableFile, watchFiles } from '../watch-files.ts'

/** Paths of PEM files. */
export interface CertificateFiles {
  readonly cert: string
  readonly key: string
}

/** Certificate of the public listeners; undefined for plain HTTP. */
export function readCertificateFiles(env: EnvReader): CertificateFiles | undefined {
  const cert = env.optional('TLS_CERT_FILE', {
    meaning:
      'PEM file with the certificate chain of the public listeners and the sidecar, which then serve HTTPS only. A replaced file is used within some seconds.',
  })
  const key = env.optional('TLS_KEY_FILE', {
    meaning: 'PEM file with the private key of TLS_CERT_FILE.',
  })
  if (cert !== undefined && key !== undefined) return { cert, key }
  if (cert !== undefined || key !== undefined)
    env.problem('TLS_CERT_FILE and TLS_KEY_FILE must be set together; set both or neither')
  return undefined
}

const maxBytes = 1024 * 1024

/**
 * Reads the certificate and its key. Throws a one-line error that names the setting if a file
 * cannot be used, the key is another certificate's, or the certificate is not valid at `now`.
 */
function loadCertificate({ cert, key }: CertificateFiles, now: Date) {
  const chain = read('TLS_CERT_FILE', cert)
  const secret = read('TLS_KEY_FILE', key)
  requireUsable(
    { setting: 'TLS_CERT_FILE', path: cert, content: chain },
    { setting: 'TLS_KEY_FILE', path: key, content: secret },
    now,
  )
  return { cert: chain, key: secret }
}

function read(setting: string, path: string): Buffer {
  try {
    if (statSync(path).size > maxBytes) throw new Error('it is larger than 1 MiB')
    return readFileSync(path)
  } catch (error) {
    throw unusableFile(setting, path, error)
  }
}

const handshakeMs = 10_000

export interface WebServerOptions {
  readonly server: ServerOptions
  /** Undefined for plain HTTP. */
  readonly certificate: CertificateFiles | undefined
  readonly log: Log
}

/**
 * Creates an HTTP server, or an HTTPS server that uses replaced files without a restart. Throws one
 * clear error for files that cannot be used.
 */
export function createWebServer(
  { server: options, certificate, log }: WebServerOptions,
  handler: RequestListener,
): PlainServer {
  if (!certificate) return createPlain(options, handler)
  const server = createSecure(
    {
      ...options,
      ...loadCertificate(certificate, new Date()),
      minVersion: 'TLSv1.2',
      handshakeTimeout: handshakeMs,
    },
    handler,
  )
  keepSockets(server)
  // Node leaves a failed handshake to listeners of clientError, which have no keys to answer with.
  server.on('tlsClientError', (_error, socket) => void socket.destroy())
  const unwatch = watchFiles([certificate.cert, certificate.key], () => {
    try {
      server.setSecureContext({
        ...loadCertificate(certificate, new Date()),
        minVersion: 'TLSv1.2',
      })
      log.info({ file: certificate.cert }, 'the certificate of the listener was read again')
    } catch (error) {
      log.error({ err: error }, 'the new certificate cannot be used; the old one stays in use')
    }
  })
  return server.on('close', unwatch)
}

const socketsOf = new WeakMap<PlainServer, Set<Socket>>()

function keepSockets(server: PlainServer): void {
  const sockets = new Set<Socket>()
  socketsOf.set(server, sockets)
  server.on('connection', (socket: Socket) => {
    sockets.add(socket)
    socket.once('close', () => sockets.delete(socket))
  })
}

/**
 * Closes all connections of a server from `createWebServer`. Node alone leaves those that have not
 * finished their handshake, and waits for them.
 */
export function cutConnections(server: PlainServer): void {
  server.closeAllConnections()
  for (const socket of socketsOf.get(server) ?? []) socket.destroy()
}
