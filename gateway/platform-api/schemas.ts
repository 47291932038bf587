import { Type } from 'typebox'
import { CorrelationId, named } from '../http/schemas.ts'

/** Schemas shared by several routes. */

export const Micros = (description: string) => Type.String({ pattern: '^-?[0-9]+$', description })
export const Wei = (description: string) => Type.String({ pattern: '^[0-9]+$', description })
export const Email = Type.String({ format: 'email' })
export const WebAddress = (description: string) => Type.String({ format: 'uri', description })
/** An integer that may exceed the precision of a double. */
export const Int64 = (description: string) => Type.Integer({ format: 'int64', description })
export const Instant = (description: string) => Type.String({ format: 'date-time', description })
// OpenAPI 3.0 has no null type and needs `type` next to `enum`.
export const nullable = (schema: object) =>
  Type.Unsafe<string | null>({ type: 'string', nullable: true, ...schema })
export const oneOf = <const T extends string>(values: readonly T[], description: string) =>
  Type.Unsafe<T>({ type: 'string', enum: [...values], description })

export const AppParams = Type.Object({
  clientId: Type.String({ description: "The app's public client id (app_…)." }),
})
export const UserParams = Type.Object({
  clientId: Type.String({ description: "The app's public client id (app_…)." }),
  externalUserId: Type.String({ description: "The integrator's id of the user, percent-encoded." }),
})
export const KeyParams = Type.Object({
  ...UserParams.properties,
  keyId: Type.String({ description: 'The id of one of its keys.' }),
})

const maxText = 1024
export const text = (description: string) => Type.String({ maxLength: maxText, description })
export const required = (description: string) =>
  Type.String({ minLength: 1, maxLength: maxText, pattern: '\\S', description })

/** Money that pays for one feature only. */
export const FeatureBalances = Type.Array(
  Type.Object({
    featureKey: Type.String({ description: 'A pipeline, or pipeline:modelId.' }),
    balanceUsdMicros: Micros('The remaining amount.'),
  }),
  {
    description:
      'Money that is bound to a feature. No other figure includes it; it pays only for calls of its feature and does not count for hasAccess.',
  },
)

/** The figures of an allowance. */
export const allowanceAmounts = {
  balanceUsdMicros: Micros('The remaining money that may pay for any call, including held money.'),
  consumedUsdMicros: Micros('Consumed this period.'),
  lifetimeGrantedUsdMicros: Micros('Starter and all grants.'),
  hasAccess: Type.Boolean({ description: 'Whether remainingUsdMicros is above 0.' }),
}

/** Why a user can spend nothing. */
export const spendRefusals = [
  'insufficient_balance',
  'no_payment_method',
  'debt_ceiling_reached',
  'owner_debt_ceiling_reached',
] as const

export const canSpend = Type.Boolean({
  description:
    "Whether a call may be allowed: by remaining money or a credit line, also of the app owner's account.",
})
export const spendRefusal = Type.Optional(
  oneOf(spendRefusals, 'Why not, if canSpend is false: the code that the webhook answers.'),
)

/** Query parameters of a paged list. */
export const pageQuery = {
  limit: Type.Optional(
    Type.String({
      pattern: '^([1-9][0-9]{0,2}|1000)$',
      description: 'a whole number from 1 to 1000',
    }),
  ),
  cursor: Type.Optional(text('nextCursor of the page before')),
}

/** The answer of a read if the caller already has the current version. */
export const NotModified = Type.Unsafe<undefined>({
  type: 'null',
  description: 'The ETag of the list, for If-None-Match',
})

/** The answer of a change without other content. */
export const Success = named(
  Type.Object({ success: Type.Boolean(), correlation_id: CorrelationId }),
  'Success',
)
