import { createSecureContext } from 'node:tls'
import type { experimental } from '@grpc/grpc-js'
import { type TlsFiles, type TlsMaterial, loadTls } from './tls.ts'
import { watchFiles } from '../watch-files.ts'

type CertificateProvider = experimental.CertificateProvider
type CaListener = Parameters<CertificateProvider['addCaCertificateListener']>[0]
type IdentityListener = Parameters<CertificateProvider['addIdentityCertificateListener']>[0]

/** The result of reading replaced files: an error if they cannot be used. */
export interface TlsReload {
  readonly error?: unknown
}

/**
 * Returns a grpc-js certificate provider for a caller of core. New connections use the current
 * files: replaced files are read again within two seconds. Unusable files change nothing, because a
 * certificate and its key are seldom replaced at the same instant. Throws a one-line error for a
 * file that cannot be read at the start.
 */
export function createTlsProvider(
  files: TlsFiles,
  onReload: (reload: TlsReload) => void,
): CertificateProvider {
  let material = load(files)
  const ofCa = new Set<CaListener>()
  const ofIdentity = new Set<IdentityListener>()
  let unwatch: (() => void) | null = null

  function reload(): void {
    try {
      material = load(files)
    } catch (error) {
      return onReload({ error })
    }
    for (const listener of ofCa) listener(caOf(material))
    for (const listener of ofIdentity) listener(identityOf(material))
    onReload({})
  }

  function watch(): void {
    const isUsed = ofCa.size + ofIdentity.size > 0
    if (isUsed) unwatch ??= watchFiles(Object.values(files), reload)
    else {
      unwatch?.()
      unwatch = null
    }
  }

  return {
    addCaCertificateListener(listener) {
      ofCa.add(listener)
      watch()
      listener(caOf(material))
    },
    removeCaCertificateListener(listener) {
      ofCa.delete(listener)
      watch()
    },
    addIdentityCertificateListener(listener) {
      ofIdentity.add(listener)
      watch()
      listener(identityOf(material))
    },
    removeIdentityCertificateListener(listener) {
      ofIdentity.delete(listener)
      watch()
    },
  }
}

function load(files: TlsFiles): TlsMaterial {
  const material = loadTls(files)
  // Throws if the certificate does not match its key.
  createSecureContext(material)
  return material
}

const caOf = ({ ca }: TlsMaterial) => (ca ? { caCertificate: ca } : null)

const identityOf = ({ cert, key }: TlsMaterial) =>
  cert && key ? { certificate: cert, privateKey: key } : null
