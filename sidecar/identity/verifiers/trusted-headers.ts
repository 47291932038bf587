import { type Reloadable, currentValue } from '../../../core/lib/settings/reloadable.ts'
import { equalSecrets } from '../../../core/lib/crypto.ts'
import type { Now } from '../../../core/lib/time.ts'
import { withoutFinalSlashes } from '../../../core/lib/text/urls.ts'
import { type HeaderMap, headerValues } from '../../decision/request.ts'
import { refusals } from '../../decision/refusals.ts'
import type { Verdict, Verifier } from './verifier.ts'

const no: Verdict = { kind: 'no', refusal: refusals.invalidIdentity, remember: false }
const subjectType = 'external_user_id'

const proofName = 'x-livepeer-proxy-secret'

const limited: Verdict = { kind: 'no', refusal: refusals.proxyLimited, remember: false }

export interface TrustedHeadersOptions {
  readonly issuer: string
  readonly secret: Reloadable<string>
  /** Wrong secrets per minute from all callers together, before they get 429. */
  readonly guessesMax: Reloadable<number>
  readonly now: Now
}

/** Whether the headers contain a proxy's secret, right or wrong. If so, they identify the user. */
export const hasProxySecret = (headers: HeaderMap | null): boolean =>
  singleValue(headers, proofName) !== ''

/**
 * Accepts the identity that a reverse proxy wrote into the end user's headers. Requires the proxy's
 * secret, because an end user can send the other headers, too.
 */
export function trustedHeadersVerifier(options: TrustedHeadersOptions): Verifier {
  const { issuer, secret } = options
  const guesses = createGuessCount(options)

  return async ({ headers }) => {
    const clientId = singleValue(headers, 'x-livepeer-client-id')
    const subject = singleValue(headers, 'x-livepeer-usage-subject')
    const proof = singleValue(headers, proofName)
    if (clientId === '' && subject === '' && proof === '') return null
    const expected = currentValue(secret)
    if (!equalSecrets(proof ?? '', expected) || expected === '')
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

// Returns "" when the header is absent, null when it has several values or is not text: a header
// sent twice is a sign of smuggling.
function singleValue(headers: HeaderMap | null, name: string): string | null {
  const values = headers ? headerValues(headers, name) : []
  if (!values || values.length > 1) return null
  return values[0] ?? ''
}

const windowMs = 60_000

/**
 * Counts wrong secrets of all callers together, because the guesser's address is unknown: only the
 * signer's is visible. The right secret always passes, so that guesses lock no proxy out.
 */
function createGuessCount({ guessesMax, now }: Pick<TrustedHeadersOptions, 'guessesMax' | 'now'>) {
  let endsAt = 0
  let count = 0

  /** Returns true if there are too many in this minute. */
  function addWrong(): boolean {
    const at = now().getTime()
    if (at >= endsAt) [endsAt, count] = [at + windowMs, 0]
    return ++count > currentValue(guessesMax)
  }

  return { addWrong }
}
