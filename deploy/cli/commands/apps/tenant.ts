import type { Tenant } from '../../../../proto/gen/ts-proto/tollgate/identity/v1/tenants.ts'
import {
  type Command,
  UsageError,
  changeCore,
  parse,
  parsePageSize,
  withCore,
} from '../../command.ts'
import { printJson, printLines, table } from '../../output.ts'

const options = {
  'overlap-seconds': { type: 'string' },
  'keep-keys': { type: 'boolean' },
  limit: { type: 'string' },
  cursor: { type: 'string' },
} as const

type Values = ReturnType<typeof parse<typeof options>>['values']

export const tenant: Command = {
  summary: 'lets apps create users at the builder API with an admin secret',
  help: {
    usages: [
      {
        syntax: 'tollgate tenant create APP [--json]',
        text: "Makes an app a tenant of the builder API and prints its admin secret once. The tenant's name is the app's client id (app_…).",
      },
      {
        syntax: 'tollgate tenant list [--limit N] [--cursor TEXT] [--json]',
        text: 'Lists tenants, the oldest first.',
      },
      {
        syntax: 'tollgate tenant rotate APP [--overlap-seconds N] [--keep-keys] [--json]',
        text: 'Makes a new secret. The old secrets stay valid for N seconds, a day by default; 0 ends them at once, together with the API keys that were issued with them unless --keep-keys is set.',
      },
      {
        syntax: 'tollgate tenant disable APP [--json]',
        text: 'Refuses the secrets of a tenant until it is enabled. Users and their keys keep working.',
      },
      { syntax: 'tollgate tenant enable APP [--json]', text: 'Enables a disabled tenant.' },
    ],
    examples: [
      './tollgate tenant create app_0123456789abcdef01234567',
      './tollgate tenant rotate app_0123456789abcdef01234567 --overlap-seconds 3600',
    ],
  },
  run: async (argv) => {
    const { values, positionals } = parse(argv, options)
    const [action = '', clientId = '', ...rest] = positionals
    const act = actions.get(action)
    if (!act || rest.length > 0)
      throw new UsageError('tenant needs create, list, rotate, disable or enable')
    if (action !== 'list' && clientId === '')
      throw new UsageError(`tenant ${action} needs the client id of an app`)
    await act(clientId, values)
    return 0
  },
}

async function create(clientId: string, values: Values): Promise<void> {
  const answer = await changeCore(values, (core) => core.createTenant({ clientId }))
  if (values.json) return printJson(answer)
  printLines([...linesOf(answer.tenant), secretLine(answer)])
}

async function list(_clientId: string, values: Values): Promise<void> {
  const filter = { limit: parsePageSize(values.limit), cursor: values.cursor }
  const { tenants, nextCursor } = await withCore(values, (core) => core.listTenants(filter))
  if (values.json) return printJson({ tenants, nextCursor })
  if (tenants.length === 0)
    return printLines(['No tenants yet; make one with: ./tollgate tenant create APP'])
  const more = nextCursor === undefined ? [] : [`more: --cursor ${nextCursor}`]
  printLines([...tableOf(tenants), ...more])
}

async function rotate(clientId: string, values: Values): Promise<void> {
  const overlapSeconds = Number(values['overlap-seconds'] ?? 86_400)
  if (!Number.isInteger(overlapSeconds) || overlapSeconds < 0)
    throw new UsageError('--overlap-seconds must be a whole number')
  const keepKeys = values['keep-keys'] ?? false
  const request = { clientId, overlapSeconds, keepKeys }
  const answer = await changeCore(values, (core) => core.rotateTenantSecret(request))
  if (values.json) return printJson(answer)
  printLines([
    secretLine(answer),
    `the old secrets end at ${answer.oldSecretsExpireAt}; ${answer.revokedKeys} keys ended with them`,
  ])
}

async function disable(clientId: string, values: Values): Promise<void> {
  const answer = await changeCore(values, (core) => core.disableTenant({ clientId }))
  if (values.json) return printJson(answer)
  printLines(linesOf(answer.tenant))
}

async function enable(clientId: string, values: Values): Promise<void> {
  const answer = await changeCore(values, (core) => core.enableTenant({ clientId }))
  if (values.json) return printJson(answer)
  printLines(linesOf(answer.tenant))
}

const actions = new Map([
  ['create', create],
  ['list', list],
  ['rotate', rotate],
  ['disable', disable],
  ['enable', enable],
])

const linesOf = (tenant: Tenant | undefined): string[] => (tenant ? tableOf([tenant]) : [])

const tableOf = (tenants: readonly Tenant[]): string[] =>
  table(
    ['tenant', 'app', 'status', 'secrets', 'since'],
    tenants.map(({ clientId, appName, status, secrets, createdAt }) => [
      clientId,
      appName,
      status,
      String(secrets),
      createdAt,
    ]),
  )

const secretLine = ({ secret }: { readonly secret: string }): string =>
  `secret (shown once): ${secret}`
