/** What a person needs to know when the broker cannot be reached: which setting to look at. */

const trust =
  "its certificate is not signed by an authority that is trusted here; name the authority's file in KAFKA_CA_FILE"
const login = 'it refuses KAFKA_USER with KAFKA_PASSWORD'
const noTls = 'it does not speak TLS; KAFKA_TLS is on'
const wantsTls = 'it wants TLS; KAFKA_TLS is off'

/** By the code of an error, ours, Node's or OpenSSL's. */
const byCode: Readonly<Record<string, string>> = {
  SASL_AUTHENTICATION_FAILED: login,
  UNSUPPORTED_SASL_MECHANISM: 'it does not offer SASL/PLAIN',
  ILLEGAL_SASL_STATE: 'it takes no user name on this port; KAFKA_USER is set',
  DEPTH_ZERO_SELF_SIGNED_CERT: trust,
  SELF_SIGNED_CERT_IN_CHAIN: trust,
  UNABLE_TO_VERIFY_LEAF_SIGNATURE: trust,
  UNABLE_TO_GET_ISSUER_CERT: trust,
  UNABLE_TO_GET_ISSUER_CERT_LOCALLY: trust,
  CERT_HAS_EXPIRED: 'its certificate has expired',
  ERR_TLS_CERT_ALTNAME_INVALID: 'its certificate is for another name than KAFKA_BROKERS says',
  ECONNREFUSED: 'nothing listens at KAFKA_BROKERS',
  ENOTFOUND: 'KAFKA_BROKERS names a host that is not known',
  EAI_AGAIN: 'KAFKA_BROKERS names a host that is not known',
}

const byMessage: readonly (readonly [RegExp, string])[] = [
  [/Broker requires TLS/, wantsTls],
  [/TLS handshake failed/, noTls],
  // A broker that wants TLS, or a login, says no more than this.
  [
    /Connection closed/,
    'it closed the connection; where that lasts: does it want KAFKA_TLS=on, or KAFKA_USER?',
  ],
]

const depthMax = 10

/** One line about the deepest known cause of `error`, or its own first line. Never has a credential in it. */
export function kafkaProblem(error: unknown): string {
  const chain = causesOf(error)
  const known = chain
    .toReversed()
    .map(nameOf)
    .find((name) => name !== undefined)
  return known === undefined ? firstLine(chain[0]) : `the broker cannot be used: ${known}`
}

function causesOf(error: unknown, depth = 0): Error[] {
  if (!(error instanceof Error) || depth > depthMax) return []
  const parts: unknown[] = error instanceof AggregateError ? error.errors : []
  return [
    error,
    ...causesOf(error.cause, depth + 1),
    ...parts.flatMap((part) => causesOf(part, depth + 1)),
  ]
}

function nameOf(error: Error): string | undefined {
  const codes: unknown[] = ['apiId', 'code'].map(
    (name) => Object.getOwnPropertyDescriptor(error, name)?.value,
  )
  for (const code of codes) {
    if (typeof code === 'string' && Object.hasOwn(byCode, code)) return byCode[code]
  }
  return byMessage.find(([pattern]) => pattern.test(error.message))?.[1]
}

const firstLine = (error: Error | undefined): string => error?.message.split('\n')[0] ?? 'unknown'
