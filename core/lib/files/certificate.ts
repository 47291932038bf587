import { X509Certificate, createPrivateKey } from 'node:crypto'
import { unusableFile } from '../watch-files.ts'

/** A file with its content, and the setting that names it. */
export interface PemFile {
  readonly setting: string
  readonly path: string
  readonly content: Buffer
}

/**
 * Throws a one-line error that names the setting if a file is not PEM of its kind, the key is
 * another certificate's, or the certificate is not valid at `now`.
 */
export function requireUsable(cert: PemFile, key: PemFile, now: Date): void {
  const certificate = readCertificate(cert)
  const privateKey = parse(() => createPrivateKey(key.content), key)
  if (!certificate.checkPrivateKey(privateKey))
    throw new Error(`${key.setting}: ${key.path} is not the key of the certificate in ${cert.path}`)
  if (certificate.validToDate <= now)
    throw new Error(
      `${cert.setting}: the certificate in ${cert.path} expired at ${certificate.validToDate.toISOString()}; renew it`,
    )
  if (certificate.validFromDate > now)
    throw new Error(
      `${cert.setting}: the certificate in ${cert.path} is valid from ${certificate.validFromDate.toISOString()}; check the clock`,
    )
}

/** Returns the first certificate in a file. Throws a one-line error if there is none. */
export const readCertificate = (file: PemFile): X509Certificate =>
  parse(() => new X509Certificate(file.content), file)

function parse<T>(work: () => T, { setting, path }: PemFile): T {
  try {
    return work()
  } catch (error) {
    const cause = new Error('it is not PEM of the right kind', { cause: error })
    throw unusableFile(setting, path, cause)
  }
}
