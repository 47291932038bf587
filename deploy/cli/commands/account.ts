import { dataDirOf, readQuickstart } from '../../all-in-one/data-dir.ts'
import { type Command, UsageError, parse, printJson, printLines, withCore } from '../command.ts'

export const account: Command = {
  summary: "makes people's accounts and lets them set a new password",
  help: `tollgate account create --email EMAIL [--name NAME] [--platform-admin] [--json]
  Makes an account with a password that is shown once. A platform admin owns every app.

tollgate account reset-password --email EMAIL [--json]
  Prints a link that sets a new password, once, within the hour; it also ends every session of the account. The link
  begins with PUBLIC_URL, or with the address of the service in the data directory. Mail is not sent.
`,
  run: async (argv) => {
    const [verb, ...rest] = argv
    if (verb === 'create') return create(rest)
    if (verb === 'reset-password') return resetPassword(rest)
    throw new UsageError('account takes "create" or "reset-password"')
  },
}

async function create(argv: readonly string[]): Promise<number> {
  const { values } = parse(argv, {
    email: { type: 'string' },
    name: { type: 'string' },
    'platform-admin': { type: 'boolean' },
    json: { type: 'boolean' },
  })
  const { email, name = '' } = values
  if (email === undefined) throw new UsageError('account create needs --email')
  const created = await withCore((core) =>
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

async function resetPassword(argv: readonly string[]): Promise<number> {
  const { values } = parse(argv, { email: { type: 'string' }, json: { type: 'boolean' } })
  const { email } = values
  if (email === undefined) throw new UsageError('account reset-password needs --email')
  const { token, expiresAt } = await withCore((core) => core.startPasswordReset({ email }))
  const link = `${await publicUrl()}/reset-password?token=${token}`
  if (values.json) printJson({ link, expiresAt })
  else printLines([link, `  works once, until ${expiresAt}`])
  return 0
}

async function publicUrl(): Promise<string> {
  const given = process.env['PUBLIC_URL']?.trim().replace(/\/+$/, '')
  const issuer = given ? undefined : (await readQuickstart(dataDirOf(process.env)))?.issuer
  const port = process.env['PLATFORM_PORT'] ?? '8080'
  return given || issuer?.replace(/\/api\/v1\/oidc$/, '') || `http://localhost:${port}`
}
