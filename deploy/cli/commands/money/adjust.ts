import { action, createCommand } from '../../command.ts'
import { usd } from '../../money.ts'
import { type Option, appUser, author, idempotencyKey, required, text } from '../../options.ts'

const uncovered: Option<string> = {
  flag: 'overage',
  convert: (word) => (word.length > 0 ? 'overage' : 'refuse'),
}

export const adjust = createCommand('adjust', {
  summary: 'corrects a balance with a compensating entry',
  examples: [
    './tollgate adjust --app app_0123456789abcdef01234567 --user ada --usd-micros 250000 --reason "stream broke off"',
    './tollgate adjust --app app_0123456789abcdef01234567 --user ada --usd-micros -250000 --reason "credited twice" --overage',
  ],
  action: action({
    text:
      'Credits a user with N USD micros, or debits them with a negative N (--usd-micros -250000). Existing ' +
      'entries stay unchanged: the ledger gets a new entry with the reason and the author. Credited money never ' +
      'expires and pays for every feature. A debit takes from the allowances in effect, in their usual order, ' +
      'and no balance falls below zero: a larger debit is refused, or, with --overage, the rest is booked as ' +
      'overage.',
    options: {
      ...appUser,
      amountUsdMicros: required('N', { flag: 'usd-micros' }),
      reason: required('TEXT'),
      eventId: text('EVENT_ID', {
        flag: 'ticket',
        meaning:
          "The ticket to correct. The amount returns to the credits that the ticket used, in that order, but never its overage; a debit may use the allowances for the ticket's feature.",
      }),
      uncovered,
      author,
      idempotencyKey: idempotencyKey('makes no second adjustment'),
    },
    change: (core, request) => core.allowances.createAdjustment(request),
    lines: ({ id, externalUserId, amountUsdMicros, overageUsdMicros, balanceUsdMicros }) => {
      const overage =
        overageUsdMicros === '0' ? '' : `, of which ${usd({ micros: overageUsdMicros })} is overage`
      return [
        `${id}  ${usd({ micros: amountUsdMicros })}${overage}; ` +
          `${externalUserId} has ${usd({ micros: balanceUsdMicros })} now`,
      ]
    },
  }),
})
