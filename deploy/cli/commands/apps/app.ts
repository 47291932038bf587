import {
  type Command,
  changeCore,
  need,
  parseOptions,
  parsePageSize,
  runAction,
  withCore,
} from '../../command.ts'
import { printJson, printLines } from '../../output.ts'

export const app: Command = {
  summary: 'creates and lists apps',
  help: {
    usages: [
      {
        syntax:
          'tollgate app create --name NAME [--owner EMAIL] [--starter-usd-micros N] [--customer] [--test] [--json]',
        text:
          'Creates an app with its public client (app_…), its M2M client (m2m_…) and secret, a Starter plan and, ' +
          "with --owner, the owner's account. The secret and a new owner's password are shown once. " +
          "The app is platform-owned; with --customer it is a customer's. " +
          'With --test it is a test app, which has a clock (tollgate test-clock), and stays one for ever.',
      },
      {
        syntax: 'tollgate app list [--limit N] [--cursor TEXT] [--json]',
        text: 'Lists apps, the oldest first.',
      },
    ],
    examples: [
      'npx tollgate app create --name "My app" --owner me@example.com',
      'npx tollgate app list --json',
    ],
  },
  run: runAction('app', { create, list }),
}

async function create(argv: readonly string[]): Promise<void> {
  const values = parseOptions(argv, {
    name: { type: 'string' },
    owner: { type: 'string' },
    'starter-usd-micros': { type: 'string' },
    customer: { type: 'boolean' },
    test: { type: 'boolean' },
    json: { type: 'boolean' },
  })
  const { name } = need('app create', values, ['name'])
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
    json: { type: 'boolean' },
  })
  const limit = parsePageSize(values.limit)
  const { apps, nextCursor } = await withCore(values, (core) =>
    core.listApps({ limit, cursor: values.cursor }),
  )
  if (values.json) printJson({ apps, nextCursor })
  else if (apps.length === 0)
    printLines(['No apps yet; make one with: npx tollgate app create --name NAME'])
  else {
    printLines(
      apps.map(
        (item) =>
          `${item.clientId}  ${item.m2mClientId}  ${item.createdAt.slice(0, 10)}  ${item.name}${item.isTest ? ' (test app)' : ''}`,
      ),
    )
    if (nextCursor) printLines([`more: npx tollgate app list --cursor ${nextCursor}`])
  }
}
