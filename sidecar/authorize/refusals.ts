import { Scope } from '../../proto/scopes.ts'

/**
 * A refusal of the webhook, with its body rendered once. Sent as HTTP 200. The statuses 480, 481
 * and 482 control the signer's clients and are never used here (docs/signer-answers.md).
 */
export interface Refusal {
  readonly status: number
  readonly code: string
  readonly body: string
  /** Length of the body in UTF-8. */
  readonly bytes: number
}

function refusal(status: number, code: string, reason: string): Refusal {
  const body = JSON.stringify({ status, reason, code })
  return { status, code, body, bytes: Buffer.byteLength(body) }
}

export const refusals = {
  missingCredential: refusal(401, 'missing_credential', 'missing credential'),
  malformedCredential: refusal(
    401,
    'missing_credential',
    'authorization must be Bearer followed by one credential',
  ),
  ambiguousCredential: refusal(
    400,
    'ambiguous_credential',
    'ambiguous authorization: two different values',
  ),
  unknownCredential: refusal(401, 'invalid_token', 'invalid credential'),
  invalidApiKey: refusal(401, 'invalid_api_key', 'invalid API key'),
  invalidToken: refusal(401, 'invalid_token', 'invalid token'),
  insufficientScope: refusal(
    403,
    'insufficient_scope',
    `the token lacks the scope ${Scope.signJob}`,
  ),
  invalidIdentity: refusal(403, 'invalid_identity', 'the credential names no usable identity'),
  proxyLimited: refusal(429, 'rate_limited', 'too many wrong proxy secrets; try again in a minute'),
  otherIdentity: refusal(403, 'invalid_identity', 'session belongs to another identity'),
  foreignSigner: refusal(
    403,
    'signer_not_bound',
    'this signer does not sign for the app of the credential',
  ),
  userInactive: refusal(403, 'user_inactive', 'user is inactive'),
  tooLarge: refusal(431, 'request_too_large', 'request headers too large'),
  invalidState: refusal(400, 'invalid_state', 'state has no readable id, number or time'),
  untypedCall: refusal(
    403,
    'untyped_call',
    'a session without a type or price is refused here; its operator can set UNTYPED_CALL_USD',
  ),
  ownerPaymentMethodRequired: refusal(
    402,
    'owner_payment_method_required',
    'the app accepts no new users until its owner can pay',
  ),
  endUserCapReached: refusal(
    403,
    'end_user_cap_reached',
    'the app has reached its cap on active end users',
  ),
  insufficientBalance: refusal(483, 'insufficient_balance', 'insufficient balance'),
  ownerDebtCeilingReached: refusal(
    483,
    'owner_debt_ceiling_reached',
    "the unpaid network cost of the app owner's apps has reached its limit; a platform admin can raise it",
  ),
  rateUnavailable: refusal(503, 'rate_unavailable', 'no exchange rate'),
  billingUnavailable: refusal(503, 'billing_unavailable', 'billing unavailable'),
  authorizationUnavailable: refusal(503, 'authorization_unavailable', 'authorization unavailable'),
  overloaded: refusal(503, 'authorization_unavailable', 'too many requests in flight'),
} as const

/**
 * Whether more money would lift the refusal. Such a refusal proves the previous call, and is
 * repeated for a second without calling core.
 */
export const isForMoney = (refusal: Refusal): boolean =>
  refusal === refusals.insufficientBalance || refusal === refusals.ownerDebtCeilingReached

/**
 * Returns the refusal for a subject without a user. `word` is core's reason, in upper or lower
 * case: one of the activation gate, or that the subject is invalid.
 */
export function refusalWithoutUser(word: string): Refusal {
  const code = word.toLowerCase()
  if (code === refusals.ownerPaymentMethodRequired.code) return refusals.ownerPaymentMethodRequired
  if (code === refusals.endUserCapReached.code) return refusals.endUserCapReached
  return refusals.invalidIdentity
}

const limitTexts: Readonly<Record<string, string>> = {
  usd_per_day: 'the USD of this day are used up',
  usd_per_session: 'the USD of this session are used up',
  calls_per_minute: 'the calls of this minute are used up',
  concurrent_sessions: 'too many sessions at the same time',
  max_price: 'the price is above the ceiling for this type and application',
}

/**
 * The refusal by a limit that owners set. `endsAt` is when the limit may allow the call again, in
 * Unix milliseconds; 0 when waiting does not help.
 */
export function limitExceeded(limit: string, endsAt: number): Refusal {
  const text = limitTexts[limit] ?? 'it is reached'
  const end = endsAt > 0 ? `, until ${new Date(endsAt).toISOString()}` : ''
  // 429 would suggest a retry, which does not help against a high price.
  const status = limit === 'max_price' ? 403 : 429
  return refusal(status, 'limit_exceeded', `limit ${limit}: ${text}${end}`)
}
