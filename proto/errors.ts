/**
 * The one error type and the one table of reasons. A reason crosses gRPC in a trailer and becomes, at the
 * gateway, a problem document (RFC 9457) or an OAuth error (RFC 6749 section 5.2). Status follows the reason,
 * never the gRPC code alone. What is not a DomainError is a bug: logged whole, answered empty.
 */

const grpc = {
  INVALID_ARGUMENT: 3,
  NOT_FOUND: 5,
  PERMISSION_DENIED: 7,
  RESOURCE_EXHAUSTED: 8,
  FAILED_PRECONDITION: 9,
  ABORTED: 10,
  UNIMPLEMENTED: 12,
  INTERNAL: 13,
  UNAVAILABLE: 14,
  UNAUTHENTICATED: 16,
} as const

export interface ReasonRow {
  readonly grpc: number
  readonly http: number
  /** The RFC 6749 / 8693 / 8628 word on token routes. */
  readonly oauth: string
  readonly title: string
}

export const reasons = {
  REQUEST_INVALID: {
    grpc: grpc.INVALID_ARGUMENT,
    http: 400,
    oauth: 'invalid_request',
    title: 'Invalid request',
  },
  AMOUNT_INVALID: {
    grpc: grpc.INVALID_ARGUMENT,
    http: 422,
    oauth: 'invalid_request',
    title: 'Invalid amount',
  },
  CREDENTIAL_INVALID: {
    grpc: grpc.UNAUTHENTICATED,
    http: 401,
    oauth: 'invalid_client',
    title: 'Invalid client credentials',
  },
  TOKEN_INVALID: {
    grpc: grpc.UNAUTHENTICATED,
    http: 401,
    oauth: 'invalid_token',
    title: 'Invalid token',
  },
  SCOPE_MISSING: {
    grpc: grpc.PERMISSION_DENIED,
    http: 403,
    oauth: 'insufficient_scope',
    title: 'Missing scope',
  },
  // A client that lacks a scope for a grant: 403 by the specification, the word by RFC 6749 section 5.2.
  CLIENT_SCOPE_MISSING: {
    grpc: grpc.PERMISSION_DENIED,
    http: 403,
    oauth: 'invalid_scope',
    title: 'Missing client scope',
  },
  EDIT_FORBIDDEN: {
    grpc: grpc.PERMISSION_DENIED,
    http: 403,
    oauth: 'access_denied',
    title: 'Not allowed',
  },
  // 404 for every tenant mismatch is the specification's wish (no id enumeration), against AIP-211.
  NOT_FOUND: { grpc: grpc.NOT_FOUND, http: 404, oauth: 'invalid_request', title: 'Not found' },
  CONFLICT: {
    grpc: grpc.FAILED_PRECONDITION,
    http: 409,
    oauth: 'invalid_request',
    title: 'Conflict',
  },
  SCOPE_INVALID: {
    grpc: grpc.INVALID_ARGUMENT,
    http: 400,
    oauth: 'invalid_scope',
    title: 'Invalid scope',
  },
  GRANT_INVALID: {
    grpc: grpc.INVALID_ARGUMENT,
    http: 400,
    oauth: 'invalid_grant',
    title: 'Invalid grant',
  },
  CLIENT_UNAUTHORIZED: {
    grpc: grpc.PERMISSION_DENIED,
    http: 400,
    oauth: 'unauthorized_client',
    title: 'Unauthorized client',
  },
  // RFC 8707 and RFC 8693 section 2.2.2.
  TARGET_INVALID: {
    grpc: grpc.INVALID_ARGUMENT,
    http: 400,
    oauth: 'invalid_target',
    title: 'Invalid target',
  },
  // RFC 8693 alone would say invalid_request.
  TOKEN_TYPE_UNSUPPORTED: {
    grpc: grpc.INVALID_ARGUMENT,
    http: 400,
    oauth: 'unsupported_token_type',
    title: 'Unsupported token type',
  },
  // RFC 8628 section 3.5.
  AUTHORIZATION_PENDING: {
    grpc: grpc.FAILED_PRECONDITION,
    http: 400,
    oauth: 'authorization_pending',
    title: 'Authorization pending',
  },
  SLOW_DOWN: { grpc: grpc.FAILED_PRECONDITION, http: 400, oauth: 'slow_down', title: 'Slow down' },
  DEVICE_CODE_EXPIRED: {
    grpc: grpc.FAILED_PRECONDITION,
    http: 400,
    oauth: 'expired_token',
    title: 'Expired',
  },
  ACCESS_DENIED: {
    grpc: grpc.FAILED_PRECONDITION,
    http: 400,
    oauth: 'access_denied',
    title: 'Access denied',
  },
  ALLOWANCE_EXHAUSTED: {
    grpc: grpc.FAILED_PRECONDITION,
    http: 402,
    oauth: 'insufficient_allowance',
    title: 'Allowance used up',
  },
  ROUTE_GONE: { grpc: grpc.UNIMPLEMENTED, http: 410, oauth: 'invalid_request', title: 'Gone' },
  GRANT_TYPE_UNSUPPORTED: {
    grpc: grpc.UNIMPLEMENTED,
    http: 400,
    oauth: 'unsupported_grant_type',
    title: 'Unsupported grant type',
  },
  RATE_LIMITED: {
    grpc: grpc.RESOURCE_EXHAUSTED,
    http: 429,
    oauth: 'temporarily_unavailable',
    title: 'Too many requests',
  },
  BODY_TOO_LARGE: {
    grpc: grpc.RESOURCE_EXHAUSTED,
    http: 413,
    oauth: 'invalid_request',
    title: 'Body too large',
  },
  MEDIA_TYPE_UNSUPPORTED: {
    grpc: grpc.INVALID_ARGUMENT,
    http: 415,
    oauth: 'invalid_request',
    title: 'Unsupported media type',
  },
  METHOD_NOT_ALLOWED: {
    grpc: grpc.UNIMPLEMENTED,
    http: 405,
    oauth: 'invalid_request',
    title: 'Method not allowed',
  },
  IDEMPOTENCY_CONFLICT: {
    grpc: grpc.ABORTED,
    http: 409,
    oauth: 'invalid_request',
    title: 'Idempotency conflict',
  },
  METERING_UNREACHABLE: {
    grpc: grpc.UNAVAILABLE,
    http: 503,
    oauth: 'temporarily_unavailable',
    title: 'Metering unreachable',
  },
  METERING_NOT_CONFIGURED: {
    grpc: grpc.UNAVAILABLE,
    http: 503,
    oauth: 'temporarily_unavailable',
    title: 'Metering not configured',
  },
  // Between our own processes: a wrong CORE_TOKEN is our fault, never the end caller's.
  SERVICE_TOKEN_INVALID: {
    grpc: grpc.UNAUTHENTICATED,
    http: 503,
    oauth: 'temporarily_unavailable',
    title: 'Service unavailable',
  },
  // The sidecar stops acknowledging events when it cannot keep them.
  SPOOL_UNAVAILABLE: {
    grpc: grpc.UNAVAILABLE,
    http: 503,
    oauth: 'temporarily_unavailable',
    title: 'Spool unavailable',
  },
  UNAVAILABLE: {
    grpc: grpc.UNAVAILABLE,
    http: 503,
    oauth: 'temporarily_unavailable',
    title: 'Service unavailable',
  },
  INTERNAL: { grpc: grpc.INTERNAL, http: 500, oauth: 'server_error', title: 'Internal error' },
} as const satisfies Record<string, ReasonRow>

export type Reason = keyof typeof reasons

/** The trailer that carries the reason from core to its callers. */
export const reasonTrailer = 'tollgate-reason'

export function isReason(value: unknown): value is Reason {
  return typeof value === 'string' && Object.hasOwn(reasons, value)
}

/**
 * A refusal that the caller may see: `message` is public and says what to do; `cause` stays inside.
 * The only class of this code base, because `throw` and `instanceof` want one.
 */
export class DomainError extends Error {
  readonly reason: Reason

  constructor(reason: Reason, message: string, options?: { cause?: unknown }) {
    super(message, options)
    this.name = 'DomainError'
    this.reason = reason
  }
}
