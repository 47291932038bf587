import { equalSecrets } from '../../../core/lib/crypto.ts'
import { type HeaderMap, headerValues } from '../../authorize/request.ts'
import { refusals } from '../../authorize/refusals.ts'
import type { Verdict, Verifier } from './types.ts'

const no: Verdict = { kind: 'no', refusal: refusals.invalidIdentity, remember: false }
const subjectType = 'external_user_id'
const trimmed = (url: string): string => url.replace(/\/+$/, '')

/**
 * Believes the identity that a reverse proxy wrote into the end user's headers. The headers alone
 * prove nothing, because an end user can send them too: the proxy's own secret must stand beside
 * them.
 */
export function trustedHeadersVerifier({
  issuer,
  secret,
}: {
  issuer: string
  secret: string
}): Verifier {
  return async ({ headers }) => {
    const clientId = only(headers, 'x-livepeer-client-id')
    const subject = only(headers, 'x-livepeer-usage-subject')
    const proof = only(headers, 'x-livepeer-proxy-secret')
    if (clientId === '' && subject === '' && proof === '') return null
    if (!equalSecrets(proof ?? '', secret) || secret === '') return no
    const type = only(headers, 'x-livepeer-usage-subject-type')
    if (trimmed(only(headers, 'x-livepeer-usage-issuer') ?? '') !== trimmed(issuer)) return no
    if (!clientId || !subject || (type !== '' && type !== subjectType)) return no
    const identity = {
      issuer,
      clientId,
      externalUserId: subject,
      userId: null,
      keyId: null,
      issuedAt: null,
      expiresAt: null,
      keepUntil: 0,
    }
    return { kind: 'yes', identity, source: 'local' }
  }
}

// "" when absent, null when it is not one text: a header sent twice is a sign of smuggling.
function only(headers: HeaderMap | null, name: string): string | null {
  const values = headers ? headerValues(headers, name) : []
  if (!values || values.length > 1) return null
  return values[0] ?? ''
}
