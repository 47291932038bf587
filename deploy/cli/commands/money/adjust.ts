import { type Command, UsageError, changeCore, need, parse } from '../../command.ts'
import { usd } from '../../money.ts'
import { printJson, printLines } from '../../output.ts'
import { readAuthor } from '../quarantine.ts'

export const adjust: Command = {
  summary: 'corrects a balance with a compensating entry',
  help: {
    usages: [
      {
        syntax:
          'tollgate adjust [--app APP] --user EXTERNAL_USER_ID --usd-micros N --reason TEXT [--ticket EVENT_ID] ' +
          '[--overage] [--author NAME] [--key TEXT] [--json]',
        text:
          'Credits a user with N USD micros, or debits them with a negative N (--usd-micros -250000). Existing ' +
          'entries stay unchanged: the ledger gets a new entry with the reason and the author. Credited money never ' +
          'expires and pays for every feature. A debit takes from the allowances in effect, in their usual order, ' +
          'and no balance falls below zero: a larger debit is refused, or, with --overage, the rest is booked as ' +
          'overage.',
      },
    ],
    options: [
      {
        title: 'Options',
        options: [
          [
            '--ticket EVENT_ID',
            "The ticket to correct. The amount returns to the credits that the ticket used, in that order, but never its overage; a debit may use the allowances for the ticket's feature.",
          ],
          [
            '--author NAME',
            'The author of this change; by default the name of the user who runs the command.',
          ],
          [
            '--key TEXT',
            'An idempotency key: a repeat with the same key makes no second adjustment.',
          ],
        ],
      },
    ],
    examples: [
      './tollgate adjust --app app_0123456789abcdef01234567 --user ada --usd-micros 250000 --reason "stream broke off"',
      './tollgate adjust --app app_0123456789abcdef01234567 --user ada --usd-micros -250000 --reason "credited twice" --overage',
    ],
  },
  run: async (argv) => {
    const { values, positionals } = parse(argv, {
      app: { type: 'string' },
      user: { type: 'string' },
      'usd-micros': { type: 'string' },
      reason: { type: 'string' },
      ticket: { type: 'string' },
      overage: { type: 'boolean' },
      author: { type: 'string' },
      key: { type: 'string' },
      json: { type: 'boolean' },
    })
    if (positionals.length > 0) throw new UsageError(`"${positionals[0]}" is not expected here`)
    const needed = ['app', 'user', 'usd-micros', 'reason'] as const
    const { app, user, 'usd-micros': amount, reason } = await need('adjust', values, needed)
    const adjustment = await changeCore(values, (core) =>
      core.createAdjustment({
        clientId: app,
        externalUserId: user,
        amountUsdMicros: amount,
        reason,
        author: readAuthor(values),
        eventId: values.ticket,
        uncovered: values.overage ? 'overage' : 'refuse',
        idempotencyKey: values.key,
      }),
    )
    if (values.json) printJson(adjustment)
    else {
      const overage =
        adjustment.overageUsdMicros === '0'
          ? ''
          : `, of which ${usd({ micros: adjustment.overageUsdMicros })} is overage`
      printLines([
        `${adjustment.id}  ${usd({ micros: adjustment.amountUsdMicros })}${overage}; ` +
          `${adjustment.externalUserId} has ${usd({ micros: adjustment.balanceUsdMicros })} now`,
      ])
    }
    return 0
  },
}
