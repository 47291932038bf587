import type { BillingSettings } from '../../../../proto/gen/ts-proto/tollgate/billing/v1/billing.ts'
import type {
  ManagedApp,
  Member,
} from '../../../../proto/gen/ts-proto/tollgate/identity/v1/management.ts'
import {
  type Command,
  changeCore,
  need,
  parseOptions,
  parsePageSize,
  runAction,
  withCore,
} from '../../command.ts'
import { printJson, printLines, properties, report, table } from '../../output.ts'

export const app: Command = {
  summary: 'creates, lists and shows apps',
  help: {
    usages: [
      {
        syntax:
          'tollgate app create --name NAME [--owner EMAIL] [--starter-usd-micros N] [--customer] [--test] [--json]',
        text:
          'Creates an app with its public client (app_…), its M2M client (m2m_…) and secret, a Starter plan and, ' +
          "with --owner, the owner's account. The secret and a new owner's password are shown once. The app is " +
          "platform-owned; with --customer it is a customer's. With --test it is a test app with a clock (tollgate " +
          'test-clock); this cannot be changed later.',
      },
      {
        syntax: 'tollgate app list [--limit N] [--cursor TEXT] [--json]',
        text: 'Lists apps, the oldest first.',
      },
      {
        syntax: 'tollgate app show [--app APP] [--json]',
        text: 'Prints an app with its owners, clients, domains, signer and billing mode.',
      },
    ],
    examples: [
      './tollgate app create --name "My app" --owner me@example.com',
      './tollgate app list --json',
    ],
  },
  run: runAction('app', { create, list, show }),
}

async function create(argv: readonly string[]): Promise<void> {
  const values = parseOptions(argv, {
    name: { type: 'string' },
    owner: { type: 'string' },
    'starter-usd-micros': { type: 'string' },
    customer: { type: 'boolean' },
    test: { type: 'boolean' },
  })
  const { name } = await need('app create', values, ['name'])
  const created = await changeCore(values, (core) =>
    core.createApp({
      name,
      ownerEmail: values.owner,
      ownerPassword: undefined,
      starterUsdMicros: values['starter-usd-micros'],
      isTest: values.test,
      isCustomer: values.customer,
    }),
  )
  if (values.json) printJson(created)
  else {
    printLines([
      `App ${created.name}${created.isTest ? ' (test app)' : ''}`,
      `  clientId         ${created.clientId}`,
      `  m2mClientId      ${created.m2mClientId}`,
      `  m2mClientSecret  ${created.m2mClientSecret}   (shown once)`,
      `  platform-owned   ${created.isPlatformOwned ? 'yes' : "no, a customer's"}`,
      ...(created.ownerPassword
        ? [
            `  owner            ${created.ownerEmail} with password ${created.ownerPassword}   (shown once)`,
          ]
        : []),
    ])
  }
}

async function list(argv: readonly string[]): Promise<void> {
  const values = parseOptions(argv, {
    limit: { type: 'string' },
    cursor: { type: 'string' },
  })
  const limit = parsePageSize(values.limit)
  const { apps, nextCursor } = await withCore(values, (core) =>
    core.listApps({ limit, cursor: values.cursor }),
  )
  const rows = apps.map((item) => [
    item.clientId,
    item.m2mClientId,
    item.createdAt.slice(0, 10),
    `${item.name}${item.isTest ? ' (test app)' : ''}`,
  ])
  const none = 'No apps yet; make one with: ./tollgate app create --name NAME'
  report(values, { apps, nextCursor }, () => [
    ...table(['clientId', 'm2mClientId', 'created', 'name'], rows, none),
    ...(nextCursor ? [`more: ./tollgate app list --cursor ${nextCursor}`] : []),
  ])
}

async function show(argv: readonly string[]): Promise<void> {
  const values = parseOptions(argv, { app: { type: 'string' } })
  const { app: clientId } = await need('app show', values, ['app'])
  const [{ app: managed }, { members }, { settings }] = await withCore(values, (core) =>
    Promise.all([
      core.readApp({ clientId }),
      core.listAppMembers({ clientId }),
      core.readBillingSettings({ clientId }),
    ]),
  )
  report(values, { ...managed, members, billing: settings }, () =>
    managed ? linesOf(managed, { members, settings }) : [],
  )
}

interface AppFacts {
  readonly members: readonly Member[]
  readonly settings: BillingSettings | undefined
}

const linesOf = (managed: ManagedApp, facts: AppFacts): string[] =>
  properties([...identityRows(managed), ...clientRows(managed), ...settingRows(managed, facts)])

type Row = [name: string, value: string | undefined]

const identityRows = (managed: ManagedApp): Row[] => [
  ['name', `${managed.name}${managed.isTest ? ' (test app)' : ''}`],
  ['status', managed.status],
  ['created', managed.createdAt],
  ['developer', managed.developerName || undefined],
  ['website', managed.websiteUrl || undefined],
]

const clientRows = ({ clientId, oidcClient: client, m2mOidcClient: m2m }: ManagedApp): Row[] => [
  ['clientId', clientId],
  ['m2mClientId', `${m2m?.clientId ?? ''}${m2m?.hasSecret ? '' : ' (no secret works)'}`],
  ...(client?.redirectUris ?? []).map((uri): Row => ['logins end at', uri]),
  ['scopes', client?.allowedScopes.join(' ')],
]

const settingRows = (managed: ManagedApp, { members, settings }: AppFacts): Row[] => {
  const owners = members.filter(({ role }) => role === 'owner').map(({ email }) => email)
  return [
    ['owners', owners.join(', ') || 'none'],
    ['login policy', [managed.loginPolicy, ...managed.loginDomains].join(' ')],
    ...managed.domains.map(({ origin }): Row => ['domain', origin]),
    ['signer', managed.dmzUrl || undefined],
    ['events', managed.meteringMode],
    ['billing mode', settings?.billingMode],
    ['platform-owned', settings?.isPlatformOwned ? 'yes' : 'no'],
  ]
}
