/** The gRPC codes that reasons use. */
export const grpc = {
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
  /** The error code on token routes (RFC 6749, 8693 and 8628). */
  readonly oauth: string
  readonly title: string
  /**
   * Text for docs/errors.md and GET /errors/{code}, in complete sentences: what happened and what
   * the caller can do.
   */
  readonly help: string
}

/** Codes that several reasons have. */
export const unavailable = {
  grpc: grpc.UNAVAILABLE,
  http: 503,
  oauth: 'temporarily_unavailable',
} as const
export const gone = { grpc: grpc.UNIMPLEMENTED, http: 410, oauth: 'invalid_request' } as const
export const malformed = {
  grpc: grpc.INVALID_ARGUMENT,
  http: 400,
  oauth: 'invalid_request',
} as const
export const missing = { grpc: grpc.NOT_FOUND, http: 404, oauth: 'invalid_request' } as const
