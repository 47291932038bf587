import { action, createCommand } from '../command.ts'
import { table } from '../output.ts'

export const outbox = createCommand('outbox', {
  summary: 'shows the queue of events for other systems, and retries refused ones',
  examples: ['./tollgate outbox list'],
  actions: {
    list: action({
      text:
        'Shows the number and age of the rows that wait to be sent, and the rows that were set aside after eight ' +
        'refusals of the other system, with its answer.',
      read: (core) => core.outbox.getOutbox({}),
      lines: ({ waiting, waitingSince, setAside, rows }) => [
        `Waiting rows: ${waiting}${waitingSince ? `, the oldest since ${waitingSince}` : ''}`,
        `Rows set aside: ${setAside}`,
        ...(rows.length === 0
          ? []
          : [
              '',
              ...table(rows, [
                'id',
                'kind',
                'items',
                ['created', 'createdAt'],
                ['error', ({ error }) => error.replace(/\p{Cc}/gu, ' ')],
              ]),
            ]),
      ],
    }),
    retry: action({
      text: 'Sends the rows that were set aside again. Use it after the reason is fixed.',
      change: (core) => core.outbox.retryOutbox({}),
      lines: ({ rows }) => [`Rows to retry: ${rows}`],
    }),
  },
})
