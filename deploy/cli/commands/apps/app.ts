import type { ManagedApp } from '../../../../proto/gen/ts-proto/tollgate/identity/v1/management.ts'
import { action, createCommand } from '../../command.ts'
import { app as appOption, page, required, text, toggle } from '../../options.ts'
import { properties, table } from '../../output.ts'

interface NamedApp {
  readonly name: string
  readonly isTest: boolean
  readonly isPlatformApp?: boolean
}

const nameOf = ({ name, isTest, isPlatformApp = false }: NamedApp): string =>
  `${name}${isTest ? ' (test app)' : ''}${isPlatformApp ? ' (platform app: its users are owners)' : ''}`

const create = action({
  text:
    'Creates an app with its public client (app_…), its M2M client (m2m_…) and secret, a Starter plan and, ' +
    "with --owner, the owner's account. The secret and a new owner's password are shown once. The app is " +
    "platform-owned; with --customer it is a customer's. With --test it is a test app with a clock (tollgate " +
    'test-clock); this cannot be changed later.',
  options: {
    name: required('NAME'),
    ownerEmail: text('EMAIL', { flag: 'owner' }),
    starterUsdMicros: text('N'),
    isCustomer: toggle({ flag: 'customer' }),
    isTest: toggle({ flag: 'test' }),
  },
  change: (core, request) => core.apps.createApp({ ...request, ownerPassword: undefined }),
  lines: (created) => [
    `App ${nameOf(created)}`,
    `  clientId         ${created.clientId}`,
    `  m2mClientId      ${created.m2mClientId}`,
    `  m2mClientSecret  ${created.m2mClientSecret}   (shown once)`,
    `  platform-owned   ${created.isPlatformOwned ? 'yes' : "no, a customer's"}`,
    ...(created.ownerPassword
      ? [
          `  owner            ${created.ownerEmail} with password ${created.ownerPassword}   (shown once)`,
        ]
      : []),
  ],
})

const list = action({
  text: 'Lists apps, the oldest first.',
  options: page,
  read: (core, request) => core.apps.listApps(request),
  lines: ({ apps, nextCursor }) => [
    ...table(
      apps,
      [
        'clientId',
        'm2mClientId',
        ['created', (one) => one.createdAt.slice(0, 10)],
        ['name', nameOf],
      ],
      'no apps',
    ),
    ...(nextCursor === undefined && apps.every(({ isPlatformApp }) => isPlatformApp)
      ? ['No apps yet; make one with: ./tollgate app create --name NAME']
      : []),
  ],
})

const show = action({
  text: 'Prints an app with its owners, clients, domains, signer and billing mode.',
  options: { clientId: appOption },
  read: async (core, { clientId }) => {
    const [{ app: managed }, { members }, { settings }] = await Promise.all([
      core.management.getApp({ clientId }),
      core.management.listMembers({ clientId }),
      core.billing.getBillingSettings({ clientId }),
    ])
    if (!managed) throw new Error("core's answer lacks the app")
    return { ...managed, members, billing: settings }
  },
  lines: ({ members, billing, ...managed }) => {
    const owners = members.filter(({ role }) => role === 'owner').map(({ email }) => email)
    return properties([
      ['name', nameOf(managed)],
      ['status', managed.status],
      ['created', managed.createdAt],
      ['developer', managed.developerName || undefined],
      ['website', managed.websiteUrl || undefined],
      ...clientRows(managed),
      ['owners', owners.join(', ') || 'none'],
      ['login policy', [managed.loginPolicy, ...managed.loginDomains].join(' ')],
      ...managed.domains.map(({ origin }) => ['domain', origin] as const),
      ['signer', managed.dmzUrl || undefined],
      ['events', managed.meteringMode],
      ['billing mode', billing?.billingMode],
      ['platform-owned', billing?.isPlatformOwned ?? false],
    ])
  },
})

const clientRows = ({ clientId, oidcClient: client, m2mOidcClient: m2m }: ManagedApp) => [
  ['clientId', clientId] as const,
  ['m2mClientId', `${m2m?.clientId ?? ''}${m2m?.hasSecret ? '' : ' (no secret works)'}`] as const,
  ...(client?.redirectUris ?? []).map((uri) => ['logins end at', uri] as const),
  ['scopes', client?.allowedScopes.join(' ')] as const,
]

export const app = createCommand('app', {
  summary: 'creates, lists and shows apps',
  examples: [
    './tollgate app create --name "My app" --owner me@example.com',
    './tollgate app list --json',
  ],
  actions: { create, list, show },
})
