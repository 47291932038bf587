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
  invalid_state: 'The state has no readable id, number or time. Look at the version of the signer.',
  missing_credential: 'The call has no credential, or not `Bearer` and one token.',
  invalid_api_key: 'The key is unknown, revoked or mistyped. Create a new one.',
  invalid_token:
    'The token has expired, was revoked, or is for another use or of another issuer. Get a new one.',
  owner_payment_method_required:
    "The user is new, and the app may have no new users until its owner can pay. Add a payment method for the app's owner.",
  end_user_cap_reached:
    'The user is new, and the app has as many active users as it may. Deactivate users, or ask the operator for a higher cap.',
  insufficient_scope: 'The token lacks the scope `sign:job`.',
  invalid_identity:
    'There is no usable identity, the app is unknown, or the session belongs to another identity.',
  signer_not_bound:
    "The signer signs for other apps than the user's. The operator can bind it to the app.",
  user_inactive: 'The user was deactivated. Activate the user again.',
  untyped_call:
    'The session has no type or no usable price, and the operator has not set `UNTYPED_CALL_USD`.',
  limit_exceeded:
    'A limit of the user or key is reached, or the price is above its ceiling. The reason names the limit and its end.',
  rate_limited:
    'Too many wrong proxy secrets came in this minute. Correct the secret, and try again later.',
  request_too_large: 'The body is above 1 MiB.',
  insufficient_balance:
    'The user has less left than the call can cost. Give credit, or change the plan.',
  owner_debt_ceiling_reached:
    "The apps of the app's owner have cost as much as they may before it is paid. The operator can raise the ceiling.",
  rate_unavailable:
    'No exchange rate was observed for too long, so the call cannot be priced. The operator can set one: `./tollgate rate set`.',
  billing_unavailable: 'Core does not answer, and no lent money covers the call. Try again later.',
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
