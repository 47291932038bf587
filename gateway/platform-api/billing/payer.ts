import { Type } from 'typebox'
import { oneOf, text } from '../schemas.ts'

/** The members of a query or body that name the payer. */
export const payerFields = {
  externalUserId: Type.Optional(
    text('The user who pays; required in billing mode merchant, otherwise ignored.'),
  ),
  payer: Type.Optional(
    oneOf(
      ['owner'],
      "The app's owner pays, in any billing mode. For a session of the account that pays for the app; 403 for others. Not together with externalUserId.",
    ),
  ),
}
