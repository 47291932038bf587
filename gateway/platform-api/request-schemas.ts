import { Type } from 'typebox'

/** What several routes take. */

export const AppParams = Type.Object({
  clientId: Type.String({ description: "The app's public client id (app_…)." }),
})
export const UserParams = Type.Object({
  clientId: Type.String({ description: "The app's public client id (app_…)." }),
  externalUserId: Type.String({ description: "The integrator's id of the user, percent-encoded." }),
})

const maxText = 1024
export const text = (description: string) => Type.String({ maxLength: maxText, description })
export const required = (description: string) =>
  Type.String({ minLength: 1, maxLength: maxText, pattern: '\\S', description })
export const pageQuery = {
  limit: Type.Optional(
    Type.String({
      pattern: '^([1-9][0-9]{0,2}|1000)$',
      description: 'a whole number from 1 to 1000',
    }),
  ),
  cursor: Type.Optional(text('nextCursor of the page before')),
}
export const IdempotencyHeader = Type.Object({
  'idempotency-key': Type.Optional(
    Type.String({
      pattern: '^[\\x21-\\x7e]{1,255}$',
      description: '1 to 255 visible ASCII characters',
    }),
  ),
})
