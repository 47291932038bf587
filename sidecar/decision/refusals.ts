import { Scope } from '../../proto/scopes.ts'

/**
 * A refusal of the webhook, with its body. Sent as HTTP 200. The statuses 480, 481
 * and 482 control the signer's clients and are never used here (docs/signer-answers.md).
 */
export interface Refusal {
  readonly status: number
  readonly code: string
  readonly body: string
}

function refusal(status: number, code: string, reason: string): Refusal {
  return { status, code, body: JSON.stringify({ status, reason, code }) }
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
  noPaymentMethod: refusal(
    483,
    'no_payment_method',
    'nothing is left, and the user has no payment method that can be charged',
  ),
  debtCeilingReached: refusal(
    483,
    'debt_ceiling_reached',
    'the unpaid usage of this user has reached its ceiling',
  ),
  ownerDebtCeilingReached: refusal(
    483,
    'owner_debt_ceiling_reached',
    "the account of the app's owner cannot pay for this call: nothing is left",
  ),
  ownerPaymentMethodMissing: refusal(
    483,
    'owner_debt_ceiling_reached',
    "the account of the app's owner cannot pay for this call: nothing is left, and it has no payment method that can be charged",
  ),
  ownerUnpaid: refusal(
    483,
    'owner_debt_ceiling_reached',
    "the account of the app's owner cannot pay for this call: its unpaid usage has reached its ceiling",
  ),
  rateUnavailable: refusal(503, 'rate_unavailable', 'no exchange rate'),
  billingUnavailable: refusal(503, 'billing_unavailable', 'billing unavailable'),
  authorizationUnavailable: refusal(503, 'authorization_unavailable', 'authorization unavailable'),
  overloaded: refusal(503, 'authorization_unavailable', 'too many requests in flight'),
} as const

/** The codes of all decisions: `ok` allows a call. */
export const decisionCodes: readonly string[] = [
  ...new Set(['ok', 'limit_exceeded', ...Object.values(refusals).map(({ code }) => code)]),
]

const spent: readonly Refusal[] = [
  refusals.insufficientBalance,
  refusals.noPaymentMethod,
  refusals.debtCeilingReached,
]

/** Whether the user's own account refuses, which has too little money for the call. */
export const isSpent = (refusal: Refusal | null): boolean =>
  refusal !== null && spent.includes(refusal)

const ofOwner: Readonly<Record<string, Refusal>> = {
  no_payment_method: refusals.ownerPaymentMethodMissing,
  debt_ceiling_reached: refusals.ownerUnpaid,
}
const ownerRefusals: readonly Refusal[] = [
  refusals.ownerDebtCeilingReached,
  ...Object.values(ofOwner),
]

/** Returns the refusal of the account of the app's owner. `reason` is core's; "" gives none. */
export const ownerRefusal = (reason: string): Refusal =>
  ofOwner[reason] ?? refusals.ownerDebtCeilingReached

/**
 * Whether more money would lift the refusal. Such a refusal proves the previous call, and is
 * repeated for a second without calling core.
 */
export const isForMoney = (refusal: Refusal): boolean =>
  isSpent(refusal) || ownerRefusals.includes(refusal)

/** Returns the refusal for a lack of money. `code` is core's; "" is no more than too little money. */
export const spentRefusal = (code: string): Refusal =>
  [...spent, refusals.ownerDebtCeilingReached].find((refusal) => refusal.code === code) ??
  refusals.insufficientBalance

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
