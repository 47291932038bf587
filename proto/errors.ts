/**
 * The only error type and the only table of reasons. A reason crosses gRPC in a trailer; the
 * gateway turns it into a problem document (RFC 9457) or an OAuth error (RFC 6749 section 5.2). The
 * HTTP status depends on the reason, not on the gRPC code alone. Any other error is a bug: its
 * stack is logged, and the response reveals nothing about it.
 */
import { type ReasonRow, gone, grpc, malformed, missing, unavailable } from './reason-codes.ts'

export { grpc }

export const reasons = {
  REQUEST_INVALID: {
    ...malformed,
    title: 'Invalid request',
    help: 'The request is malformed: a field is missing, has the wrong form or is unknown. Correct the request as the message describes.',
  },
  AMOUNT_INVALID: {
    grpc: grpc.INVALID_ARGUMENT,
    http: 422,
    oauth: 'invalid_request',
    title: 'Invalid amount',
    help: 'The amount is not a positive whole number in a decimal string, or is too large. Send USD micros as digits, without a sign or leading zeros.',
  },
  FEATURE_UNKNOWN: {
    grpc: grpc.INVALID_ARGUMENT,
    http: 422,
    oauth: 'invalid_request',
    title: 'Unknown feature',
    help: 'The catalogue has no such feature. Use `network_spend`, a pipeline, or `pipeline:modelId`; the message lists the known ones.',
  },
  CREDENTIAL_INVALID: {
    grpc: grpc.UNAUTHENTICATED,
    http: 401,
    oauth: 'invalid_client',
    title: 'Invalid client credentials',
    help: 'The client id and secret in the Basic header do not match, or a shared secret is wrong. Check both values, and check whether the secret was rotated.',
  },
  TOKEN_INVALID: {
    grpc: grpc.UNAUTHENTICATED,
    http: 401,
    oauth: 'invalid_token',
    title: 'Invalid token',
    help: 'The bearer token or API key is unknown, expired or revoked. Get a new one.',
  },
  SCOPE_MISSING: {
    grpc: grpc.PERMISSION_DENIED,
    http: 403,
    oauth: 'insufficient_scope',
    title: 'Missing scope',
    help: 'The credential is valid but lacks a scope that the route needs. Request a token with that scope.',
  },
  // The client lacks the scope for a grant type. The error code is from RFC 6749 section 5.2; the
  // status is 403.
  CLIENT_SCOPE_MISSING: {
    grpc: grpc.PERMISSION_DENIED,
    http: 403,
    oauth: 'invalid_scope',
    title: 'Missing client scope',
    help: "The OAuth client lacks a scope that the grant type needs. The app's owner can add the scope to the client.",
  },
  EDIT_FORBIDDEN: {
    grpc: grpc.PERMISSION_DENIED,
    http: 403,
    oauth: 'access_denied',
    title: 'Not allowed',
    help: "The signed-in person may not change this, or the request did not come from the dashboard's own pages. Sign in as an owner, and load the page again.",
  },
  ORIGIN_FORBIDDEN: {
    grpc: grpc.PERMISSION_DENIED,
    http: 403,
    oauth: 'access_denied',
    title: 'Origin not allowed',
    help: 'A page of another origin sent the request. Programs other than browsers must not send `Origin`; for pages in a browser, the operator must list their origin.',
  },
  // Every tenant mismatch is 404, contrary to AIP-211, so that ids cannot be enumerated.
  NOT_FOUND: {
    grpc: grpc.NOT_FOUND,
    http: 404,
    // Not a code of RFC 6749: clients that create users on demand expect exactly this word.
    oauth: 'not_found',
    title: 'Not found',
    help: 'The app has no such resource. Resources of other apps get the same response, so that ids cannot be guessed.',
  },
  CONFLICT: {
    grpc: grpc.FAILED_PRECONDITION,
    http: 409,
    oauth: 'invalid_request',
    title: 'Conflict',
    help: 'The current state does not allow the change: the name is taken, a limit is reached, or another resource depends on it. The message gives the reason.',
  },
  CONFIRM_REQUIRED: {
    ...malformed,
    title: 'Confirmation required',
    help: 'Ending a subscription, or cancelling its scheduled end, requires `"confirm": true` in the body.',
  },
  OWNER_WALLET_NOT_APP_USER: {
    ...malformed,
    title: 'The owner, not a user',
    help: "The subject is the app's owner, who pays for the app. The owner's plan cannot be changed like a user's plan.",
  },
  ALREADY_SCHEDULED: {
    grpc: grpc.FAILED_PRECONDITION,
    http: 400,
    oauth: 'invalid_request',
    title: 'Already scheduled',
    help: 'The subscription is already scheduled to end with its period. Cancel the scheduled end, or end the subscription immediately.',
  },
  NO_SUBSCRIPTION: {
    ...missing,
    title: 'No subscription',
    help: 'The user has no subscription.',
  },
  ALREADY_STARTER: {
    ...missing,
    title: 'Already on Starter',
    help: 'The user is on the Starter plan, which does not end.',
  },
  NOTHING_TO_RESUME: {
    ...missing,
    title: 'Nothing to resume',
    help: 'Nothing can be cancelled, because neither a change of plan nor an end of the subscription is scheduled.',
  },
  PROCESSOR_NOT_CONNECTED: {
    ...unavailable,
    title: 'No payment processor',
    help: 'The request needs a payment method, but no payment processor is connected. Nothing was changed.',
  },
  SCOPE_INVALID: {
    grpc: grpc.INVALID_ARGUMENT,
    http: 400,
    oauth: 'invalid_scope',
    title: 'Invalid scope',
    help: 'The requested scope is unknown, may not be combined, or is not available to the app.',
  },
  GRANT_INVALID: {
    grpc: grpc.INVALID_ARGUMENT,
    http: 400,
    oauth: 'invalid_grant',
    title: 'Invalid grant',
    help: 'The code, refresh token, device code or subject token is unknown, expired or already used. Start the login again.',
  },
  CLIENT_UNAUTHORIZED: {
    grpc: grpc.PERMISSION_DENIED,
    http: 400,
    oauth: 'unauthorized_client',
    title: 'Unauthorized client',
    help: "The OAuth client may not use this grant type. The app's owner can allow it.",
  },
  // RFC 8707 and RFC 8693 section 2.2.2.
  TARGET_INVALID: {
    grpc: grpc.INVALID_ARGUMENT,
    http: 400,
    oauth: 'invalid_target',
    title: 'Invalid target',
    help: 'The audience or resource of the request is not the signer. Use the resource from the discovery document, or leave it out.',
  },
  // Existing clients expect this code; RFC 8693 specifies invalid_request.
  TOKEN_TYPE_UNSUPPORTED: {
    grpc: grpc.INVALID_ARGUMENT,
    http: 400,
    oauth: 'unsupported_token_type',
    title: 'Unsupported token type',
    help: 'The token type of the exchange is not supported. Use an access token, a JWT or an API key, as documented.',
  },
  // RFC 8628 section 3.5.
  AUTHORIZATION_PENDING: {
    grpc: grpc.FAILED_PRECONDITION,
    http: 400,
    oauth: 'authorization_pending',
    title: 'Authorization pending',
    help: 'The user has not confirmed the device yet. Poll again after the interval.',
  },
  SLOW_DOWN: {
    grpc: grpc.FAILED_PRECONDITION,
    http: 400,
    oauth: 'slow_down',
    title: 'Slow down',
    help: 'The device polls too often. Add five seconds to the interval.',
  },
  DEVICE_CODE_EXPIRED: {
    grpc: grpc.FAILED_PRECONDITION,
    http: 400,
    oauth: 'expired_token',
    title: 'Expired',
    help: 'The device code expired before it was confirmed. Start the device login again.',
  },
  ACCESS_DENIED: {
    grpc: grpc.FAILED_PRECONDITION,
    http: 400,
    oauth: 'access_denied',
    title: 'Access denied',
    help: 'The user or the app refused the login. Repeating the same request does not help.',
  },
  ALLOWANCE_EXHAUSTED: {
    grpc: grpc.FAILED_PRECONDITION,
    http: 402,
    oauth: 'insufficient_allowance',
    title: 'Allowance used up',
    help: "The user's allowance is used up. The owner of the app can add credit, and the next period includes usage again.",
  },
  // The activation gate (docs/billing.md). Its error codes are the same on token routes.
  OWNER_PAYMENT_METHOD_REQUIRED: {
    grpc: grpc.FAILED_PRECONDITION,
    http: 402,
    oauth: 'owner_payment_method_required',
    title: 'Payment method required',
    help: 'The app cannot add end users: its owner has used up their own allowance in the app and has no payment method that can be charged. Active users are not affected. The owner can add a payment method, or ask a platform admin.',
  },
  END_USER_CAP_REACHED: {
    grpc: grpc.FAILED_PRECONDITION,
    http: 403,
    oauth: 'end_user_cap_reached',
    title: 'App cannot provision end users',
    help: 'The app has reached its cap on active end users. Deactivate users who are no longer needed, or ask a platform admin for a higher cap.',
  },
  STRIPE_CONNECT_REQUIRED: {
    grpc: grpc.FAILED_PRECONDITION,
    http: 403,
    oauth: 'stripe_connect_required',
    title: 'Stripe Connect required',
    help: 'Plans with a price need the billing mode merchant and an account of the owner at the payment processor. Connect an account, and ask a platform admin for that mode.',
  },
  STRIPE_CONNECT_PENDING: {
    grpc: grpc.FAILED_PRECONDITION,
    http: 403,
    oauth: 'stripe_connect_pending',
    title: 'Stripe Connect onboarding incomplete',
    help: "The owner's account at the payment processor is connected but cannot take payments yet. Complete its onboarding there.",
  },
  CONNECT_STATE_INVALID: {
    ...malformed,
    title: 'Connection link not valid',
    help: "The link back from the payment processor was used before, has expired after 15 minutes, or was made for another person or app. Open the app's payments page and connect again; nothing is lost.",
  },
  PROCESSOR_NOT_CONFIGURED: {
    ...unavailable,
    title: 'No payment processor',
    help: 'This deployment has no payment processor, so no account can be connected and no card charged.',
  },
  PROCESSOR_UNREACHABLE: {
    ...unavailable,
    title: 'Payment processor unreachable',
    help: 'The payment processor did not answer, or its answer was unclear. Repeat the request with the same `Idempotency-Key`: nothing is charged twice.',
  },
  CARD_DECLINED: {
    grpc: grpc.FAILED_PRECONDITION,
    http: 402,
    oauth: 'access_denied',
    title: 'Card declined',
    help: "The bank or the payment processor declined the user's card, so nothing was charged and nothing was changed. The message holds the processor's code. Let the user give another card (`POST …/billing/payment-method`) or pay on a page (`POST …/billing/checkout`), then send the request with a new `Idempotency-Key`.",
  },
  PROCESSOR_REFUSED: {
    grpc: grpc.FAILED_PRECONDITION,
    http: 502,
    oauth: 'server_error',
    title: 'Refused by the payment processor',
    help: "The payment processor refused the request, so nothing was charged. The message holds the processor's code. If it names the account or the key, the owner must connect the account again, or the operator must correct the key.",
  },
  SIGNATURE_INVALID: {
    grpc: grpc.UNAUTHENTICATED,
    http: 401,
    oauth: 'invalid_client',
    title: 'Invalid signature',
    help: "The event's signature fits no webhook secret of this deployment, or its time differs by more than five minutes from this deployment's clock. Check the secrets (`STRIPE_WEBHOOK_SECRETS`, `STRIPE_TEST_WEBHOOK_SECRETS`) and the clock.",
  },
  ROUTE_GONE: {
    ...gone,
    title: 'Gone',
    help: 'The route was removed. The message names its replacement.',
  },
  SIGNER_PROXY_DEPRECATED: {
    ...gone,
    title: 'Signing proxy removed',
    help: 'This service no longer signs on behalf of its callers. Read the signer routing and call the remote signer directly; the signer calls the identity webhook. `migration` names the routes.',
  },
  SIGNED_TICKET_HTTP_INGEST_DEPRECATED: {
    ...gone,
    title: 'Ticket ingest removed',
    help: "Do not send tickets: usage is metered from the signer's own events. `migration` names the routes that return usage.",
  },
  LOCAL_SUBSCRIPTION_API_DEPRECATED: {
    ...gone,
    title: 'Subscription routes removed',
    help: 'Creating a user also creates its subscription. `migration` names the routes that create users and read their subscriptions.',
  },
  GRANT_TYPE_UNSUPPORTED: {
    grpc: grpc.UNIMPLEMENTED,
    http: 400,
    oauth: 'unsupported_grant_type',
    title: 'Unsupported grant type',
    help: 'The token endpoint does not support the grant type. The discovery document lists the supported ones.',
  },
  RATE_LIMITED: {
    grpc: grpc.RESOURCE_EXHAUSTED,
    http: 429,
    oauth: 'temporarily_unavailable',
    title: 'Too many requests',
    help: 'Too many requests arrived in a short time. Wait for the time in `Retry-After`.',
  },
  BODY_TOO_LARGE: {
    grpc: grpc.RESOURCE_EXHAUSTED,
    http: 413,
    oauth: 'invalid_request',
    title: 'Body too large',
    help: 'The body is larger than the route accepts. Send less data per request.',
  },
  URI_TOO_LONG: {
    grpc: grpc.INVALID_ARGUMENT,
    http: 414,
    oauth: 'invalid_request',
    title: 'Address too long',
    help: 'The path and query are longer than 12,288 characters. Send long values in the body of a POST.',
  },
  HEADERS_TOO_LARGE: {
    grpc: grpc.INVALID_ARGUMENT,
    http: 431,
    oauth: 'invalid_request',
    title: 'Headers too large',
    help: 'The request has more than 100 header lines, or more than 16 KiB of headers. The cause is often a browser that has collected cookies of other services on this host: delete them.',
  },
  REQUEST_TIMEOUT: {
    grpc: grpc.INVALID_ARGUMENT,
    http: 408,
    oauth: 'invalid_request',
    title: 'Request too slow',
    help: 'The headers did not arrive within 10 seconds, or the whole request not within 30. Send it again; nothing was changed.',
  },
  MEDIA_TYPE_UNSUPPORTED: {
    grpc: grpc.INVALID_ARGUMENT,
    http: 415,
    oauth: 'invalid_request',
    title: 'Unsupported media type',
    help: 'The route does not accept the content type of the body. Send JSON, or a form where OAuth requires one.',
  },
  METHOD_NOT_ALLOWED: {
    grpc: grpc.UNIMPLEMENTED,
    http: 405,
    oauth: 'invalid_request',
    title: 'Method not allowed',
    help: 'The path exists, but not for this method. The `Allow` header lists its methods.',
  },
  IDEMPOTENCY_CONFLICT: {
    grpc: grpc.ABORTED,
    http: 409,
    oauth: 'invalid_request',
    title: 'Idempotency conflict',
    help: 'The idempotency key was used for another request, or the first request is still running. Use a new key for a new request, or repeat the same request later.',
  },
  CLIENT_METADATA_INVALID: {
    grpc: grpc.INVALID_ARGUMENT,
    http: 400,
    oauth: 'invalid_client_metadata',
    title: 'Invalid client metadata',
    help: 'The client metadata of the registration (RFC 7591) is not acceptable. Correct the member that the message names.',
  },
  REDIRECT_URI_INVALID: {
    grpc: grpc.INVALID_ARGUMENT,
    http: 400,
    oauth: 'invalid_redirect_uri',
    title: 'Invalid redirect URI',
    help: 'A redirect URI of the registration must use https, http on the loopback, or a private-use scheme with a dot. It must have no fragment and no wildcard.',
  },
  SOFTWARE_STATEMENT_INVALID: {
    grpc: grpc.INVALID_ARGUMENT,
    http: 400,
    oauth: 'invalid_software_statement',
    title: 'Invalid software statement',
    help: 'The software statement is not a JWT. Register without one, because no issuer of software statements is approved here.',
  },
  SOFTWARE_STATEMENT_UNAPPROVED: {
    grpc: grpc.INVALID_ARGUMENT,
    http: 400,
    oauth: 'unapproved_software_statement',
    title: 'Unapproved software statement',
    help: 'No issuer of software statements is approved here. Register without one.',
  },
  PROVIDER_UNAVAILABLE: {
    grpc: grpc.UNAVAILABLE,
    http: 502,
    oauth: 'temporarily_unavailable',
    title: 'Identity provider unavailable',
    help: 'The identity provider did not create or change the user, because it is unreachable, is too busy or refuses this deployment. Nothing was changed here. Repeat the request; this never creates a second user.',
  },
  METERING_UNREACHABLE: {
    ...unavailable,
    title: 'Metering unreachable',
    help: 'The metering backend does not answer. Nothing was changed; repeat the request later.',
  },
  METERING_NOT_CONFIGURED: {
    ...unavailable,
    title: 'Metering not configured',
    help: 'This deployment has no metering backend. The operator can set `OPENMETER_URL`.',
  },
  METERING_FAILED: {
    grpc: grpc.UNAVAILABLE,
    http: 502,
    oauth: 'temporarily_unavailable',
    title: 'Metering failed',
    help: 'The metering backend failed while it handled the request. Repeat the request later; the operator finds the reason in the log.',
  },
  PLAN_UNSYNCABLE: {
    grpc: grpc.FAILED_PRECONDITION,
    http: 422,
    oauth: 'invalid_request',
    title: 'Plan cannot be synced',
    help: 'The metering backend does not support the terms of this plan. Change the terms that the message names, then sync the plan again.',
  },
  // Between our own processes. A wrong CORE_TOKEN is never the caller's fault.
  SERVICE_TOKEN_INVALID: {
    grpc: grpc.UNAUTHENTICATED,
    http: 503,
    oauth: 'temporarily_unavailable',
    title: 'Service unavailable',
    help: 'Core rejects the token of a process of the deployment: `CORE_TOKEN`, or `CORE_TOKEN_` and its role. Only the operator can correct this.',
  },
  SERVICE_ROLE_FORBIDDEN: {
    grpc: grpc.PERMISSION_DENIED,
    http: 503,
    oauth: 'temporarily_unavailable',
    title: 'Service unavailable',
    help: 'A process of the deployment called an RPC with a token whose role does not allow it. Only the operator can correct this.',
  },
  // The sidecar does not acknowledge events while it cannot store them.
  SPOOL_UNAVAILABLE: {
    ...unavailable,
    title: 'Spool unavailable',
    help: 'The sidecar cannot store events, because its disk or its spool is full. Send the event again later.',
  },
  UNAVAILABLE: {
    ...unavailable,
    title: 'Service unavailable',
    help: 'A part of the service does not answer. The request may have taken effect; repeat it, with the same idempotency key if it has one.',
  },
  INTERNAL: {
    grpc: grpc.INTERNAL,
    http: 500,
    oauth: 'server_error',
    title: 'Internal error',
    help: 'The service failed. The operator finds the reason in the log, under the `correlation_id` of the response.',
  },
} as const satisfies Record<string, ReasonRow>

