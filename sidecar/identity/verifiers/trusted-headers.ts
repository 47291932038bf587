import { equalSecrets } from '../../../core/lib/crypto.ts'
import type { Now } from '../../../core/lib/time.ts'
import { withoutFinalSlashes } from '../../../core/lib/text/urls.ts'
import { type HeaderMap, headerValues } from '../../authorize/request.ts'
import { refusals } from '../../authorize/refusals.ts'
import type { Verdict, Verifier } from './verifier.ts'

const no: Verdict = { kind: 'no', refusal: refusals.invalidIdentity, remember: false }
const subjectType = 'external_user_id'

const proofName = 'x-livepeer-proxy-secret'

const limited: Verdict = { kind: 'no', refusal: refusals.proxyLimited, remember: false }

export interface TrustedHeadersOptions {
  readonly issuer: string
  readonly secret: string
  /** Wrong secrets of all callers in a minute, before they get 429. */
  readonly guessesMax: number
  readonly now: Now
}

/** Whether a proxy's secret, right or wrong, stands in the headers: what is beside it, then, says who it is. */
export const hasProxySecret = (headers: HeaderMap | null): boolean =>
  singleValue(headers, proofName) !== ''

/**
 * Accepts the identity that a reverse proxy wrote into the end user's headers. The headers alone
 * prove nothing, because an end user can send them too, so the proxy's secret must stand beside
 * them.
 */
export function trustedHeadersVerifier(options: TrustedHeadersOptions): Verifier {
  const { issuer, secret } = options
  const guesses = createGuessCount(options)

  return async ({ headers }) => {
    const clientId = singleValue(headers, 'x-livepeer-client-id')
    const subject = singleValue(headers, 'x-livepeer-usage-subject')
    const proof = singleValue(headers, proofName)
    if (clientId === '' && subject === '' && proof === '') return null
    if (!equalSecrets(proof ?? '', secret) || secret === '')
      return proof !== '' && guesses.addWrong() ? limited : no
    if (!clientId || !subject || !isOurSubject(headers, issuer)) return no
    const identity = {
      issuer,
      clientId,
      externalUserId: subject,
      keyId: null,
      grants: [],
      issuedAt: null,
      expiresAt: null,
      keepUntil: 0,
    }
    return { kind: 'yes', identity, source: 'token' }
  }
}

function isOurSubject(headers: HeaderMap | null, issuer: string): boolean {
  const type = singleValue(headers, 'x-livepeer-usage-subject-type')
  const namedIssuer = singleValue(headers, 'x-livepeer-usage-issuer') ?? ''
  return (
    withoutFinalSlashes(namedIssuer) === withoutFinalSlashes(issuer) &&
    (type === '' || type === subjectType)
  )
}

// "" when absent, null when it is not one text: a header sent twice is a sign of smuggling.
function singleValue(headers: HeaderMap | null, name: string): string | null {
  const values = headers ? headerValues(headers, name) : []
  if (!values || values.length > 1) return null
  return values[0] ?? ''
}

const windowMs = 60_000

/**
 * Counts wrong secrets, of all callers together: the signer's address is not that of the guesser. The right one always
 * passes, so that guesses lock no proxy out.
 */
function createGuessCount({ guessesMax, now }: Pick<TrustedHeadersOptions, 'guessesMax' | 'now'>) {
  let endsAt = 0
  let count = 0

  /** Returns true if there are too many in this minute. */
  function addWrong(): boolean {
    const at = now().getTime()
    if (at >= endsAt) [endsAt, count] = [at + windowMs, 0]
    return ++count > guessesMax
  }

  return { addWrong }
}
