import type { OwnSecret } from '../../../../proto/gen/ts-proto/tollgate/signer/v1/signers.ts'
import {
  type Command,
  UsageError,
  changeCore,
  need,
  parse,
  parseOptions,
  runAction,
  withCore,
} from '../../command.ts'
import { printJson, printLines, report, table } from '../../output.ts'

export const signerSecret: Command = {
  summary: "lists, makes and revokes secrets of an app's own signer",
  help: {
    usages: [
      {
        syntax: 'tollgate signer-secret list [--app APP] [--json]',
        text: 'Lists the secrets that are valid, without their text.',
      },
      {
        syntax:
          'tollgate signer-secret create [--app APP] [--purpose decisions|events] [--overlap-seconds N] [--key TEXT] [--json]',
        text:
          "Makes a secret for the app's own signer, to request decisions about the app's users or to push their " +
          'events, and prints it once; at most five of each purpose. Older secrets of the purpose stay valid or, ' +
          'with --overlap-seconds, end after that time.',
      },
      {
        syntax: 'tollgate signer-secret revoke ID [--app APP] [--json]',
        text: 'Revokes a secret at once. ID is the one in the list.',
      },
    ],
    options: [
      {
        title: 'Options',
        options: [
          ['--purpose PURPOSE', 'decisions (default) or events.'],
          ['--overlap-seconds N', 'From 0, which ends the older secrets at once, to 2592000.'],
          ['--key TEXT', 'An idempotency key: a repeat with the same key makes no second secret.'],
        ],
      },
    ],
    note: 'Signers that sign for several apps are made by "tollgate signer".',
    examples: [
      './tollgate signer-secret create --app app_0123456789abcdef01234567 --overlap-seconds 3600',
      './tollgate signer-secret list --app app_0123456789abcdef01234567',
    ],
  },
  run: runAction('signer-secret', { list, create, revoke }),
}

async function list(argv: readonly string[]): Promise<void> {
  const values = parseOptions(argv, { app: { type: 'string' } })
  const { app: clientId } = await need('signer-secret list', values, ['app'])
  const { secrets } = await withCore(values, (core) => core.listAppSecrets({ clientId }))
  const columns = ['id', 'purpose', 'created', 'ends']
  report(values, secrets, () =>
    table(columns, secrets.map(rowOf), 'the app has no signer of its own'),
  )
}

async function create(argv: readonly string[]): Promise<void> {
  const values = parseOptions(argv, {
    app: { type: 'string' },
    purpose: { type: 'string' },
    'overlap-seconds': { type: 'string' },
    key: { type: 'string' },
  })
  const { app: clientId } = await need('signer-secret create', values, ['app'])
  const overlapSeconds = parseSeconds(values['overlap-seconds'])
  const { purpose = 'decisions', key: idempotencyKey } = values
  const answer = await changeCore(values, (core) =>
    core.createAppSecret({ clientId, purpose, overlapSeconds, idempotencyKey }),
  )
  if (values.json) return printJson(answer)
  printLines([
    `secret for ${purpose} (shown once): ${answer.secret}`,
    ...(answer.oldSecretsExpireAt === undefined
      ? []
      : [`older secrets end at ${answer.oldSecretsExpireAt}`]),
  ])
}

async function revoke(argv: readonly string[]): Promise<void> {
  const { values, positionals } = parse(argv, {
    app: { type: 'string' },
  })
  const [id, ...rest] = positionals
  if (id === undefined || rest.length > 0) throw new UsageError('signer-secret revoke needs one ID')
  const { app: clientId } = await need('signer-secret revoke', values, ['app'])
  await changeCore(values, (core) => core.revokeAppSecret({ clientId, id }))
  if (values.json) return printJson({ id, revoked: true })
  printLines([`${id} has ended`])
}

function parseSeconds(text: string | undefined): number | undefined {
  if (text === undefined || /^\d{1,7}$/.test(text)) return text === undefined ? text : Number(text)
  throw new UsageError('--overlap-seconds must be a whole number')
}

const rowOf = ({ id, purpose, createdAt, expiresAt }: OwnSecret): string[] => [
  id,
  purpose,
  createdAt.slice(0, 10),
  expiresAt ?? 'never',
]
