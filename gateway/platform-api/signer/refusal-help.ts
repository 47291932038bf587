import { refusalCodes } from './decision-schemas.ts'

/** Help texts for the signer webhook's refusals (docs/signer-answers.md, Statuses). */

type RefusalCode = (typeof refusalCodes)[keyof typeof refusalCodes][number]

export interface RefusalHelp {
  readonly code: string
  readonly statuses: readonly number[]
  readonly help: string
}

const helps: Readonly<Record<RefusalCode, string>> = {
  ambiguous_credential: 'The call has two different `Authorization` values. Send one.',
  invalid_state: 'The state has no readable id, number or time. Check the version of the signer.',
  missing_credential: 'The call has no credential, or not `Bearer` and one token.',
  invalid_api_key: 'The key is unknown, revoked or mistyped. Create a new one.',
  invalid_token:
    'The token has expired, was revoked, has another purpose, or is from another issuer. Get a new one.',
  owner_payment_method_required:
    "The user is new, and the app may have no new users until its owner can pay. Add a payment method for the app's owner.",
  end_user_cap_reached:
    'The user is new, and the app has its maximum number of active users. Deactivate users, or request a higher cap from the operator.',
  insufficient_scope: 'The token lacks the scope `sign:job`.',
  invalid_identity:
    'The identity is missing or unusable, the app is unknown, or the session belongs to another identity.',
  signer_not_bound: "The signer is not bound to the user's app. The operator can bind it.",
  user_inactive: 'The user was deactivated. Activate the user again.',
  untyped_call:
    'The session has no type or no usable price, and the operator has not set `UNTYPED_CALL_USD`.',
  limit_exceeded:
    'A limit of the user or key is reached, or the price is above its ceiling. The reason names the limit and its end.',
  rate_limited:
    'Too many wrong proxy secrets arrived in this minute. Correct the secret, and try again later.',
  request_too_large: 'The body is above 1 MiB.',
  insufficient_balance:
    "The user's remaining money is less than the call can cost. Give credit, or change the plan.",
  no_payment_method:
    'Nothing is left, and the plan would let the user spend on credit with a payment method that can be charged. Add one, or give credit.',
  debt_ceiling_reached:
    "The user's unpaid usage, with what the call can cost, exceeds its ceiling. It is paid by the next collection; or give credit, or set a higher ceiling.",
  owner_debt_ceiling_reached:
    "The account of the app's owner, which pays for the calls of all its apps, has too little left. The owner can top up, add a payment method, or take an owner plan.",
  rate_unavailable:
    'The last exchange rate is too old, so the call cannot be priced. The operator can set one: `./tollgate rate set`.',
  billing_unavailable:
    'Core is unavailable, and lent money does not cover the call. Try again later.',
  authorization_unavailable: 'The identity cannot be determined now. Try again later.',
}

/** Every code once, with its statuses. */
export const refusalHelp: readonly RefusalHelp[] = Object.entries(helps).map(([code, help]) => ({
  code,
  statuses: Object.entries(refusalCodes).flatMap(([status, codes]) =>
    codes.some((each) => each === code) ? [Number(status)] : [],
  ),
  help,
}))
