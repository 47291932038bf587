import type { User } from '../../../../proto/gen/ts-proto/tollgate/identity/v1/identity.ts'
import { action, createCommand } from '../../command.ts'
import { usd } from '../../money.ts'
import { app, appUser, page, text, toggle } from '../../options.ts'
import { table } from '../../output.ts'

const lineOf = (name: string, value: string): string => `  ${name.padEnd(19)}${value}`

const linesOf = (user: User | undefined): string[] =>
  user === undefined
    ? []
    : [
        user.externalUserId,
        lineOf('id', user.id),
        lineOf('status', user.status),
        lineOf('email', user.email ?? 'none'),
        lineOf('created', user.createdAt),
        ...(user.deactivatedAt === undefined ? [] : [lineOf('deactivated', user.deactivatedAt)]),
      ]

export const user = createCommand('user', {
  summary: "lists, makes, ends and re-activates an app's users",
  note: 'For credit, limits and corrections see "tollgate grant", "tollgate limits" and "tollgate adjust".',
  examples: [
    './tollgate user list --app app_0123456789abcdef01234567 --status inactive',
    './tollgate user put --app app_0123456789abcdef01234567 --user ada --email ada@example.com',
    './tollgate user deactivate --app app_0123456789abcdef01234567 --user ada',
  ],
  actions: {
    list: action({
      text: 'Lists the users of an app, the oldest first.',
      options: { clientId: app, status: text('active|inactive'), ...page },
      read: (core, request) => core.users.listUsers(request),
      lines: ({ users }) =>
        table(
          users,
          [
            ['user', 'externalUserId'],
            'status',
            ['created', ({ createdAt }) => createdAt.slice(0, 10)],
            'email',
          ],
          'no users',
        ),
    }),
    show: action({
      text: 'Prints a user and its balance.',
      options: appUser,
      read: async (core, request) => {
        const [{ user }, { allowance }] = await Promise.all([
          core.users.getUser(request),
          core.allowances.getAllowance(request),
        ])
        return { user, allowance }
      },
      lines: ({ user, allowance }) => [
        ...linesOf(user),
        lineOf('balance', usd({ micros: allowance?.balanceUsdMicros })),
        lineOf('remaining', `${usd({ micros: allowance?.remainingUsdMicros })}, less held money`),
      ],
    }),
    put: action({
      text: "Creates a user on the app's Starter plan, or changes the address of an existing user.",
      options: { ...appUser, email: text('EMAIL'), clearEmail: toggle({ flag: 'no-email' }) },
      atMostOne: [['email', 'clearEmail']],
      change: (core, request) => core.users.upsertUser(request),
      lines: ({ created, user }) => [created ? 'created' : 'changed', ...linesOf(user)],
    }),
    deactivate: action({
      text: 'Deactivates a user and ends its keys, tokens and sessions. Prints the time by which the last cached permission has expired.',
      options: appUser,
      change: (core, request) => core.users.deactivateUser(request),
      lines: ({ user, effectiveBy }) => [
        ...linesOf(user),
        lineOf('ends everywhere by', effectiveBy),
      ],
    }),
    activate: action({
      text: 'Activates a user again with the same balance. Ended keys and tokens stay invalid.',
      options: appUser,
      change: (core, request) =>
        core.users.updateUser({ ...request, clearEmail: false, status: 'active' }),
      lines: ({ user }) => linesOf(user),
    }),
  },
})
