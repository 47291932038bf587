import { type Command, UsageError, parse, printJson, printLines, withCore } from '../command.ts'
import { authorOf } from './quarantine.ts'

export const adjust: Command = {
  summary: 'corrects a balance by a compensating entry',
  help: `tollgate adjust --app APP --user EXTERNAL_USER_ID --usd-micros N --reason TEXT
                [--ticket EVENT_ID] [--overage] [--author NAME] [--key TEXT] [--json]
  Gives a user N USD micros, or takes them with a negative N (--usd-micros=-250000). Nothing is edited: an entry is
  added to the ledger, with the reason and the author, who is the name of who runs the command unless it is given.
  Given money is spent like a grant's, on anything, without an end. Money is taken from the allowances in effect, in
  the order in which they burn, and never below zero: a debit of more than there is is refused, or, with --overage,
  what is missing is booked as overage. --ticket names the ticket that is corrected: no more than its cost is given
  back for it, and what is taken may come from allowances for its feature. With the same --key it is done once.
`,
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
    const { app, user, 'usd-micros': amount, reason } = values
    if (
      app === undefined ||
      user === undefined ||
      amount === undefined ||
      reason === undefined ||
      positionals.length > 0
    ) {
      throw new UsageError('adjust needs --app, --user, --usd-micros and --reason')
    }
    const made = await withCore((core) =>
      core.createAdjustment({
        clientId: app,
        externalUserId: user,
        amountUsdMicros: amount,
        reason,
        author: authorOf(values),
        eventId: values.ticket,
        uncovered: values.overage ? 'overage' : 'refuse',
        idempotencyKey: values.key,
      }),
    )
    if (values.json) printJson(made)
    else {
      const overage =
        made.overageUsdMicros === '0' ? '' : `, ${made.overageUsdMicros} of it overage`
      printLines([
        `${made.id}  ${made.amountUsdMicros} USD micros${overage}; ${made.externalUserId} has ${made.balanceUsdMicros} now`,
      ])
    }
    return 0
  },
}
