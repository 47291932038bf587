import type { SecureClientSessionOptions } from 'node:http2'
import { Http2SessionManager } from '@connectrpc/connect-node'
import type { CoreAddress } from '../../core/lib/core-link/address.ts'
import { type ClientTls, loadTls } from '../../core/lib/core-link/tls.ts'

/**
 * Opens connections to core, with TLS if `tls` is set. Throws a one-line error for an unreadable
 * file.
 */
export function openSessions({ target, tls }: Pick<CoreAddress, 'target' | 'tls'>) {
  const baseUrl = `${tls ? 'https' : 'http'}://${target}`
  const pings = { pingIntervalMs: 30_000 }
  const sessionManager = new Http2SessionManager(baseUrl, pings, tls && sessionOptions(tls))
  return { baseUrl, sessionManager }
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
