import { Stripe } from 'stripe'
import { DomainError } from '../../../../proto/errors.ts'

/** Returns `error` as one of the port's errors. Its cause, for logs, holds no data of customers. */
export function processorError(error: unknown): DomainError {
  if (error instanceof DomainError) return error
  if (!isStripeError(error)) return unclearAnswer(error)
  const cause = new Error(describe(error))
  if (isUnclear(error))
    return new DomainError('PROCESSOR_UNREACHABLE', unclearText(error), { cause })
  return new DomainError('PROCESSOR_REFUSED', refusedText(error), { cause })
}

/** The error for an answer that is not what Stripe documents. */
export const unclearAnswer = (cause: unknown): DomainError =>
  new DomainError('PROCESSOR_UNREACHABLE', 'the payment processor sent an unclear answer', {
    cause,
  })

export const isStripeError = (error: unknown): error is Stripe.errors.StripeError =>
  error instanceof Stripe.errors.StripeError

/** Whether Stripe does not have the object that was named in the path or in `param`. */
export const isMissing = (error: unknown, param?: string): boolean =>
  isStripeError(error) &&
  error.code === 'resource_missing' &&
  (param === undefined || error.param === param)

/** Whether the platform has no access to the connected account, or no longer. */
export const isAccountGone = (error: unknown): boolean =>
  isStripeError(error) && error.statusCode === 403 && error.code === 'account_invalid'

/**
 * Whether the request may have been executed, or will be. 409 and 429 are here, too: another
 * attempt with the same key is still running, or may have run.
 */
function isUnclear({ statusCode: status }: Stripe.errors.StripeError): boolean {
  return (
    status === undefined || status < 400 || status >= 500 || [408, 409, 425, 429].includes(status)
  )
}

function unclearText({ statusCode }: Stripe.errors.StripeError): string {
  if (statusCode === 409) return 'the payment processor is still busy with this request; try again'
  if (statusCode === 429) return 'the payment processor gets too many requests; try again'
  return 'the payment processor does not answer; try again'
}

function refusedText(error: Stripe.errors.StripeError): string {
  if (error.statusCode === 401)
    return "the payment processor rejects the deployment's secret key, which the operator must correct"
  if (isAccountGone(error))
    return 'the payment processor knows no such connected account, or its owner ended the connection'
  if (error.rawType === 'idempotency_error')
    return 'the payment processor has seen this idempotency key with another request'
  const param = safeWord(error.param)
  return `the payment processor refused the request: ${errorCode(error)}${param ? ` (${param})` : ''}`
}

/** Stripe's code of an error, or its type if it has no code. */
export const errorCode = ({ code, rawType }: { code?: string | undefined; rawType?: unknown }) =>
  safeWord(code) ?? safeWord(rawType) ?? 'unknown'

const safeWord = (text: unknown): string | undefined =>
  typeof text === 'string' && /^[\w[\].-]{1,100}$/.test(text) ? text : undefined

/** Leaves out Stripe's message about a key, because it holds a part of the key. */
function describe(error: Stripe.errors.StripeError): string {
  const { type, statusCode, requestId } = error
  const message = statusCode === 401 || statusCode === 403 ? '' : `: ${error.message.slice(0, 300)}`
  return `${type} ${statusCode ?? 'without status'} ${errorCode(error)}, request ${safeWord(requestId) ?? 'unknown'}${message}`
}
