import { type Static, type TObject, type TSchema, Type } from 'typebox'
import type { App } from './app.ts'

/** Names a schema for the OpenAPI document. */
export const named = <T extends TSchema, N extends string>(
  schema: T,
  $id: N,
): T & { readonly $id: N } => ({ ...schema, $id })

/** Returns a reference to a schema registered by its `$id`. */
export const ref = <T extends TSchema & { readonly $id: string }>(schema: T) =>
  Type.Unsafe<Static<T>>({ $ref: `${schema.$id}#` })

/** Registers named schemas so that routes can refer to them. */
export function addSchemas(
  app: App,
  schemas: readonly (TSchema & { readonly $id: string })[],
): void {
  for (const schema of schemas) app.addSchema(schema)
}

/** Rules that core checks instead of the schema: required members, and formats by member. */
interface CheckedByCore {
  readonly required?: readonly string[]
  readonly formats?: Readonly<Record<string, string>>
}

/** Returns the schema of a body or query for the document, including the rules that core checks. */
export function asDocumented(
  schema: TObject,
  { required = [], formats = {} }: CheckedByCore,
): TSchema {
  const properties = Object.entries(schema.properties).map(([name, property]) => {
    const format = formats[name]
    return [name, format === undefined ? property : { ...property, format }]
  })
  return {
    ...schema,
    required: [...new Set([...(schema.required ?? []), ...required])],
    properties: Object.fromEntries(properties),
  }
}

export const CorrelationId = Type.String({
  description: 'The same as the header X-Correlation-Id.',
})

/** An error as a problem document (RFC 9457). */
export const Problem = named(
  Type.Object(
    {
      type: Type.String({ format: 'uri' }),
      title: Type.String(),
      status: Type.Integer(),
      detail: Type.String(),
      code: Type.String(),
      error: Type.String({ description: 'The same value as code.' }),
      correlation_id: CorrelationId,
    },
    // RFC 9457 section 3.2: some reasons have additional members.
    { additionalProperties: true },
  ),
  'Problem',
)

/** An error of a token route (RFC 6749 section 5.2). */
export const OAuthError = named(
  Type.Object({
    error: Type.String(),
    error_description: Type.String(),
    correlation_id: CorrelationId,
  }),
  'OAuthError',
)

export const IdempotencyHeader = Type.Object({
  'idempotency-key': Type.Optional(
    Type.String({
      pattern: '^[\\x21-\\x7e]{1,255}$',
      description:
        '1 to 255 visible ASCII characters, such as the id of your order. Always send one, so that a repeated request has no second effect and returns the first answer.',
      examples: ['order-4711'],
    }),
  ),
})
