import type {
  SignerCredentials,
  SignerInfo,
} from '../../../proto/gen/ts-proto/tollgate/signer/v1/signers.ts'
import { action, createCommand } from '../command.ts'
import { argument, idempotencyKey, integer, list, toggle } from '../options.ts'
import { table } from '../output.ts'

const name = argument('NAME')
const apps = { clientIds: list('APP', { flag: 'app' }), allApps: toggle() }

const tableOf = (signers: readonly (SignerInfo | undefined)[]): string[] =>
  table(
    signers.filter((signer) => signer !== undefined),
    [
      'name',
      ['apps', ({ allApps, clientIds }) => (allApps ? 'all' : clientIds.join(' '))],
      ['events', 'mayPushEvents'],
      'secrets',
    ],
    'no signers but the one with WEBHOOK_SECRET',
  )

const secretsOf = (credentials: SignerCredentials | undefined): string[] => [
  `secret (shown once): ${credentials?.secret ?? ''}`,
  ...(credentials?.eventsSecret === undefined
    ? []
    : [`secret for events (shown once): ${credentials.eventsSecret}`]),
]

export const signer = createCommand('signer', {
  summary: 'makes, lists, changes and removes signers',
  examples: [
    './tollgate signer create north --app app_0123456789abcdef01234567 --events',
    './tollgate signer rotate north --overlap-seconds 3600',
  ],
  actions: {
    create: action({
      text: 'Makes a signer that signs for these apps only, and prints its secrets once. With --events it may also push the events of those apps, with a separate secret.',
      options: {
        name,
        ...apps,
        mayPushEvents: toggle({ flag: 'events' }),
        idempotencyKey: idempotencyKey('makes no second signer and prints the same secrets'),
      },
      oneOf: [['clientIds', 'allApps']],
      change: (core, request) => core.signers.createSigner(request),
      lines: ({ signer, credentials }) => [...tableOf([signer]), ...secretsOf(credentials)],
    }),
    list: action({
      text: 'Lists signers and their apps. The signer with WEBHOOK_SECRET, which signs for all apps, is not listed.',
      read: async (core) => (await core.signers.listSigners({})).signers,
      lines: tableOf,
    }),
    rotate: action({
      text: 'Makes new secrets. The old secrets stay valid for N seconds, a day by default; 0 ends them at once.',
      options: {
        name,
        overlapSeconds: integer('N', { from: 0, fallback: 86_400 }),
        idempotencyKey: idempotencyKey('makes no further secrets and prints the same ones'),
      },
      change: (core, request) => core.signers.rotateSigner(request),
      lines: ({ credentials }) => secretsOf(credentials),
    }),
    apps: action({
      text: 'Replaces the apps that a signer signs for.',
      options: { name, ...apps },
      oneOf: [['clientIds', 'allApps']],
      change: (core, request) => core.signers.updateSigner(request),
      lines: ({ signer }) => tableOf([signer]),
    }),
    remove: action({
      text: 'Removes a signer and its secrets.',
      options: { name },
      change: async (core, { name }) => {
        await core.signers.deleteSigner({ name })
        return { name, removed: true }
      },
      lines: ({ name }) => [`${name} is no longer a signer`],
    }),
  },
})
