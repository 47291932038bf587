import { action, createCommand } from '../../command.ts'
import { app, integer, text, toggle } from '../../options.ts'
import { table } from '../../output.ts'

export const collect = createCommand('collect', {
  summary: 'collects what payers owe, and lists collections',
  examples: [
    './tollgate collect now --app app_0123456789abcdef01234567 --user ada',
    './tollgate collect list --app app_0123456789abcdef01234567 --open',
  ],
  actions: {
    now: action({
      text: 'Invoices what a payer owes, charges the card on file, and tries unpaid invoices again. Less than 0.50 USD is skipped; a second request within 60 seconds is not queued.',
      options: {
        clientId: app,
        externalUserId: text('USER', {
          flag: 'user',
          meaning: 'The user who pays; required in billing mode merchant, otherwise ignored.',
        }),
      },
      change: (core, request) => core.collections.collectDebt(request),
      lines: ({ outcome, invoiceIds, reason }) => [
        reason === undefined ? outcome : `${outcome}: ${reason}`,
        ...invoiceIds.map((id) => `invoice ${id} is charged again`),
      ],
    }),
    list: action({
      text: 'Lists the collections of an app, the newest first: why each was raised, its invoice, and when a failed one is tried again.',
      options: {
        clientId: app,
        externalUserId: text('USER', { flag: 'user', meaning: 'Only those of this user.' }),
        open: toggle({ meaning: 'Only collections that have not ended.' }),
        limit: integer('N', { from: 1, to: 1_000, fallback: 100 }),
        cursor: text('CURSOR'),
      },
      read: (core, request) => core.collections.listCollections(request),
      lines: ({ collections }) =>
        table(
          collections,
          [
            ['requested', ({ requestedAt }) => requestedAt.slice(0, 19)],
            ['user', ({ externalUserId }) => externalUserId],
            'reason',
            'state',
            ['USD', ({ totalUsd }) => totalUsd ?? ''],
            ['due', ({ dueAt }) => dueAt?.slice(0, 19) ?? ''],
            ['failure', ({ failure }) => failure ?? ''],
          ],
          'no collections',
        ),
    }),
  },
})
