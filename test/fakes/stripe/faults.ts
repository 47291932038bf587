interface ErrorFields {
  readonly code?: string
  readonly param?: string
  readonly type?: string
  readonly [field: string]: unknown
}

/** An error response with Stripe's error object. */
export class StripeFault extends Error {
  readonly status: number
  readonly fields: ErrorFields

  constructor(status: number, message: string, fields: ErrorFields = {}) {
    super(message)
    this.status = status
    this.fields = fields
  }

  get body() {
    const type = this.status >= 500 ? 'api_error' : 'invalid_request_error'
    return { error: { type, message: this.message, ...this.fields } }
  }

  static invalid(message: string, fields?: ErrorFields): StripeFault {
    return new StripeFault(400, message, fields)
  }

  /** Status 404 for an object of the path, 400 for one that a parameter names. */
  static missing(kind: string, id: string, param = 'id'): StripeFault {
    const status = param === 'id' ? 404 : 400
    return new StripeFault(status, `No such ${kind}: '${id}'`, { code: 'resource_missing', param })
  }
}

/**
 * What happens to a request.
 * - `refuse`: an error before anything is done, not stored with the key.
 * - `reset before`, `reset after`: the connection breaks before or after the effect.
 * - `hang before`, `hang after`: no answer comes, before or after the effect.
 * - `error after`: status 500 after the effect; `isStored`: a repeated key gets it again, as at
 *   Stripe.
 * - `body`: another text as the answer after the effect.
 * - `late`: the answer comes after `ms`.
 */
export type Fault =
  | { readonly kind: 'refuse'; readonly status: number; readonly fields?: ErrorFields }
  | { readonly kind: 'reset before' | 'reset after' | 'hang before' | 'hang after' }
  | { readonly kind: 'error after'; readonly isStored: boolean }
  | { readonly kind: 'body'; readonly status: number; readonly text: string }
  | { readonly kind: 'late'; readonly ms: number }
