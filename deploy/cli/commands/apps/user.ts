import type { User } from '../../../../proto/gen/ts-proto/tollgate/identity/v1/identity.ts'
import {
  type Command,
  UsageError,
  changeCore,
  need,
  parseOptions,
  parsePageSize,
  runAction,
  withCore,
} from '../../command.ts'
import { usd } from '../../money.ts'
import { printJson, printLines, printable, report, table } from '../../output.ts'

const subject = {
  app: { type: 'string' },
  user: { type: 'string' },
} as const

export const user: Command = {
  summary: "lists, makes, ends and re-activates an app's users",
  help: {
    usages: [
      {
        syntax:
          'tollgate user list [--app APP] [--status active|inactive] [--limit N] [--cursor TEXT] [--json]',
        text: 'Lists the users of an app, the oldest first.',
      },
      {
        syntax: 'tollgate user show [--app APP] --user EXTERNAL_USER_ID [--json]',
        text: 'Prints a user and its balance.',
      },
      {
        syntax:
          'tollgate user put [--app APP] --user EXTERNAL_USER_ID [--email EMAIL | --no-email] [--json]',
        text: "Creates a user on the app's Starter plan, or changes the address of an existing user.",
      },
      {
        syntax: 'tollgate user deactivate [--app APP] --user EXTERNAL_USER_ID [--json]',
        text: 'Deactivates a user and ends its keys, tokens and sessions. Prints the time by which the last cached permission has expired.',
      },
      {
        syntax: 'tollgate user activate [--app APP] --user EXTERNAL_USER_ID [--json]',
        text: 'Activates a user again with the same balance. Ended keys and tokens stay invalid.',
      },
    ],
    note: 'For credit, limits and corrections see "tollgate grant", "tollgate limits" and "tollgate adjust".',
    examples: [
      './tollgate user list --app app_0123456789abcdef01234567 --status inactive',
      './tollgate user put --app app_0123456789abcdef01234567 --user ada --email ada@example.com',
      './tollgate user deactivate --app app_0123456789abcdef01234567 --user ada',
    ],
  },
  run: runAction('user', { list, show, put, deactivate, activate }),
}

async function list(argv: readonly string[]): Promise<void> {
  const values = parseOptions(argv, {
    app: { type: 'string' },
    status: { type: 'string' },
    limit: { type: 'string' },
    cursor: { type: 'string' },
  })
  const { app: clientId } = await need('user list', values, ['app'])
  const { status, cursor } = values
  const limit = parsePageSize(values.limit)
  const { users, nextCursor } = await withCore(values, (core) =>
    core.listAppUsers({ clientId, status, limit, cursor }),
  )
  const rows = users.map((each) => [
    each.externalUserId,
    each.status,
    each.createdAt.slice(0, 10),
    each.email ?? '',
  ])
  report(values, { users, nextCursor }, () => [
    ...table(['user', 'status', 'created', 'email'], rows, 'no users'),
    ...(nextCursor ? [`more: ./tollgate user list --app ${clientId} --cursor ${nextCursor}`] : []),
  ])
}

async function show(argv: readonly string[]): Promise<void> {
  const values = parseOptions(argv, subject)
  const request = await requestOf('user show', values)
  const [{ user: answer }, { allowance }] = await withCore(values, (core) =>
    Promise.all([core.getAppUser(request), core.readAllowance(request)]),
  )
  report(values, { user: answer, allowance }, () => [
    ...linesOf(answer),
    lineOf('balance', usd({ micros: allowance?.balanceUsdMicros })),
    lineOf('remaining', `${usd({ micros: allowance?.remainingUsdMicros })}, less held money`),
  ])
}

async function put(argv: readonly string[]): Promise<void> {
  const values = parseOptions(argv, {
    ...subject,
    email: { type: 'string' },
    'no-email': { type: 'boolean' },
  })
  const clearEmail = values['no-email'] ?? false
  if (clearEmail && values.email !== undefined)
    throw new UsageError('user put takes --email or --no-email')
  const request = { ...(await requestOf('user put', values)), email: values.email, clearEmail }
  const answer = await changeCore(values, (core) => core.putAppUser(request))
  if (values.json) return printJson(answer)
  printLines([answer.created ? 'created' : 'changed', ...linesOf(answer.user)])
}

async function deactivate(argv: readonly string[]): Promise<void> {
  const values = parseOptions(argv, subject)
  const request = await requestOf('user deactivate', values)
  const answer = await changeCore(values, (core) => core.deactivateAppUser(request))
  if (values.json) return printJson(answer)
  printLines([...linesOf(answer.user), lineOf('ends everywhere by', answer.effectiveBy)])
}

async function activate(argv: readonly string[]): Promise<void> {
  const values = parseOptions(argv, subject)
  const request = await requestOf('user activate', values)
  const answer = await changeCore(values, (core) => core.activateAppUser(request))
  if (values.json) return printJson(answer)
  printLines(linesOf(answer.user))
}

async function requestOf(
  command: string,
  values: { readonly app?: string | undefined; readonly user?: string | undefined },
) {
  const { app: clientId, user: externalUserId } = await need(command, values, ['app', 'user'])
  return { clientId, externalUserId }
}

const linesOf = (answer: User | undefined): string[] =>
  answer === undefined
    ? []
    : [
        printable(answer.externalUserId),
        lineOf('id', answer.id),
        lineOf('status', answer.status),
        lineOf('email', answer.email ?? 'none'),
        lineOf('created', answer.createdAt),
        ...(answer.deactivatedAt === undefined
          ? []
          : [lineOf('deactivated', answer.deactivatedAt)]),
      ]

const lineOf = (name: string, value: string): string => `  ${name.padEnd(19)}${printable(value)}`
