import { readFileSync } from 'node:fs'
import type { EnvReader } from '../env.ts'
import { readCertificate, requireUsable } from '../files/certificate.ts'
import { unusableFile } from '../watch-files.ts'

/** Paths of PEM files. */
export interface TlsFiles {
  readonly cert?: string | undefined
  readonly key?: string | undefined
  /** Certificates of the authorities that must have issued the other side's certificate. */
  readonly ca?: string | undefined
}

/** Contents of the files. */
export type TlsMaterial = { readonly [Name in keyof TlsFiles]?: Buffer }

/** Core's own certificate, and whether callers need one. */
export interface ServerTls {
  readonly files: TlsFiles
  readonly clientAuth: 'none' | 'require'
}

/** TLS settings of a process that calls core. */
export interface ClientTls {
  readonly files: TlsFiles
  /** The name in core's certificate, if it differs from the host of CORE_TARGET. */
  readonly serverName?: string | undefined
}

const meanings = {
  cert: "PEM file with the certificate chain of this process: core's server certificate, or the client certificate that another process presents to core.",
  key: 'PEM file with the private key of CORE_TLS_CERT.',
  ca: 'PEM file with the certificate authorities of the other side. At a caller it turns TLS on; at core it allows the verification of callers.',
} as const

/** Reads `CORE_TLS_CERT`, `CORE_TLS_KEY` and `CORE_TLS_CA`, which core and its callers share. */
function readTlsFiles(env: EnvReader): TlsFiles {
  const cert = env.optional('CORE_TLS_CERT', { meaning: meanings.cert })
  const key = env.optional('CORE_TLS_KEY', { meaning: meanings.key })
  const ca = env.optional('CORE_TLS_CA', { meaning: meanings.ca })
  if ((cert === undefined) !== (key === undefined))
    env.problem('CORE_TLS_CERT and CORE_TLS_KEY must be set together; set both or neither')
  return { cert, key, ca }
}

/** Returns undefined without a certificate: core then serves plain text. */
export function readServerTls(env: EnvReader): ServerTls | undefined {
  const files = readTlsFiles(env)
  const clientAuth = env.choice('CORE_TLS_CLIENT_AUTH', {
    fallback: 'none',
    choices: ['none', 'require'],
    meaning: 'require: core serves only callers with a certificate of an authority in CORE_TLS_CA.',
  })
  if (clientAuth === 'require' && files.ca === undefined)
    env.problem('CORE_TLS_CLIENT_AUTH=require needs CORE_TLS_CA')
  if (files.cert !== undefined) return { files, clientAuth }
  if (clientAuth === 'require')
    env.problem('CORE_TLS_CLIENT_AUTH=require needs CORE_TLS_CERT and CORE_TLS_KEY')
  return undefined
}

/** Returns undefined without CORE_TLS_CA: the process then calls core in plain text. */
export function readClientTls(env: EnvReader): ClientTls | undefined {
  const files = readTlsFiles(env)
  const serverName = env.optional('CORE_TLS_SERVER_NAME', {
    meaning: "Name in core's certificate, if it differs from the host of CORE_TARGET.",
  })
  if (files.ca !== undefined) return { files, serverName }
  if (files.cert !== undefined)
    env.problem(
      "CORE_TLS_CERT needs CORE_TLS_CA to verify core's certificate; without it the connection is not encrypted",
    )
  return undefined
}

/** Reads the files. Throws a one-line error for a file that cannot be used, or an expired certificate. */
export function loadTls(files: TlsFiles): TlsMaterial {
  const read = (setting: string, path: string | undefined): Buffer | undefined => {
    if (path === undefined) return undefined
    try {
      const text = readFileSync(path)
      if (!text.includes('-----BEGIN ')) throw new Error('it is not PEM')
      return text
    } catch (error) {
      throw unusableFile(setting, path, error)
    }
  }
  const [cert, key] = [read('CORE_TLS_CERT', files.cert), read('CORE_TLS_KEY', files.key)]
  const ca = read('CORE_TLS_CA', files.ca)
  if (cert && key)
    requireUsable(
      { setting: 'CORE_TLS_CERT', path: files.cert ?? '', content: cert },
      { setting: 'CORE_TLS_KEY', path: files.key ?? '', content: key },
      new Date(),
    )
  if (ca) readCertificate({ setting: 'CORE_TLS_CA', path: files.ca ?? '', content: ca })
  return { ...(cert && { cert }), ...(key && { key }), ...(ca && { ca }) }
}

/**
 * Advice to the operator for a failed handshake, by the code or text of its error; undefined for
 * other errors.
 */
export function tlsAdvice(text: string): string | undefined {
  return advice.find(([pattern]) => pattern.test(text))?.[1]
}

const advice: readonly (readonly [RegExp, string])[] = [
  [
    /CERTIFICATE_REQUIRED|DID_NOT_RETURN_A_CERTIFICATE|certificate required/i,
    'core requires a client certificate: set CORE_TLS_CERT and CORE_TLS_KEY at the process that calls core',
  ],
  [
    /CERT_HAS_EXPIRED|CERTIFICATE_EXPIRED|certificate (has )?expired/i,
    'a certificate has expired: renew it',
  ],
  [/CERT_NOT_YET_VALID/i, 'a certificate is not valid yet: check the clocks'],
  [
    /ERR_TLS_CERT_ALTNAME_INVALID|does not match certificate/i,
    "core's certificate names another host: set CORE_TLS_SERVER_NAME to a name in it",
  ],
  [
    /UNKNOWN_CA|unknown ca|UNABLE_TO_VERIFY|UNABLE_TO_GET_ISSUER|SELF_SIGNED|unable to (verify|get)|self[- ]signed/i,
    'the certificate is not from an authority in CORE_TLS_CA',
  ],
  [
    /HTTP_REQUEST|WRONG_VERSION_NUMBER|wrong version number|PACKET_LENGTH|BAD_RECORD|UNSUPPORTED_PROTOCOL/i,
    'only one side uses TLS: set CORE_TLS_CERT at core and CORE_TLS_CA at the process that calls core',
  ],
]
