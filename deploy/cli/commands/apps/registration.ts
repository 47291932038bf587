import {
  type Command,
  UsageError,
  changeCore,
  need,
  parseOptions,
  runAction,
  withCore,
} from '../../command.ts'
import { printJson, printLines, report, table } from '../../output.ts'

export const registration: Command = {
  summary: 'makes, lists and revokes tokens for client registration with an app',
  help: {
    usages: [
      {
        syntax:
          'tollgate registration token create [--app APP] [--label TEXT] [--uses N] [--days N] [--json]',
        text:
          'Makes an initial access token (RFC 7591): with it N clients (1) may register themselves with the app at the edge, ' +
          'within N days (7). It is shown once.',
      },
      {
        syntax: 'tollgate registration token list [--app APP] [--json]',
        text: 'Lists the tokens of an app and how many clients registered with each, the oldest first.',
      },
      {
        syntax: 'tollgate registration token revoke [--app APP] --id ID [--json]',
        text: 'Revokes a token. Clients that registered with it stay.',
      },
    ],
    examples: [
      './tollgate registration token create --app app_0123456789abcdef01234567 --uses 20 --days 30',
      './tollgate registration token list --app app_0123456789abcdef01234567 --json',
    ],
  },
  run: runAction('registration', { token }),
}

const actions: Readonly<Record<string, (argv: readonly string[]) => Promise<void>>> = {
  create,
  list,
  revoke,
}

async function token([action = '', ...argv]: readonly string[]): Promise<void> {
  const run = Object.hasOwn(actions, action) ? actions[action] : undefined
  if (!run)
    throw new UsageError(`registration token needs one of: ${Object.keys(actions).join(', ')}`)
  return run(argv)
}

async function create(argv: readonly string[]): Promise<void> {
  const values = parseOptions(argv, {
    app: { type: 'string' },
    label: { type: 'string' },
    uses: { type: 'string' },
    days: { type: 'string' },
  })
  const { app: clientId } = await need('registration token create', values, ['app'])
  const request = {
    clientId,
    label: values.label ?? '',
    usesMax: parseCount('--uses', values.uses ?? '1'),
    days: parseCount('--days', values.days ?? '7'),
  }
  const answer = await changeCore(values, (core) => core.createRegistrationToken(request))
  if (values.json) return printJson(answer)
  printLines([
    `${answer.token}   (shown once)`,
    `  id       ${answer.registrationToken?.id ?? ''}`,
    `  expires  ${answer.registrationToken?.expiresAt ?? ''}`,
  ])
}

async function list(argv: readonly string[]): Promise<void> {
  const values = parseOptions(argv, { app: { type: 'string' } })
  const { app: clientId } = await need('registration token list', values, ['app'])
  const { tokens } = await withCore(values, (core) => core.listRegistrationTokens({ clientId }))
  const rows = tokens.map((row) => [
    row.id,
    `${row.uses} of ${row.usesMax}`,
    row.expiresAt,
    row.revokedAt ?? '',
    row.label,
  ])
  report(values, { tokens }, () => table(columns, rows, 'no registration tokens'))
}

const columns = ['id', 'registered', 'expires', 'revoked', 'label']

async function revoke(argv: readonly string[]): Promise<void> {
  const values = parseOptions(argv, { app: { type: 'string' }, id: { type: 'string' } })
  const { app: clientId, id } = await need('registration token revoke', values, ['app', 'id'])
  await changeCore(values, (core) => core.revokeRegistrationToken({ clientId, id }))
  report(values, { id, revoked: true }, () => [`${id} is revoked`])
}

function parseCount(option: string, text: string): number {
  if (/^[1-9]\d{0,5}$/.test(text)) return Number(text)
  throw new UsageError(`${option} must be a whole number above zero`)
}
