import { readEnvironment } from '../../../core/lib/settings/environment.ts'
import { resolveDataDir, readQuickstart } from '../../local/data-dir.ts'
import { action, createCommand } from '../command.ts'
import { UsageError, page, parseYesNo, parsed, required, text, toggle } from '../options.ts'
import { dollars, usd } from '../money.ts'
import { properties, table } from '../output.ts'

const create = action({
  text: 'Creates an account with a password that is shown once. A platform admin owns every app.',
  options: {
    email: required('EMAIL'),
    name: text('NAME', { fallback: '' }),
    isPlatformAdmin: toggle({ flag: 'platform-admin' }),
  },
  change: (core, request) => core.accounts.createAccount({ ...request, password: undefined }),
  lines: ({ account, password = '' }, { email }) => [
    `Account ${account?.email ?? email}`,
    `  password  ${password}   (shown once)`,
  ],
})

const resetPassword = action({
  text:
    'Prints a link that sets a new password. The link works once and for one hour; it also ends every session ' +
    'of the account. It starts with PUBLIC_URL, or with the address of the service in the data directory. No ' +
    'mail is sent.',
  options: { email: required('EMAIL') },
  change: async (core, request) => {
    const { token, expiresAt } = await core.accounts.startPasswordReset(request)
    return { link: `${await publicUrl()}/reset-password?token=${token}`, expiresAt }
  },
  lines: ({ link, expiresAt }) => [link, `  works once, until ${expiresAt}`],
})

async function publicUrl(): Promise<string> {
  const { env } = await readEnvironment(process.env)
  const configured = env['PUBLIC_URL']?.trim().replace(/\/+$/, '')
  const issuer = configured ? undefined : (await readQuickstart(resolveDataDir(env)))?.issuer
  const port = env['PLATFORM_PORT'] ?? '8080'
  return configured || issuer?.replace(/\/api\/v1\/oidc$/, '') || `http://localhost:${port}`
}

const change = action({
  text: 'Changes the e-mail address of an account, or grants or removes platform admin rights. Its sessions continue.',
  options: {
    email: text('EMAIL'),
    id: text('ID'),
    newEmail: text('EMAIL'),
    isPlatformAdmin: parsed(text('yes|no', { flag: 'platform-admin' }), parseYesNo),
  },
  oneOf: [['email', 'id']],
  change: async (core, request) => {
    if (request.newEmail === undefined && request.isPlatformAdmin === undefined)
      throw new UsageError('account change needs --new-email or --platform-admin')
    return (await core.accounts.updateAccount(request)).account
  },
  lines: (account) => [
    `Account ${account?.email}${account?.isPlatformAdmin ? ', platform admin' : ''}`,
  ],
})

const list = action({
  text: 'Lists the accounts, the oldest first.',
  options: page,
  read: async (core, request) => {
    const { accounts, nextCursor } = await core.accounts.listAccounts(request)
    return {
      accounts: accounts.map(({ account, createdAt }) => ({ ...account, createdAt })),
      nextCursor,
    }
  },
  lines: ({ accounts }) =>
    table(
      accounts,
      [
        'email',
        'name',
        ['platform admin', ({ isPlatformAdmin }) => isPlatformAdmin ?? false],
        ['created', ({ createdAt }) => createdAt.slice(0, 10)],
        'id',
      ],
      'no accounts',
    ),
})

const show = action({
  text:
    'Prints what an account pays for the apps that it owns: its plan in the platform app, what is left of ' +
    'included usage and credit, and the owner charges of the running period by app.',
  options: { email: required('EMAIL') },
  read: async (core, { email }) => {
    const { account: owner } = await core.ownerAccounts.getOwnerAccount({
      email,
      clientId: undefined,
    })
    if (!owner) throw new Error("core's answer lacks the account")
    return owner
  },
  lines: ({ charges, plan, subscription, ...owner }) => [
    ...properties([
      ['account', owner.email],
      ['user', `${owner.externalUserId} of ${owner.platformClientId}`],
      ['plan', plan ? `${plan.name} (${plan.id})` : 'none; it was never charged'],
      ['period ends', subscription?.currentPeriodEnd],
      ['left', usd({ micros: owner.balanceUsdMicros })],
      ['overage', usd({ micros: owner.overageUsdMicros })],
    ]),
    ...table(
      charges,
      [
        'clientId',
        ['tickets', ({ ticketCount }) => ticketCount],
        ['USD', ({ ownerChargeUsdMicros: micros }) => dollars({ micros })],
        'name',
      ],
      'no owner charges in this period',
    ),
  ],
})

export const account = createCommand('account', {
  summary: 'creates, lists, shows and changes accounts, and makes links to set a new password',
  examples: [
    './tollgate account create --email ada@example.com --platform-admin',
    './tollgate account reset-password --email ada@example.com',
    './tollgate account show --email ada@example.com',
  ],
  actions: { create, 'reset-password': resetPassword, change, list, show },
})
