import type {
  SignerCredentials,
  SignerInfo,
} from '../../../proto/gen/ts-proto/tollgate/signer/v1/signers.ts'
import { type Command, UsageError, changeCore, parse, withCore } from '../command.ts'
import { printJson, printLines, report, table } from '../output.ts'

const options = {
  app: { type: 'string', multiple: true },
  'all-apps': { type: 'boolean' },
  events: { type: 'boolean' },
  'overlap-seconds': { type: 'string' },
} as const

type Values = ReturnType<typeof parse<typeof options>>['values']

export const signer: Command = {
  summary: 'makes, lists, changes and removes signers',
  help: {
    usages: [
      {
        syntax: 'tollgate signer create NAME (--app APP... | --all-apps) [--events] [--json]',
        text: 'Makes a signer that signs for these apps only, and prints its secrets once. With --events it may also push the events of those apps, with a separate secret.',
      },
      {
        syntax: 'tollgate signer list [--json]',
        text: 'Lists signers and their apps. The signer with WEBHOOK_SECRET, which signs for all apps, is not listed.',
      },
      {
        syntax: 'tollgate signer rotate NAME [--overlap-seconds N] [--json]',
        text: 'Makes new secrets. The old secrets stay valid for N seconds, a day by default; 0 ends them at once.',
      },
      {
        syntax: 'tollgate signer apps NAME (--app APP... | --all-apps) [--json]',
        text: 'Replaces the apps that a signer signs for.',
      },
      { syntax: 'tollgate signer remove NAME [--json]', text: 'Removes a signer and its secrets.' },
    ],
    examples: [
      './tollgate signer create north --app app_0123456789abcdef01234567 --events',
      './tollgate signer rotate north --overlap-seconds 3600',
    ],
  },
  run: async (argv) => {
    const { values, positionals } = parse(argv, options)
    const [action = '', name = '', ...rest] = positionals
    const act = actions.get(action)
    if (!act || rest.length > 0)
      throw new UsageError('signer needs create, list, rotate, apps or remove')
    if (action !== 'list' && name === '') throw new UsageError(`signer ${action} needs a name`)
    await act(name, values)
    return 0
  },
}

async function create(name: string, values: Values): Promise<void> {
  const request = { name, ...appsOf(values), mayPushEvents: values.events ?? false }
  const answer = await changeCore(values, (core) => core.createSigner(request))
  if (values.json) return printJson(answer)
  printLines([...linesOf(answer.signer), ...secretsOf(answer.credentials)])
}

async function list(_name: string, values: Values): Promise<void> {
  const { signers } = await withCore(values, (core) => core.listSigners({}))
  if (values.json) return printJson(signers)
  printLines(
    signers.length === 0 ? ['no signers but the one with WEBHOOK_SECRET'] : tableOf(signers),
  )
}

async function rotate(name: string, values: Values): Promise<void> {
  const overlapSeconds = Number(values['overlap-seconds'] ?? 86_400)
  if (!Number.isInteger(overlapSeconds))
    throw new UsageError('--overlap-seconds must be a whole number')
  const answer = await changeCore(values, (core) => core.rotateSigner({ name, overlapSeconds }))
  if (values.json) return printJson(answer)
  printLines(secretsOf(answer.credentials))
}

async function apps(name: string, values: Values): Promise<void> {
  const answer = await changeCore(values, (core) => core.setSignerApps({ name, ...appsOf(values) }))
  if (values.json) return printJson(answer)
  printLines(linesOf(answer.signer))
}

async function remove(name: string, values: Values): Promise<void> {
  await changeCore(values, (core) => core.removeSigner({ name }))
  report(values, { name, removed: true }, () => [`${name} is no longer a signer`])
}

const actions = new Map([
  ['create', create],
  ['list', list],
  ['rotate', rotate],
  ['apps', apps],
  ['remove', remove],
])

function appsOf(values: Values) {
  const clientIds = values.app ?? []
  const allApps = values['all-apps'] ?? false
  if (allApps === clientIds.length > 0) throw new UsageError('signer needs --app or --all-apps')
  return { allApps, clientIds }
}

const linesOf = (info: SignerInfo | undefined): string[] => (info ? tableOf([info]) : [])

const tableOf = (signers: readonly SignerInfo[]): string[] =>
  table(
    ['name', 'apps', 'events', 'secrets'],
    signers.map(({ name, allApps, clientIds, mayPushEvents, secrets }) => [
      name,
      allApps ? 'all' : clientIds.join(' '),
      mayPushEvents ? 'yes' : 'no',
      String(secrets),
    ]),
  )

const secretsOf = (credentials: SignerCredentials | undefined): string[] => [
  `secret (shown once): ${credentials?.secret ?? ''}`,
  ...(credentials?.eventsSecret === undefined
    ? []
    : [`secret for events (shown once): ${credentials.eventsSecret}`]),
]