export type Reason = keyof typeof reasons

/** The trailer that carries the reason from core to its callers. */
export const reasonTrailer = 'tollgate-reason'

/** Additional members of a problem document (RFC 9457 section 3.2): a few short JSON values. */
export type ProblemMembers = Readonly<Record<string, unknown>>

/** The trailer that carries the additional members. */
export const membersTrailer = 'tollgate-problem-members'

/** Members as the text of a trailer, which must be ASCII. */
export const membersText = (members: ProblemMembers): string =>
  JSON.stringify(members).replaceAll(
    /[\u007f-\uffff]/g,
    (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`,
  )

/** Parses members from the text of a trailer; undefined if there are none. */
export function readMembers(text: unknown): ProblemMembers | undefined {
  if (typeof text !== 'string' || text === '') return undefined
  const members: unknown = JSON.parse(text)
  if (typeof members !== 'object' || members === null) return undefined
  return Object.fromEntries(Object.entries(members))
}

export function isReason(value: unknown): value is Reason {
  return typeof value === 'string' && Object.hasOwn(reasons, value)
}

/**
 * An error that the caller may see. `message` and `members` are public and include what to do;
 * `cause` is for the log. A class, so that `instanceof` distinguishes it from other errors.
 */
export class DomainError extends Error {
  readonly reason: Reason
  readonly members: ProblemMembers | undefined

  constructor(
    reason: Reason,
    message: string,
    options?: { cause?: unknown; members?: ProblemMembers | undefined },
  ) {
    super(message, options)
    this.name = 'DomainError'
    this.reason = reason
    this.members = options?.members
  }
}
