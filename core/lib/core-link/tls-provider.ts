import { createSecureContext } from 'node:tls'
import type { experimental } from '@grpc/grpc-js'
import { type TlsFiles, type TlsMaterial, loadTls, watchTls } from './tls.ts'

type CertificateProvider = experimental.CertificateProvider
type CaListener = Parameters<CertificateProvider['addCaCertificateListener']>[0]
type IdentityListener = Parameters<CertificateProvider['addIdentityCertificateListener']>[0]

/** What became of files that were replaced. */
export interface TlsReload {
  readonly error?: unknown
}

/**
 * The files of a caller of core for grpc-js, which connects with them as they are now: those that were replaced are read
 * again within two seconds. Files that cannot be used change nothing: a certificate and its key are seldom replaced at
 * one instant. Throws one clear line for a file that cannot be read at first.
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
    if (isUsed) unwatch ??= watchTls(files, reload)
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
  // Throws for a certificate that does not fit its key.
  createSecureContext(material)
  return material
}

const caOf = ({ ca }: TlsMaterial) => (ca ? { caCertificate: ca } : null)

const identityOf = ({ cert, key }: TlsMaterial) =>
  cert && key ? { certificate: cert, privateKey: key } : null
