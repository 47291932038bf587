import { DomainError, type Reason, reasons } from '../../../proto/errors.ts'
import { problemType, renderError } from '../../http/errors.ts'
import type { Refusals, Wire } from '../../http/route.ts'

/**
 * Describes an operation's refusals in its document: for each status, the reasons that it can
 * answer, so that generated clients can distinguish every `code` (or OAuth `error`).
 */

type Schema = Readonly<Record<string, unknown>>

/** The named schemas of the used reasons, and the responses by status. */
export interface DescribedRefusals {
  readonly schemas: Readonly<Record<string, Schema>>
  readonly responses: Readonly<Record<string, object>>
}

const correlationId = '0b0f3c5e-2f7a-4a4e-9a53-3c1a6c2f9d10'

export function describeRefusals(
  { wire, reasons: all }: Refusals,
  publicUrl: string,
): DescribedRefusals {
  const statuses = Map.groupBy(all, (reason) => reasons[reason].http)
  return {
    schemas: Object.fromEntries(
      all.map((reason) => [nameOf(reason, wire), schemaOf(reason, { wire, publicUrl })]),
    ),
    responses: Object.fromEntries(
      [...statuses].map(([status, same]) => [status, responseOf(same, { wire, publicUrl })]),
    ),
  }
}

interface Form {
  readonly wire: Wire
  readonly publicUrl: string
}

function responseOf(same: readonly Reason[], { wire, publicUrl }: Form) {
  const words = [...new Map(same.map((reason) => [wordOf(reason, wire), reason])).values()]
  const refs = words.map((reason) => ({ $ref: refOf(reason, wire) }))
  const mapping = Object.fromEntries(
    words.map((reason) => [wordOf(reason, wire), refOf(reason, wire)]),
  )
  const schema =
    refs.length === 1
      ? refs[0]
      : {
          oneOf: refs,
          discriminator: { propertyName: wire === 'oauth' ? 'error' : 'code', mapping },
        }
  const examples = Object.fromEntries(
    words.map((reason) => [
      wordOf(reason, wire),
      { summary: reasons[reason].title, value: exampleOf(reason, { wire, publicUrl }) },
    ]),
  )
  const type = wire === 'oauth' ? 'application/json' : 'application/problem+json'
  return {
    description: same
      .map((reason) => `${reasons[reason].title}. ${reasons[reason].help}`)
      .join(' '),
    content: { [type]: { schema, examples } },
  }
}

/**
 * Returns the word that identifies a refusal within its status: the code of a problem, or the error
 * of an OAuth body.
 */
const wordOf = (reason: Reason, wire: Wire): string =>
  wire === 'oauth' ? reasons[reason].oauth : reason.toLowerCase()

const nameOf = (reason: Reason, wire: Wire): string =>
  pascal(wordOf(reason, wire)) + (wire === 'oauth' ? 'Error' : 'Problem')

const refOf = (reason: Reason, wire: Wire): string => `#/components/schemas/${nameOf(reason, wire)}`

const pascal = (word: string): string =>
  word
    .split('_')
    .map((part) => `${part[0]?.toUpperCase() ?? ''}${part.slice(1)}`)
    .join('')

function schemaOf(reason: Reason, { wire, publicUrl }: Form): Schema {
  const { http: status, title, help } = reasons[reason]
  const word = { type: 'string', enum: [wordOf(reason, wire)] }
  const correlation_id = {
    type: 'string',
    description: 'The same as in X-Correlation-Id and in the log.',
  }
  if (wire === 'oauth') {
    const properties = {
      error: word,
      error_description: { type: 'string', description: 'A text for people; it may change.' },
      correlation_id,
    }
    // Several reasons share this word, so the description of one would be too specific.
    return objectOf(properties, 'An OAuth error (RFC 6749 section 5.2).')
  }
  const properties = {
    type: {
      type: 'string',
      format: 'uri',
      description: `A page about the code: ${problemType(reason, publicUrl)}`,
    },
    title: { type: 'string', description: title },
    status: { type: 'integer', enum: [status] },
    detail: { type: 'string', description: 'A text for people; it may change.' },
    code: word,
    error: { ...word, description: 'The same value as code.' },
    correlation_id,
  }
  return objectOf(properties, help)
}

const objectOf = (properties: Schema, description: string): Schema => ({
  type: 'object',
  description,
  required: Object.keys(properties),
  properties,
})

/** Returns the body as this service writes it, with a typical detail. */
const exampleOf = (reason: Reason, { wire, publicUrl }: Form): object =>
  renderError({
    error: new DomainError(reason, details[reason] ?? firstSentence(reasons[reason].help)),
    wire,
    correlationId,
    publicUrl,
  }).body

const firstSentence = (text: string): string => text.slice(0, text.indexOf('. ') + 1) || text

const details: Partial<Record<Reason, string>> = {
  REQUEST_INVALID: 'externalUserId is required',
  AMOUNT_INVALID: 'amountUsdMicros must be a positive integer string, such as "5000000" for 5 USD',
  CREDENTIAL_INVALID: 'the client id and secret do not match',
  TOKEN_INVALID: 'the token has expired',
  SCOPE_MISSING: 'the client lacks the scope users:write',
  EDIT_FORBIDDEN: 'your role in this app, viewer, does not allow this',
  NOT_FOUND: 'no such app for this credential',
  RATE_LIMITED: 'too many requests; try again in 12 s',
  IDEMPOTENCY_CONFLICT: 'this Idempotency-Key was used for another request',
  BODY_TOO_LARGE: 'the body must be at most 1 MiB',
  MEDIA_TYPE_UNSUPPORTED: 'send the body as application/json',
  METERING_NOT_CONFIGURED: 'no metering backend is configured',
  UNAVAILABLE: 'the service is unavailable now; try again',
}
