import { resolveDataDir, readQuickstart } from '../../all-in-one/data-dir.ts'
import {
  type Command,
  UsageError,
  changeCore,
  parse,
  parseOptions,
  parsePageSize,
  runAction,
  withCore,
} from '../command.ts'
import { printJson, printLines, report, table } from '../output.ts'

export const account: Command = {
  summary: 'creates, lists and changes accounts, and makes links to set a new password',
  help: {
    usages: [
      {
        syntax: 'tollgate account create --email EMAIL [--name NAME] [--platform-admin] [--json]',
        text: 'Creates an account with a password that is shown once. A platform admin owns every app.',
      },
      {
        syntax: 'tollgate account reset-password --email EMAIL [--json]',
        text:
          'Prints a link that sets a new password. The link works once and for one hour; it also ends every session ' +
          'of the account. It starts with PUBLIC_URL, or with the address of the service in the data directory. No ' +
          'mail is sent.',
      },
      {
        syntax:
          'tollgate account change (--email EMAIL | --id ID) [--new-email EMAIL] [--platform-admin yes|no] [--json]',
        text: 'Changes the e-mail address of an account, or grants or removes platform admin rights. Its sessions continue.',
      },
      {
        syntax: 'tollgate account list [--limit N] [--cursor TEXT] [--json]',
        text: 'Lists the accounts, the oldest first.',
      },
    ],
    examples: [
      './tollgate account create --email ada@example.com --platform-admin',
      './tollgate account reset-password --email ada@example.com',
    ],
  },
  run: runAction('account', {
    create,
    list,
    'reset-password': resetPassword,
    change,
  }),
}

async function list(argv: readonly string[]): Promise<void> {
  const values = parseOptions(argv, { limit: { type: 'string' }, cursor: { type: 'string' } })
  const limit = parsePageSize(values.limit)
  const { accounts, nextCursor } = await withCore(values, (core) =>
    core.listAccounts({ limit, cursor: values.cursor }),
  )
  const rows = accounts.map(({ account: of, createdAt }) => [
    of?.email ?? '',
    of?.name ?? '',
    of?.isPlatformAdmin ? 'yes' : 'no',
    createdAt.slice(0, 10),
    of?.id ?? '',
  ])
  const all = accounts.map(({ account: of, createdAt }) => ({ ...of, createdAt }))
  report(values, { accounts: all, nextCursor }, () => [
    ...table(['email', 'name', 'platform admin', 'created', 'id'], rows, 'no accounts'),
    ...(nextCursor ? [`more: ./tollgate account list --cursor ${nextCursor}`] : []),
  ])
}

async function create(argv: readonly string[]): Promise<number> {
  const { values } = parse(argv, {
    email: { type: 'string' },
    name: { type: 'string' },
    'platform-admin': { type: 'boolean' },
  })
  const { email, name = '' } = values
  if (email === undefined) throw new UsageError('account create needs --email')
  const created = await changeCore(values, (core) =>
    core.createAccount({
      email,
      name,
      password: undefined,
      isPlatformAdmin: values['platform-admin'] ?? false,
    }),
  )
  if (values.json) printJson(created)
  else
    printLines([
      `Account ${created.account?.email ?? email}`,
      `  password  ${created.password ?? ''}   (shown once)`,
    ])
  return 0
}

async function change(argv: readonly string[]): Promise<number> {
  const { values } = parse(argv, {
    email: { type: 'string' },
    id: { type: 'string' },
    'new-email': { type: 'string' },
    'platform-admin': { type: 'string' },
  })
  const { email, id, 'new-email': newEmail, 'platform-admin': admin } = values
  if ((email === undefined) === (id === undefined))
    throw new UsageError('account change needs --email or --id')
  if (newEmail === undefined && admin === undefined)
    throw new UsageError('account change needs --new-email or --platform-admin')
  if (admin !== undefined && admin !== 'yes' && admin !== 'no')
    throw new UsageError('--platform-admin takes yes or no')
  const isPlatformAdmin = admin === undefined ? undefined : admin === 'yes'
  const { account } = await changeCore(values, (core) =>
    core.changeAccount({ email, id, newEmail, isPlatformAdmin }),
  )
  if (values.json) printJson(account)
  else
    printLines([`Account ${account?.email}${account?.isPlatformAdmin ? ', platform admin' : ''}`])
  return 0
}

async function resetPassword(argv: readonly string[]): Promise<number> {
  const { values } = parse(argv, { email: { type: 'string' } })
  const { email } = values
  if (email === undefined) throw new UsageError('account reset-password needs --email')
  const { token, expiresAt } = await changeCore(values, (core) =>
    core.startPasswordReset({ email }),
  )
  const link = `${await publicUrl()}/reset-password?token=${token}`
  if (values.json) printJson({ link, expiresAt })
  else printLines([link, `  works once, until ${expiresAt}`])
  return 0
}

async function publicUrl(): Promise<string> {
  const configured = process.env['PUBLIC_URL']?.trim().replace(/\/+$/, '')
  const issuer = configured
    ? undefined
    : (await readQuickstart(resolveDataDir(process.env)))?.issuer
  const port = process.env['PLATFORM_PORT'] ?? '8080'
  return configured || issuer?.replace(/\/api\/v1\/oidc$/, '') || `http://localhost:${port}`
}
